"""Constraints on answers: which tokens may come next. A grammar is one, copied fields are another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


class Constraint:
    """The state of one answer under its constraint. It follows the sampler's choices and rewinds.

    This class allows every answer. A subclass overrides `allowed`, which masks scores, or `allows`, which
    checks the chosen token.
    """

    @property
    def max_tokens(self) -> int | None:
        """The default length of the answer; None: the loop's."""
        return None

    @property
    def fallback(self) -> str | None:
        """The text that replaces an unsure answer; None: the answer stays."""
        return None

    @property
    def complete(self) -> bool | None:
        """Whether the answer may end here; None: the constraint defines no complete answer."""
        return None

    @property
    def forced(self) -> int | None:
        """The only token that may come next; None if there is a choice."""
        return None

    @property
    def ended(self) -> bool:
        """Whether the answer must end here."""
        return False

    def allowed(self) -> Bools | None:
        """Return a mask [vocab] of the tokens that may come next; None: the constraint masks no scores."""
        return None

    def allows(self, token: int) -> bool:
        """Whether this token may come next."""
        allowed = self.allowed()
        return allowed is None or bool(allowed[token])

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        """Start an answer to this prompt, and follow its tokens so far."""

    def consume(self, token: int) -> None:
        """Follow one more token of the answer."""

    def rewind(self, tokens: int) -> None:
        """Take back the last tokens."""
