from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.model import Model
from hamburger_edge.support.cluster import Cluster
from hamburger_edge.support.files import locked

# Started in the background of a script, this process ignores Ctrl-C, and so would the programs that tests
# start and interrupt; a shell on a terminal takes it back as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Toy bundles by their configuration, each exported once a session, by whichever of the processes that
    share its folder needs it first; do not write into them."""
    own = tmp_path_factory.getbasetemp()
    toys = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "toys"

    def bundle(**changes: object) -> Path:
        folder = toys / hashlib.sha256(repr(sorted(changes.items())).encode()).hexdigest()[:16]
        with locked(folder.with_suffix(".lock")):
            if not (folder / "bundle").exists():
                from toy_bundles import toy_bundle  # not at the top: it imports torch

                toy_bundle(folder, **changes)
        return folder / "bundle"

    return bundle


@pytest.fixture(scope="session")
def bundle(bundles: Callable[..., Path]) -> Path:
    """A toy bundle with a draft vocabulary, positions by token and groups of every length."""
    return bundles(draft_vocab_size=100)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two workers on this machine; `--ray local` finds it there, and starts none of its own."""
    pytest.importorskip("ray", reason="needs the extra [cluster]")
    with Cluster("local", 2, threads=1) as there:
        yield there


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a toy: bytes and a few merges."""
    from toy_tokenizers import byte_level

    return byte_level(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_path: Path) -> Tokenizer:
    return Tokenizer(tokenizer_path)


@pytest.fixture
def model(tokenizer: Tokenizer) -> Iterator[Model]:
    """Chats, on a scripted backend."""
    from chat_models import toy_model

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
