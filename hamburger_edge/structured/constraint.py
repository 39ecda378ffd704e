"""A constraint on an answer: the tokens that may come next. A grammar is one, copied fields another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


class Constraint(Protocol):
    """The state of one answer under its constraint. It follows the sampler's choices and rewinds."""

    @property
    def max_tokens(self) -> int | None:
        """The default length of the answer; None: the loop's."""

    @property
    def fallback(self) -> str | None:
        """The text that replaces an unsure answer; None: the answer stays."""

    @property
    def complete(self) -> bool | None:
        """Whether the answer may end here; None: the constraint defines no complete answer."""

    @property
    def forced(self) -> int | None:
        """The only token that may come next; None if there is a choice."""

    @property
    def ended(self) -> bool:
        """Whether the answer must end here."""

    def mask(self, *, micro: bool = False) -> Bools | None:
        """Return which of the base's scores [vocab], or of a micro step's, may be chosen.

        Without a mask (None) `allows` decides about the chosen token.
        """

    def allows(self, token: int) -> bool:
        """Whether this token may come next."""

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        """Start an answer to this prompt, and follow its tokens so far."""

    def consume(self, token: int) -> None:
        """Follow one more token of the answer."""

    def rewind(self, tokens: int) -> None:
        """Take back the last tokens."""


class Unconstrained:
    """The constraint of an answer that has none."""

    max_tokens: int | None = None
    fallback: str | None = None
    complete: bool | None = None
    forced: int | None = None
    ended = False

    def mask(self, *, micro: bool = False) -> Bools | None:
        return None

    def allows(self, token: int) -> bool:
        return True

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        pass

    def consume(self, token: int) -> None:
        pass

    def rewind(self, tokens: int) -> None:
        pass
