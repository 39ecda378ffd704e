"""A bundle of `tiny`, whose answers are words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.browsing import Browser, browsing
from helpers.serving import Running, serving

from hamburger_edge import load
from hamburger_edge.model import Model


@pytest.fixture(scope="session")
def tiny(exported_tiny: Callable[..., Path]) -> Path:
    return exported_tiny("int8")


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
