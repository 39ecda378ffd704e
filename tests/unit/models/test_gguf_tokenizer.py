"""Tokenizers built from GGUF vocabularies give llama.cpp's ids, on hard strings and on random ones."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter
from helpers.toys.gguf_files import small_base, write_gguf
from tokenizers import Tokenizer

from hamburger_edge.chat.tokenizer import TextStream
from hamburger_edge.chat.tokenizer import Tokenizer as OurTokenizer
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.formats.gguf_file import GGUFFile
from hamburger_edge.models.bases.formats.gguf_tokenizer import build_tokenizer
from hamburger_edge.models.bases.sources.fetch import fetch

HARD = [
    "",
    " ",
    "Hello world",
    " leading, trailing ",
    "it's we're I'd THEY'LL 'sixties",
    "1234567890 3.14159 1,000,000 2²½ Ⅷ ٣٤٥ 0x7fff",
    "a  b   c    d        e",
    "\t\ttabs\tand\n\nnew\r\nlines\n \n  \n\ttrailing\n",
    "def f(x: list[int]) -> int:\n    return sum(i**2 for i in x if i % 2 == 0)  # squares\n",
    '{"key": [1, 2.5e-3, null], "path": "C:\\\\dir\\\\*.txt"}',
    "<div class='a'>&amp;</div><!-- x -->",
    "https://example.org/a?b=c&d=%20#e",
    "naïve façade Übergröße Ærøskøbing Łódź",
    "日本語のテキスト、中文文本。한국어 텍스트",
    "Русский текст العربية עברית हिन्दी ไทย",
    "😀 👩‍👩‍👧‍👦 🇯🇵 👍🏽 ❤️",
    "e\u0301 \u200b\u200d \ufeff \u00a0\u3000\u2028x",
    "\x00\x01\x06\x13\x1d\x7f control",
    "\U000e0001\U0010ffff beyond",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b <|im_end|> c<|endoftext|><|endoftext|><|im_endx|>",
    "<repo_name>x<file_sep>y<jupyter_code>z",
    "word" * 200,
]
POOLS = [
    "abcxyzABC",
    "0123456789²½Ⅷ٣",
    " \t\n\r\v\f\u00a0\u3000\u2028",
    "éüßñçÅ",
    "日本語中文한국어",
    "😀👩‍👧🇯🇵🏽",
    "{}()[];:=+-*/<>!&|^~'\"`#@$%",
    "\u0301\u200d\u200b\ufeff\U0001f600\U000e0001\x00\x01\x7f",
]
PIECES = ["'s", "'t", "'RE", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<filename>", "  ", "\n\n"]


def random_strings(count: int) -> list[str]:
    chance = random.Random(0)
    strings = []
    for number in range(count):
        if number % 3:
            pieces = [chance.choice(chance.choice([*POOLS, PIECES])) for _ in range(chance.randint(1, 30))]
        else:  # anything that can be a character, surrogates excepted
            ranges = [(1, 0x7F), (0x80, 0x2FFF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
            pieces = [chr(chance.randint(*chance.choice(ranges))) for _ in range(20)]
        strings.append("".join(pieces))
    return strings


def assert_same_ids(tokenizer: Tokenizer, path: Path, strings: list[str]) -> None:
    from llama_cpp import Llama

    llama = Llama(str(path), vocab_only=True, verbose=False)
    for text in strings:
        expected = llama.tokenize(text.encode(), add_bos=False, special=True)
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected, repr(text)
    llama.close()


def test_smollm2_tokens_equal_llama_cpp() -> None:
    path = fetch("smollm2-135m") / "model.gguf"
    tokenizer = build_tokenizer(GGUFFile(path))
    assert_same_ids(tokenizer, path, [*HARD, *random_strings(4000)])
    for text in HARD:
        if not any(character in text for character in "\x06\x13\x1d\U0010ffff"):  # bytes it has no token for
            assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.decode([1, 2], skip_special_tokens=True) == ""


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_pre_tokenizers_equal_llama_cpp(pre: str, tmp_path: Path) -> None:
    """SmolLM2's first 4000 tokens and their merges, cut into pieces the way other models do."""
    file = GGUFFile(fetch("smollm2-135m") / "model.gguf")
    tokens, types, merges = (file.get(f"tokenizer.ggml.{x}") for x in ("tokens", "token_type", "merges"))
    unmerged = len(tokens) - len(merges)  # bytes and special tokens
    more = {"token_merges": merges[: 4000 - unmerged], "bos_token_id": 1, "eos_token_id": 2}
    path = tmp_path / "vocabulary.gguf"
    write_vocabulary(path, "gpt2", tokens[:4000], types[:4000], tokenizer_pre=pre, **more)
    assert_same_ids(build_tokenizer(GGUFFile(path)), path, [*HARD, *random_strings(1000)])


