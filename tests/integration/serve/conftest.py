"""A bundle of `tiny`, whose answers are words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsing import Browser, browsing
from serving import Running, serving

from hamburger_edge import export_checkpoint, load
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("tiny") / "tiny"
    return Path(export_checkpoint(load_checkpoint("tiny"), bundle, precision="int8", verify=False))


@pytest.fixture(scope="session")
def load_tiny(tiny: Path) -> Callable[[], Model]:
    return lambda: load(tiny, threads=1)


@pytest.fixture(scope="module")
def running(load_tiny: Callable[[], Model]) -> Iterator[Running]:
    with serving([("tiny", load_tiny)], workers=2) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser
