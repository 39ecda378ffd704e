"""A tokenizer.json as llama.cpp's `tokenizer.*` keys.

This program reads tokenizer.json. The keys are for other llama.cpp programs, which run base.gguf as an
ordinary model.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

from hamburger_edge.errors import HamburgerWarning
from hamburger_edge.export.gguf.tensors import GGUFBuilder
from hamburger_edge.models.bases.formats.gguf_tokenizer import pre_tokenizer_named
from hamburger_edge.models.bases.formats.sentencepiece import CONTROL, USER_DEFINED

NORMAL, UNKNOWN, UNUSED, BYTE = 1, 2, 5, 6
PRE_TOKENIZERS = ("smollm", "llama-bpe", "qwen2", "gpt-2")
# Text on which the known pre-tokenizers differ: digits, contractions, line ends, punctuation beside letters.
PROBE = "The cat sat on the mat. I'LL pay 12345 dollars;it's\r\n\r\n  \n\tОк ¿qué? 日本語 \u00a0 x=10  #ok"


def add_vocabulary(part: GGUFBuilder, path: Path, size: int, eos_ids: Sequence[int]) -> None:
    description = json.loads(path.read_text(encoding="utf-8"))
    kind = description["model"].get("type")
    if kind != "BPE":
        warnings.warn(
            f"{path}: a {kind} tokenizer does not fit into GGUF: other programs cannot use base.gguf",
            HamburgerWarning,
            stacklevel=2,
        )
        part.key("tokenizer.ggml.model", "no_vocab")
        part.keys(vocab_size=size)
        return
    vocabulary: dict[str, int] = description["model"]["vocab"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in description["model"]["merges"]]
    added = {token["id"]: token for token in description["added_tokens"]}
    tokens = [f"<unused {number}>" for number in range(size)]  # llama.cpp ends the process if two are equal
    types = [UNUSED] * size
    for token, number in vocabulary.items():
        tokens[number], types[number] = token, NORMAL
    for number, token in added.items():
        if vocabulary.get(token["content"], number) == number:
            tokens[number], types[number] = token["content"], CONTROL if token["special"] else USER_DEFINED
    if description["model"].get("byte_fallback"):
        _add_sentencepiece(part, tokens, types, merges, description)
    else:
        part.key("tokenizer.ggml.model", "gpt2")
        part.key("tokenizer.ggml.pre", _recognise(path, vocabulary, merges, description))
        part.key("tokenizer.ggml.merges", merges)
    part.key("tokenizer.ggml.tokens", tokens)
    part.key("tokenizer.ggml.token_type", types)
    if eos_ids:
        part.key("tokenizer.ggml.eos_token_id", eos_ids[0])
    if len(eos_ids) > 1:
        part.key("tokenizer.ggml.eot_token_id", eos_ids[1])
    part.key("tokenizer.ggml.add_bos_token", False)  # the chat template has it if the model needs one


def _add_sentencepiece(
    part: GGUFBuilder, tokens: list[str], types: list[int], merges: list[str], description: Mapping[str, Any]
) -> None:
    """Score tokens by merge order: llama.cpp joins the pair whose result scores highest."""
    rank = {merge.replace(" ", "", 1): -float(number) for number, merge in reversed(list(enumerate(merges)))}
    for number, token in enumerate(tokens):
        if len(token) == 6 and token.startswith("<0x"):
            types[number] = BYTE
        elif token == description["model"].get("unk_token"):
            types[number] = UNKNOWN
            part.key("tokenizer.ggml.unknown_token_id", number)
    part.key("tokenizer.ggml.model", "llama")
    part.key("tokenizer.ggml.scores", [rank.get(token, -1e6) for token in tokens])
    part.key("tokenizer.ggml.add_space_prefix", "Prepend" in json.dumps(description.get("normalizer")))


def _recognise(path: Path, vocabulary: dict[str, int], merges: list[str], description: Any) -> str:
    """Name the llama.cpp pre-tokenizer that gives the same tokens as this tokenizer."""
    ours = Tokenizer.from_file(str(path))
    wanted = ours.encode(PROBE, add_special_tokens=False).ids
    pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]
    for name in PRE_TOKENIZERS:
        whole = bool(description["model"].get("ignore_merges"))
        theirs = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=whole))
        theirs.pre_tokenizer = pre_tokenizer_named(name)
        if theirs.encode(PROBE, add_special_tokens=False).ids == wanted:
            return name
    warnings.warn(
        f"{path}: llama.cpp has no such pre-tokenizer: other llama.cpp programs may tokenize differently",
        HamburgerWarning,
        stacklevel=2,
    )
    return "gpt-2"