def write_vocabulary(path: Path, model: str, tokens: list[str], types: list[int], **more: Any) -> Path:
    """A GGUF file of a vocabulary alone; of `more`, each is an argument of the writer's method `add_...`."""
    writer = GGUFWriter(path, "llama")
    given = {"tokenizer_model": model, "token_list": tokens, "token_types": types, **more}
    for name, value in given.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("first_space", [False, True])
def test_sentencepiece_tokens_equal_llama_cpp(first_space: bool, tmp_path: Path) -> None:
    """A small vocabulary as Gemma's (no first space) and as Llama 2's, with byte fallback: most characters
    of the strings have no piece."""
    special = ["<unk>", "<s>", "</s>", "<|im_start|>"]
    given = ["\n\n", "\n", "  ", "   ", "<td>"]
    text = "the▁cat▁that▁sat▁there▁ate▁then,▁when▁other▁animals▁were▁at▁the▁other▁table"
    found = Counter(text[i : i + size] for size in (2, 3, 4, 5) for i in range(len(text) - size))
    pieces = [piece for piece, times in found.most_common() if times > 1]
    letters = sorted({*text, *"CHTdfgikjuvwxyz.é日本😀"})
    tokens = [*special, *given, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *letters]
    types = [2, *[3] * 3, *[4] * len(given), *[6] * 256, *[1] * (len(pieces) + len(letters))]
    ranked = [-float(rank) for rank in range(len(pieces) + len(letters))]
    scores = [*[-1000.0] * (len(tokens) - len(ranked)), *ranked]
    more = {"tokenizer_pre": "default", "token_scores": scores, "add_space_prefix": first_space}
    more |= {"bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0}
    path = write_vocabulary(tmp_path / "vocabulary.gguf", "llama", tokens, types, **more)
    tokenizer = build_tokenizer(GGUFFile(path))
    mine = ["x<td>y  z   \n\n\n<s>a</s> b", "▁a ▁", "that other cat ate there then"]
    assert_same_ids(tokenizer, path, [*HARD, *mine, *random_strings(1000)])
    assert tokenizer.encode("Hello").ids[0] == 1  # begins with the beginning of text
    ours = tmp_path / "tokenizer.json"
    tokenizer.save(str(ours))
    for text in ("Hello world, x", "naïve 日本語 😀", " a", *(() if first_space else ("a  b\n\n\n",))):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert TextStream(OurTokenizer(ours)).push(ids)[0] == text


def test_text_becomes_no_special_token(tmp_path: Path) -> None:
    """The halves of a control token are pieces; joining them would let a user's text open a turn."""
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "<", "s", ">", "<s", "s>"]
    types, scores = [2, 3, *[6] * 256, *[1] * 5], [*[0.0] * 258, -1.0, -2.0, -3.0, -4.0, -5.0]
    more = {"token_scores": scores, "unk_token_id": 0, "add_space_prefix": False}
    path = write_vocabulary(tmp_path / "vocabulary.gguf", "llama", tokens, types, **more)
    build_tokenizer(GGUFFile(path)).save(str(tmp_path / "tokenizer.json"))
    tokenizer = OurTokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode_parts([("<s>", True)]) == [1]
    spelled = tokenizer.encode_parts([("<s>", False)])
    assert 1 not in spelled
    assert tokenizer.decode(spelled) == "<s>"


def test_other_kinds_of_vocabulary_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", *small_base(), pre="martian")
    with pytest.raises(CheckpointError, match=r"unknown pre-tokenizer 'martian': put .*tokenizer\.json"):
        build_tokenizer(GGUFFile(path))
    path = write_gguf(tmp_path / "no_words.gguf", *small_base(), vocabulary=False)
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.model is missing"):
        build_tokenizer(GGUFFile(path))
