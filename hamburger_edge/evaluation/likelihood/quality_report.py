"""The results of an evaluation of quality, as data and as a text table."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from hamburger_edge.evaluation.likelihood.base_judge import LOOP, JudgedAnswer
from hamburger_edge.evaluation.likelihood.figures import Figures, figures
from hamburger_edge.evaluation.machine import versions
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.support.tables import number, table

PACKAGES = ("hamburger-edge", "numpy", "onnxruntime", "llama-cpp-python", "torch")
COLUMNS = (
    *("model", "conf.", "tok/step", "nats/tok", "+plain", "agree", "first", "micro"),
    *("repeat", "loops", "right"),
)
LEGEND = f"""\
tok/step: tokens of the answers per step, and so per KV entry.
nats/tok: of the answers under the plain base; +plain: more than the base's own greedy answers have.
agree: tokens that the plain base chooses after the same text; first: those first in a group; micro: others.
repeat: repeated 4-grams; loops: answers with {LOOP:g} of them and more; right: of the checkable answers."""


@dataclass(frozen=True)
class QualityRow:
    """One model at one confidence."""

    confidence: float
    all: Figures
    non_looping: Figures  # of answers with a 4-gram repetition below LOOP
    kinds: dict[str, Figures]  # by kind of prompt

    @classmethod
    def of(
        cls, confidence: float, answers: Mapping[int, JudgedAnswer], base: Mapping[int, JudgedAnswer]
    ) -> QualityRow:
        """`base`: the judge's greedy answers. Answers to prompts that the judge skipped are left out."""
        judged = [answer for number, answer in answers.items() if number in base]
        kinds = sorted({answer.kind for answer in judged})
        return cls(
            confidence,
            figures(judged, base),
            figures([answer for answer in judged if not answer.loops], base, straight=True),
            {kind: figures([answer for answer in judged if answer.kind == kind], base) for kind in kinds},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "confidence": self.confidence,
            "all": self.all.to_json(),
            "non_looping": self.non_looping.to_json(),
            "kinds": {kind: of_kind.to_json() for kind, of_kind in self.kinds.items()},
        }


@dataclass(frozen=True)
class ModelReport:
    name: str
    backend: str
    provider: str
    precision: str
    fingerprint: str
    rows: list[QualityRow]

    @classmethod
    def of(cls, name: str, info: ModelInfo, rows: list[QualityRow]) -> ModelReport:
        return cls(name, info.backend, info.provider, info.precision, info.fingerprint, rows)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "rows": [row.to_json() for row in self.rows]}


@dataclass(frozen=True)
class Skipped:
    """A prompt that is longer than a context."""

    prompt: int
    kind: str
    models: list[str]


@dataclass(frozen=True)
class QualityReport:
    settings: dict[str, Any]
    prompts: dict[str, Any]
    base_name: str
    base_description: str
    base: QualityRow
    models: list[ModelReport]
    skipped: list[Skipped]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 2,
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.system()} {platform.machine()}",
            "versions": versions(PACKAGES),
            "settings": self.settings,
            "prompts": self.prompts,
            "base": {"name": self.base_name, "description": self.base_description, **self.base.to_json()},
            "models": [model.to_json() for model in self.models],
            "skipped": [asdict(prompt) for prompt in self.skipped],
        }

    def __str__(self) -> str:
        """Format for a terminal."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.prompts["kinds"].items())
        parts = [
            f"plain base: {self.base_description}",
            f"prompts: {sum(self.prompts['kinds'].values())} of {self.prompts['file']} ({kinds}), "
            f"{self.base.all.checked} with a checkable answer; at most {self.settings['max_tokens']} tokens, "
            f"temperature {self.settings['temperature']:g}",
            self._skipped_line(),
            table([COLUMNS, *self._table_rows()]),
            LEGEND,
        ]
        return "\n\n".join(part for part in parts if part)

    def _skipped_line(self) -> str:
        if not self.skipped:
            return ""
        names = {self.base_name, *(model.name for model in self.models)}
        kinds = ", ".join(sorted({prompt.kind for prompt in self.skipped}))
        some = {name for prompt in self.skipped if len(prompt.models) < len(names) for name in prompt.models}
        only = f"; some of them only by {', '.join(sorted(some))}" if some else ""
        return f"skipped, longer than the context: {len(self.skipped)} ({kinds}){only}"

    def _table_rows(self) -> list[list[str]]:
        apart = all(model.name != self.base_name for model in self.models)
        rows = [[self.base_name, "1", *_cells(self.base.all)]] if apart else []
        for model in self.models:
            for row in model.rows:
                name = model.name if row is model.rows[0] else ""
                rows.append([name, f"{row.confidence:g}", *_cells(row.all)])
                if row.non_looping.answers < row.all.answers:
                    count = f"  {row.non_looping.answers} of {row.all.answers} not looping"
                    rows.append([count, "", *_cells(row.non_looping)])
        return rows


def _cells(row: Figures) -> list[str]:
    shares = (row.agreement, row.first_agreement, row.micro_agreement)
    return [
        number(row.tokens_per_step, ".2f"),
        number(row.nll, ".3f"),
        number(row.nll_difference, "+.3f"),
        *(number(share, ".1%") for share in (*shares, row.repetition, row.looping, row.right)),
    ]
