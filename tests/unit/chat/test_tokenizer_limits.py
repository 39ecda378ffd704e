"""A tokenizer that multiplies its input is refused, and a prompt that cannot fit is, before it is tried."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import toy_tokenizers
from chat_models import toy_model

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import BundleError, ContextFullError
from hamburger_edge.model import Model

DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
EVERYWHERE = {"type": "Replace", "pattern": {"Regex": ""}, "content": "x" * 200}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def in_sequence(part: str, steps: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", part: steps}


def deep(step: Any, levels: int) -> Any:
    for _ in range(levels):
        step = in_sequence("normalizers", [step])
    return step


def charsmap(replacement: bytes) -> dict[str, Any]:
    data = (4).to_bytes(4, "little") + bytes(4) + replacement + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
SPECIAL = {"SpecialToken": {"id": "<s>", "type_id": 0}}
HOSTILE: dict[str, dict[str, Any]] = {
    "doubled again and again": {"normalizer": in_sequence("normalizers", [DOUBLE] * 40)},
    "in sequences of sequences": {
        "normalizer": in_sequence("normalizers", [in_sequence("normalizers", [DOUBLE] * 4)] * 10)
    },
    "a regular expression that matches nothing": {"normalizer": EVERYWHERE},
    "a long beginning": {"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}},
    "bytes of bytes": {"pre_tokenizer": in_sequence("pretokenizers", [BYTES] * 40)},
    "a map to long texts": {"normalizer": charsmap(b"x" * 10**5)},
    "many steps": {"normalizer": in_sequence("normalizers", [{"type": "NFC"}] * 1000)},
    "steps far inside": {"normalizer": deep({"type": "NFC"}, 100)},
    "the text many times": {
        "post_processor": {"type": "TemplateProcessing", "single": [SEQUENCE] * 1000, "pair": []}
    },
    "many marks": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [SPECIAL, SEQUENCE],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0] * 1000, "tokens": ["<s>"] * 1000}},
        }
    },
    "decoded to more": {"decoder": in_sequence("decoders", [{"type": "ByteFallback"}, *[DOUBLE] * 40])},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_tokenizer_that_multiplies_is_refused(name: str, tmp_path: Path) -> None:
    path = toy_tokenizers.byte_fallback(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **HOSTILE[name]}))
    with pytest.raises(BundleError, match=r"makes a text grow beyond 100 times"):
        Tokenizer(path)


def test_other_ways_to_be_large_are_refused(tmp_path: Path) -> None:
    path = toy_tokenizers.byte_fallback(tmp_path)
    whole = json.loads(path.read_text())
    model = {**whole["model"], "end_of_word_suffix": "x" * 10**5}
    path.write_text(json.dumps({**whole, "model": model}))
    with pytest.raises(BundleError, match="end_of_word_suffix of 100000 characters"):
        Tokenizer(path)
    text = json.dumps(whole)
    path.write_text(text[:-1] + ', "normalizer": null}')
    with pytest.raises(BundleError, match="key 'normalizer' stands there twice"):
        Tokenizer(path)


def test_a_prompt_of_megabytes_is_refused_before_it_is_read_as_tokens(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took many seconds, and a gigabyte, to find out that it was too long."""
    monkeypatch.setattr(Tokenizer, "_encode", lambda *_, **__: pytest.fail("it was read"))
    chat = model.chat("be kind")
    text = "hello " * 2 * 10**6
    for say in (
        lambda: model.generate(text),
        lambda: model.generate(text, raw=True),
        lambda: model.generate(text.encode()),
        lambda: model.generate("hi", system=text),
        lambda: chat.send(text),
        lambda: model.chat(text).send("hi"),
    ):
        with pytest.raises(ContextFullError, match=r"\d+ characters, which are more than 2000 tokens"):
            say()


def test_a_prompt_that_may_fit_is_read(tokenizer: Tokenizer) -> None:
    longest = "a token with spaces"
    assert tokenizer.longest == len(longest)
    with toy_model(tokenizer, {"cache_slots": 20, "context_length": 40}, template="plain") as model:
        fits = longest * 19
        assert model.generate(fits, max_tokens=1, raw=True).tokens
        with pytest.raises(ContextFullError, match="361 positions but the model's context has 40"):
            model.generate("q" * len(fits), raw=True)
