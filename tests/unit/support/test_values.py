"""Whatever a caller passes is refused in one printable line of at most 500 characters, of a type of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_models import toy_model

import hamburger_edge
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import HamburgerError, InputError, one_line
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.loop.settings import Settings
from hamburger_edge.model import Model
from hamburger_edge.support.values import flag, safe_repr


class Unkind:
    """Says nothing of itself, and is no truth."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("neither")


ODD: dict[str, Any] = {
    "list": [],
    "nested list": [[1], {}],
    "dictionary": {"a": 1},
    "array": np.zeros(3),
    "array of no dimension": np.array(0.5),
    "bytes": b"\xff" * 10**6,
    "set": {1},
    "number": 10**5000,
    "one": 1,
    "text": "x" * 10**6,
    "lines": "a\nb\x1b[2J\x00",
    "half a character": "\ud800",
    "object": Unkind(),
    "function": len,
}


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(HamburgerError) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable()
    assert 10 < len(message) <= 500


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "name", ["backend", "provider", "kv_cache_dtype", "verify", "provider_options", "threads", "cache_slots"]
)
def test_options_of_loading(name: str, odd: str, bundle: Path) -> None:
    if (name, odd) in {("threads", "one"), ("cache_slots", "one"), ("provider_options", "dictionary")}:
        pytest.skip("possible, or for ONNX Runtime to say")
    refused(lambda: hamburger_edge.load(bundle, **{name: ODD[odd]}))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "name",
    [
        *("mode", "forced", "confidence", "force_group", "max_tokens", "stop", "ignore_eos"),
        *("temperature", "seed", "logit_bias", "top_probabilities"),
        *("json_schema", "regex", "grammar", "unheard of"),
    ],
)
def test_options_of_an_answer(name: str, odd: str) -> None:
    whole = ("seed", "max_tokens", "force_group", "confidence", "top_probabilities")
    possible = {(each, "one") for each in (*whole, "temperature")} | {("json_schema", "dictionary")}
    possible |= {("stop", text) for text in ("list", "text", "lines", "half a character")}
    possible |= {(kind, "lines") for kind in ("regex", "grammar")}  # for the compiler to say
    if (name, odd) in possible:
        Settings.of({name: ODD[odd]})
    else:
        refused(lambda: Settings.of({name: ODD[odd]}))


@pytest.mark.parametrize("odd", ODD)
def test_what_is_said_and_how(odd: str, model: Model) -> None:
    value = ODD[odd]
    for name in ("raw", "reuse_prefix"):
        refused(lambda name=name: model.generate("hi", **{name: value}))
    if odd not in ("text", "lines"):
        refused(lambda: model.generate("hi", system=value))
        refused(lambda: model.chat(value))
        refused(lambda: model.chat().send(value))
        if odd != "set":  # of token ids
            refused(lambda: model.generate(value))
    refused(lambda: ChatTemplate.preset(value))
    assert model.generate("hi", max_tokens=2).tokens


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "name",
    [
        *("formats", "flavor", "precision", "gguf_precision", "block_size", "keep_head", "prefer"),
        *("kv_cache_dtype", "verify", "force"),
    ],
)
def test_options_of_an_export(name: str, odd: str) -> None:
    given = {"formats": ("onnx", "gguf")} if name == "gguf_precision" else {}
    refused(lambda: ExportOptions(**{**given, name: ODD[odd]}))


@pytest.mark.parametrize("odd", ODD)
def test_a_value_is_named_in_a_short_line(odd: str) -> None:
    text = safe_repr(ODD[odd])
    assert text.isprintable()
    assert 0 < len(text) <= 80


def test_messages_are_cleaned_and_cut_in_the_middle() -> None:
    error = InputError("a" * 10**6 + "\nthe way out")
    assert len(str(error)) == 500
    assert str(error).endswith("a\\nthe way out")
    assert str(error).startswith("aaa")
    assert " ... " in str(error)
    assert str(InputError("\x1b[2J\ud800")) == "\\x1b[2J\\ud800"
    assert one_line("\x00" * 100, 50).isprintable()
    assert len(one_line("\x00" * 100, 50)) == 50
    assert one_line("fine") == "fine"


def test_true_is_true(tokenizer: Tokenizer) -> None:
    assert flag("verify", True) is True
    for value in (1, 0, "yes", None, np.bool_(True)):
        with pytest.raises(InputError, match="verify must be true or false"):
            flag("verify", value)
    assert toy_model(tokenizer).generate("hi", max_tokens=1, raw=True).tokens
