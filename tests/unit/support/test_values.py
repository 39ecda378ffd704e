"""Every wrong value is refused by a typed error of one printable line of at most 500 characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hamburger_edge
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import HamburgerError, InputError, one_line
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.loop.settings import Settings
from hamburger_edge.model import Model
from hamburger_edge.support.values import safe_repr


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
    "minus one": -1,
    "truth of numpy": np.True_,
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
def test_wrong_options_of_load_are_refused(odd: str, bundle: Path) -> None:
    possible = {"threads": "one", "cache_slots": "one", "provider_options": "dictionary"}
    for name in ("backend", "provider", "kv_cache_dtype", "verify", *possible):
        if possible.get(name) != odd:
            refused(lambda name=name: hamburger_edge.load(bundle, **{name: ODD[odd]}))


ANSWER: dict[str, tuple[str, ...]] = {  # option -> what is possible, or for a grammar's compiler to refuse
    **dict.fromkeys(("confidence", "max_tokens", "temperature", "seed"), ("one",)),
    **dict.fromkeys(("top_k", "top_p", "min_p", "repetition_penalty", "top_probabilities"), ("one",)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), ("one", "minus one")),
    **dict.fromkeys(("mode", "ignore_eos", "logit_bias", "unheard of"), ()),
    **dict.fromkeys(("regex", "grammar"), ("lines",)),
    "json_schema": ("dictionary",),
    "stop": ("list", "text", "lines", "half a character"),
}


@pytest.mark.parametrize("odd", ODD)
def test_wrong_options_of_an_answer_are_refused(odd: str) -> None:
    for name, possible in ANSWER.items():
        if odd in possible:
            Settings.of({name: ODD[odd]})
        else:
            refused(lambda name=name: Settings.of({name: ODD[odd]}))


@pytest.mark.parametrize("odd", ODD)
def test_wrong_messages_are_refused(odd: str, model: Model) -> None:
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
def test_options_of_an_export(odd: str) -> None:
    for name in ("formats", "flavor", "precision", "kv_cache_dtype", "verify", "force"):
        refused(lambda name=name: ExportOptions(**{name: ODD[odd]}))
    refused(lambda: ExportOptions(formats=("onnx", "gguf"), gguf_precision=ODD[odd]))


def test_error_messages_are_printable_and_shortened() -> None:
    error = InputError("a" * 10**6 + "\nthe way out")
    assert len(str(error)) == 500
    assert re.fullmatch(r"a+ \.\.\. a+\\nthe way out", str(error))
    assert str(InputError("\x1b[2J\ud800")) == "\\x1b[2J\\ud800"
    assert one_line("\x00" * 100, 50).isprintable()
    assert len(one_line("\x00" * 100, 50)) == 50
    assert one_line("fine") == "fine"
    for value in ODD.values():
        assert safe_repr(value).isprintable()
        assert 0 < len(safe_repr(value)) <= 80
