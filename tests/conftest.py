from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import places
from helpers.pytest_process import prepare, pytest_configure, pytest_runtest_logreport

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.model import Model
from hamburger_edge.models.distillation.cluster import Cluster
from hamburger_edge.support.folders import made_once

# Hooks that pytest reads here; tools/fuzzing has them, too.
__all__ = ("pytest_configure", "pytest_runtest_logreport")
prepare()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    yield
    items[:] = unit_tests_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def unit_tests_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Work stealing gives each worker an equal stretch: each begins with unit tests, files stay together."""
    files = [list(each) for _, each in itertools.groupby(items, lambda item: item.path)]
    stretches: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for file in sorted(files, key=lambda file: ("unit" not in file[0].path.parts, -len(file))):
        min(stretches, key=len).extend(file)
    return list(itertools.chain(*stretches))


@pytest.fixture(scope="session", autouse=True)
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes that run tests. The first process that needs an entry makes it."""
    own = tmp_path_factory.getbasetemp()
    places.shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return places.shared


@pytest.fixture(scope="session")
def bundles(shared: Path) -> Callable[..., Path]:
    """Toy bundles by their configuration; do not write into them."""

    def bundle(**changes: object) -> Path:
        def make(folder: Path) -> None:
            from helpers.toys.toy_bundles import toy_bundle  # not at the top: it imports torch

            toy_bundle(folder, **changes)

        asked = hashlib.sha256(repr(sorted(changes.items())).encode()).hexdigest()[:16]
        return made_once(shared / "toys" / asked, make) / "bundle"

    return bundle


@pytest.fixture(scope="session")
def exported_tiny(shared: Path) -> Callable[..., Path]:
    """Bundles of `tiny` by their precision, likewise; without the parity gate, which has its own tests."""

    def bundle(precision: Any) -> Path:
        from hamburger_edge import export_checkpoint

        def make(folder: Path) -> None:
            export_checkpoint("tiny", folder / precision, precision=precision, verify=False)

        return made_once(shared / f"tiny-{precision}", make) / precision

    return bundle


@pytest.fixture(scope="session")
def tiny(exported_tiny: Callable[..., Path]) -> Path:
    """That in float32."""
    return exported_tiny("fp32")


@pytest.fixture(scope="session")
def bundle(bundles: Callable[..., Path]) -> Path:
    """A toy bundle with a draft vocabulary, positions by token and groups of every length."""
    return bundles(draft_vocab_size=100)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two workers on this machine; `--ray local` finds it and starts no other."""
    pytest.importorskip("ray", reason="needs the extra [cluster]")
    with Cluster("local", 2, threads=1) as there:
        yield there


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a toy: bytes and a few merges."""
    from helpers.toys.toy_tokenizers import byte_level

    return byte_level(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_path: Path) -> Tokenizer:
    return Tokenizer(tokenizer_path)


@pytest.fixture
def model(tokenizer: Tokenizer) -> Iterator[Model]:
    """Chats, on a scripted backend."""
    from helpers.toys.chat_models import toy_model

    with toy_model(tokenizer) as model:
        yield model


@pytest.fixture
def run_eval(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`hamburger-edge eval` on one thread: exit code, what it printed, and its errors."""
    import torch

    import hamburger_edge.cli.main as cli

    def run(*words: str) -> tuple[int, str, str]:
        torch.set_num_threads(1)
        code = cli.main(["eval", *words])
        return code, *capsys.readouterr()

    return run
