"""A small trained model, whose answers end."""

from __future__ import annotations

from pathlib import Path

import pytest

from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.models.checkpoints.checkpoint import resolve


@pytest.fixture(scope="module")
def source(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    forms = tmp_path_factory.mktemp("forms")
    return Source(tiny, resolve("tiny"), "fp32", threads=1, slots=256, forms=forms)
