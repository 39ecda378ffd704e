"""A small trained model, whose answers end, and the programs that it is compared with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hamburger_edge.benchmarks.contender import Facts, Source
from hamburger_edge.benchmarks.peers.programs import PEERS
from hamburger_edge.models.checkpoints.built_in import resolve


@pytest.fixture(scope="module")
def source(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    forms = tmp_path_factory.mktemp("forms")
    return Source(tiny, resolve("tiny"), "fp32", threads=1, slots=256, forms=forms)


@pytest.fixture
def peer_of() -> Iterator[Callable[[str, Source], tuple[Any, Facts]]]:
    """Loads a peer by its name, if it is installed; it is closed at the end."""
    opened = []

    def peer(name: str, source: Source) -> tuple[Any, Facts]:
        program = PEERS[name]
        if why := program.missing:
            pytest.skip(why)
        module, _, adapter = program.adapter.partition(":")
        opened.append(getattr(importlib.import_module(module), adapter)(source, **program.options))
        return opened[-1], opened[-1].load()

    yield peer
    for each in opened:
        each.close()
