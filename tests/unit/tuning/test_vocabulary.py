"""The tokens of a base that a task keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.toys.toy_tokenizers import SPECIAL, TEXT, byte_fallback, byte_level

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError
from hamburger_edge.models.bases.vocabulary import cut_tokenizer, kept_rows, tokens_of
from hamburger_edge.tuning.vocabulary import frequent_tokens

OTHER_TEXT = "Zebras, naïve 東京 🎈"
NEEDED = 260  # tokens of the byte-level toy without a merge: bytes, special tokens and an added one


@pytest.mark.parametrize(
    ("build", "size"), [(byte_level, 270), (byte_level, 300), (byte_fallback, 262), (byte_fallback, 285)]
)
def test_cut_tokenizer_decodes_what_it_encodes(
    build: Callable[[Path], Path], size: int, tmp_path: Path
) -> None:
    path = build(tmp_path)
    whole = Tokenizer(path)
    content = json.loads(path.read_text())
    cut = cut_tokenizer(content, frequent_tokens(content, map(whole.encode, TEXT), size, path))
    tokenizer = Tokenizer("cut", json.dumps(cut).encode())
    assert tokenizer.vocab_size == size < whole.vocab_size
    for text in (*TEXT, OTHER_TEXT):
        assert tokenizer.decode(tokenizer.encode(text)) == whole.decode(whole.encode(text))


def test_text_of_kept_tokens_keeps_its_tokens(tmp_path: Path) -> None:
    path = byte_level(tmp_path)
    whole, content = Tokenizer(path), json.loads(path.read_text())
    examples = [whole.encode(text) for text in TEXT[:2]]
    kept = frequent_tokens(content, examples, 318, path)
    cut = cut_tokenizer(content, kept)
    tokenizer = Tokenizer("cut", json.dumps(cut).encode())
    rows = kept_rows(cut, "cut", path)
    assert rows.tolist() == kept
    assert [rows[tokenizer.encode(text)].tolist() for text in TEXT[:2]] == examples
    assert set(SPECIAL) <= tokens_of(cut, "cut").keys()


def test_tokens_of_examples_come_before_frequent_ones(tmp_path: Path) -> None:
    path = byte_level(tmp_path)
    content = json.loads(path.read_text())
    last = max(token for token in content["model"]["vocab"].values())
    fewest = NEEDED + 12
    assert last not in frequent_tokens(content, [], fewest, path)
    assert last in frequent_tokens(content, [[last]], 310, path)


@pytest.mark.parametrize("size", [100, NEEDED, 5000])
def test_number_of_tokens_that_does_not_fit_the_base_is_refused(size: int, tmp_path: Path) -> None:
    path = byte_level(tmp_path)
    content = json.loads(path.read_text())
    total = Tokenizer(path).vocab_size
    message = f"tokens is {size}, but this base has {total}, of which {NEEDED} are needed for any text: give"
    with pytest.raises(ConfigError, match=message):
        frequent_tokens(content, [], size, path)


def test_vocabulary_without_merges_is_refused(tmp_path: Path) -> None:
    content = {"model": {"type": "WordLevel", "vocab": {"a": 0}}, "added_tokens": []}
    with pytest.raises(ConfigError, match="only be left out of a BPE tokenizer: leave out --tokens"):
        frequent_tokens(content, [], 1, "base")
