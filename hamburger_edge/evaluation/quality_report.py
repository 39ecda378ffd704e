"""The results of an evaluation as data."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hamburger_edge.evaluation.base_judge import JudgedAnswer
from hamburger_edge.evaluation.figures import Figures, Reliability, figures, reliability
from hamburger_edge.evaluation.machine import versions
from hamburger_edge.model import Model

PACKAGES = ("hamburger-edge", "numpy", "onnxruntime", "llama-cpp-python", "torch")


@dataclass(frozen=True)
class Row:
    """One model at one confidence."""

    confidence: float
    all: Figures
    non_looping: Figures  # answers with a 4-gram repetition below LOOP
    kinds: dict[str, Figures]  # by kind of prompt
    calibration: Reliability

    @classmethod
    def of(
        cls,
        confidence: float,
        answers: Mapping[int, JudgedAnswer],
        plain: Mapping[int, JudgedAnswer],
        base: Mapping[int, JudgedAnswer],
    ) -> Row:
        found = [answer for answer in answers.values() if answer.number in base]
        kinds = sorted({answer.kind for answer in found})
        return cls(
            confidence,
            figures(found, plain, base),
            figures([answer for answer in found if not answer.loops], plain, base, straight=True),
            {
                kind: figures([answer for answer in found if answer.kind == kind], plain, base)
                for kind in kinds
            },
            reliability(found),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "confidence": self.confidence,
            "all": self.all.to_json(),
            "non_looping": self.non_looping.to_json(),
            "kinds": {kind: each.to_json() for kind, each in self.kinds.items()},
            "calibration": self.calibration.to_json(),
        }


@dataclass(frozen=True)
class ModelReport:
    name: str
    backend: str
    provider: str
    precision: str
    fingerprint: str
    rows: list[Row]
    calibration: Reliability  # over all confidences

    @classmethod
    def of(cls, name: str, model: Model, rows: list[Row], calibration: Reliability) -> ModelReport:
        info = model.info
        return cls(name, info.backend, info.provider, info.precision, info.fingerprint, rows, calibration)

    @property
    def plain(self) -> Row:
        return next(row for row in self.rows if row.confidence == 1)

    def to_json(self) -> dict[str, Any]:
        names = ("name", "backend", "provider", "precision", "fingerprint")
        return {
            **{name: getattr(self, name) for name in names},
            "rows": [row.to_json() for row in self.rows],
            "calibration": self.calibration.to_json(),
        }


@dataclass(frozen=True)
class Loss:
    """A row's loss against the plain base by cause, in nats per token and as a share of right answers."""

    model: str
    confidence: float
    weights_nll: float | None  # at confidence 1: from quantization and training of the base
    merging_nll: float | None  # difference from confidence 1 to this confidence
    weights_right: float | None
    merging_right: float | None


@dataclass(frozen=True)
class QualityReport:
    settings: dict[str, Any]
    prompts: dict[str, Any]
    base_name: str
    base_description: str
    base: Row
    models: list[ModelReport]
    skipped: list[dict[str, Any]]

    @property
    def losses(self) -> list[Loss]:
        return [
            Loss(
                model.name,
                row.confidence,
                model.plain.all.nll_difference,
                _minus(row.all.nll, model.plain.all.nll),
                _minus(model.plain.all.right, self.base.all.right),
                _minus(row.all.right, model.plain.all.right),
            )
            for model in self.models
            for row in model.rows
            if row.confidence < 1
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.system()} {platform.machine()}",
            "versions": versions(PACKAGES),
            "settings": self.settings,
            "prompts": self.prompts,
            "base": {"name": self.base_name, "description": self.base_description, **self.base.to_json()},
            "models": [model.to_json() for model in self.models],
            "losses": [
                {name: round(v, 5) if isinstance(v, float) else v for name, v in vars(loss).items()}
                for loss in self.losses
            ],
            "skipped": self.skipped,
        }


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
