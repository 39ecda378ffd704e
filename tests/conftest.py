from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.model import Model

# Started in the background of a script, this process ignores Ctrl-C, and so would the programs that tests
# start and interrupt; a shell on a terminal takes it back as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Toy bundles by their configuration, each exported once a session; do not write into them."""
    made: dict[str, Path] = {}

    def bundle(**changes: object) -> Path:
        from toy_bundles import toy_bundle  # not at the top: it imports torch

        key = repr(sorted(changes.items()))
        if key not in made:
            made[key] = toy_bundle(tmp_path_factory.mktemp("toy"), **changes)
        return made[key]

    return bundle


@pytest.fixture(scope="session")
def bundle(bundles: Callable[..., Path]) -> Path:
    """A toy bundle with a shortlist, positions by token and groups of every length."""
    return bundles(shortlist_size=100)


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
