"""Facts about a model's answers, which its checkpoint stores. Its bundles and all runtimes copy them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.dial import UNMEASURED, Recommended
from hamburger_edge.support.strict import from_mapping


@dataclass(frozen=True)
class AnswerFacts:
    """The fields have the names and the meaning of those of `ModelInfo`."""

    recommended: Recommended | None = None  # None: not measured
    certainty: Certainty | None = None
    edits_prompt: bool = False
    copied_fields: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> AnswerFacts:
        """Read the facts in a checkpoint's manifest."""
        stored = {name: manifest[name] for name in cls.names() if manifest.get(name) is not None}
        facts: AnswerFacts = from_mapping(cls, stored, "hamburger.json")
        return facts

    @property
    def of_model(self) -> dict[str, Any]:
        """The facts as fields of `ModelInfo`."""
        return vars(self) | {"recommended": self.recommended or UNMEASURED}

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]
