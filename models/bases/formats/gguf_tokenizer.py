"""Build a `tokenizers` tokenizer from the vocabulary and merges inside a GGUF file.

Byte-level BPE is built here, as SmolLM2, Llama 3 and Qwen have it; SentencePiece in `sentencepiece.py`.
"""

from __future__ import annotations

import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.formats.gguf_file import GGUFFile
from hamburger_edge.models.bases.formats.sentencepiece import CONTROL, USER_DEFINED, sentencepiece_tokenizer

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def pre_tokenizer_named(name: str) -> pre_tokenizers.PreTokenizer | None:
    """Return the pre-tokenizer of a GGUF name."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    match name:
        case "smollm":  # single digits
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
        case "gpt-2":
            return gpt2
        case "llama-bpe":  # Llama 3: up to three digits
            return _split(_WORDS + r"|\p{N}{1,3}" + _REST)
        case "qwen2":
            return _split(_WORDS + r"|\p{N}" + _REST)
    return None


def build_tokenizer(file: GGUFFile) -> Tokenizer:
    kind = file.need("tokenizer.ggml.model")
    if kind == "llama":
        return sentencepiece_tokenizer(file)
    if kind != "gpt2":
        raise CheckpointError(
            f"{file.path}: its {kind!r} vocabulary cannot be converted: "
            "put the model's tokenizer.json beside it"
        )
    pre_tokenizer = pre_tokenizer_named(file.get("tokenizer.ggml.pre", ""))
    if pre_tokenizer is None:
        raise CheckpointError(
            f"{file.path}: unknown pre-tokenizer {file.get('tokenizer.ggml.pre')!r}: "
            "put the model's tokenizer.json beside it"
        )
    tokens, types = file.need("tokenizer.ggml.tokens"), file.need("tokenizer.ggml.token_type")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in file.need("tokenizer.ggml.merges")]
    # Llama 3 keeps a piece that is a token, before merging
    whole = file.get("tokenizer.ggml.pre") == "llama-bpe"
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole))
    absent = "".join(sorted(set(pre_tokenizers.ByteLevel.alphabet()) - vocabulary.keys()))
    if absent:  # bytes without a token are dropped and prevent merges, as in llama.cpp
        holes = pre_tokenizers.Split(Regex(f"[{re.escape(absent)}]"), "removed")
        pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, holes])
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    return tokenizer
