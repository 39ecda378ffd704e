"""A chat that is saved goes on as if it had never stopped; a file that is not one is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_models import TURNS, toy_model
from session_files import OPTIONS, rewritten

from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError, SessionError
from hamburger_edge.model import Model


@pytest.mark.parametrize("rule", ["token", "slot"])
@pytest.mark.parametrize("mode", ["merge", "verify"])
def test_a_resumed_session_goes_on_bit_for_bit(
    tokenizer: Tokenizer, tmp_path: Path, rule: str, mode: str
) -> None:
    shape = {"position_rule": rule}
    never = toy_model(tokenizer, shape).chat("be kind", mode=mode, **OPTIONS)
    straight = [list(never.send(turn)) for turn in TURNS]
    path = tmp_path / "talk.session"
    chat = toy_model(tokenizer, shape).chat("be kind", mode=mode, **OPTIONS)
    for turn, expected in zip(TURNS, straight, strict=True):
        assert list(chat.send(turn)) == expected
        chat.save(path)
        fresh = toy_model(tokenizer, shape)
        resumed = fresh.resume(path)
        assert (resumed.groups, resumed.messages) == (chat.groups, chat.messages)
        assert (resumed.settings, resumed.system) == (chat.settings, "be kind")
        assert fresh.backend.context == chat.groups[: fresh.backend.slots]
        chat = resumed
    assert chat.groups == never.groups
    assert chat._sampling.state() == never._sampling.state()
    assert os.listdir(tmp_path) == ["talk.session"]


def test_an_answer_in_the_middle_survives_a_session(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model.backend.eos_rate = 0.0
    options = {**OPTIONS, "max_tokens": 40}
    whole = list(model.chat(**options).send("hello"))
    chat, cut = model.chat(**options), []
    for chunk in chat.send("hello"):
        cut.append(chunk)
        if len(cut) == 5:
            model.cancel()
    chat.save(tmp_path / "s")
    resumed = toy_model(tokenizer, eos_rate=0.0).resume(tmp_path / "s")
    rest = list(resumed.continue_answer(max_tokens=40 - sum(len(chunk.tokens) for chunk in cut)))
    assert [r.tokens for r in cut[:-1]] + [r.tokens for r in rest] == [r.tokens for r in whole]


def test_saving_after_something_else_used_the_model(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    chat = model.chat(max_tokens=15)
    list(chat.send("hello"))
    model.generate("quite different", max_tokens=30)
    chat.save(tmp_path / "s")
    expected = list(chat.send("on"))
    assert list(toy_model(tokenizer).resume(tmp_path / "s").send("on")) == expected


def test_an_empty_chat_can_be_saved(model: Model, tmp_path: Path) -> None:
    chat = model.chat("S", seed=1, temperature=1.0, max_tokens=5)
    chat.save(tmp_path / "s")
    assert list(model.resume(tmp_path / "s").send("x")) == list(chat.send("x"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fingerprint", "other"),
        ("position_rule", "slot"),
        ("backend", "onnx"),
        ("precision", "int4"),
        ("kv_bytes_per_slot", 50),
    ],
)
def test_a_session_of_another_model_is_refused(
    name: str, value: Any, saved: Path, tokenizer: Tokenizer
) -> None:
    with pytest.raises(SessionError, match=f"another model: its {name} is"):
        toy_model(tokenizer, {name: value}).resume(saved)


def test_a_session_too_large_for_this_cache_is_refused(
    model: Model, saved: Path, tokenizer: Tokenizer
) -> None:
    used = model._engine.ledger.slots
    small = toy_model(tokenizer, {"cache_slots": 10})
    with pytest.raises(SessionError, match=f"{used} slots, .* has 10: load .* larger cache_slots"):
        small.resume(saved)
    assert small.backend.slots == small._engine.ledger.slots == 0


def test_missing_and_unwritable_places(model: Model, tmp_path: Path) -> None:
    for place in (tmp_path / "missing", tmp_path, "a\0b"):
        with pytest.raises(SessionError, match=r"no session here|cannot be read"):
            model.resume(place)
    for place in (tmp_path / "no" / "folder", tmp_path, f"{tmp_path}/a\0b"):
        with pytest.raises(SessionError, match=r"cannot be written|not a regular file"):
            model.chat().save(place)
    assert os.listdir(tmp_path) == []
    for function in (model.chat().save, model.resume):
        for place in (None, 5):
            with pytest.raises(InputError, match="named by its path"):
                function(place)


class Evil:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("pwned",))


def test_other_versions_are_refused(model: Model, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    whole = saved.read_bytes()
    saved.write_bytes(whole.replace(b"session 3", b"session 4", 1))
    with pytest.raises(SessionError, match="version 4, this program reads 3: begin the conversation anew"):
        model.resume(saved)
    with saved.open("wb") as file:
        np.savez(file, header=np.array([Evil()], dtype=object))  # what version 1 was, and a pickle
    with pytest.raises(SessionError, match="version 1, this program reads 3"):
        model.resume(saved)
    assert not Path("pwned").exists()
    saved.write_bytes(whole.replace(b"session", b"diary", 1))
    with pytest.raises(SessionError, match="not a session"):
        model.resume(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [[10**9]]},
        {"groups": [[]]},
        {"groups": [[1, 2, 3, 4, 5]]},
        {"slots": 10**9},
        {"slots": -1},
        {"slots": 1},
        {"model": {}},
        {"messages": [["user"]]},
        {"system": 5},
        {"options": {"temperature": "hot", "logit_bias": {}}},
        {"options": {"logit_bias": {"x": 1}}},
        {"messages": [], "unfinished": True},
        {"sampler": {}},
        {"sampler": {"seed": 1, "draws": 0, "answer": [-1], "prompt": []}},
        {"text": {"bytes": "zz", "held": "", "strip": False}},
    ],
)
def test_impossible_headers_are_refused(model: Model, saved: Path, change: dict[str, Any]) -> None:
    rewritten(saved, lambda header, arrays: header.update(change))
    with pytest.raises(SessionError, match=str(saved)):
        model.resume(saved)
    assert model.backend.slots == model._engine.ledger.slots
    assert model.generate("still fine", max_tokens=2).tokens


def test_too_little_memory_is_not_called_damage(
    model: Model, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(SessionError, match="not enough memory"):
        model.resume(saved)


def test_options_may_be_numpy_numbers(model: Model, tmp_path: Path) -> None:
    chat = model.chat(
        force_group=np.int64(2), max_tokens=np.int32(4), temperature=np.float32(0.5), seed=np.int64(3)
    )
    list(chat.send("hello"))
    chat.save(tmp_path / "session")
    assert model.resume(tmp_path / "session").settings == chat.settings


def test_every_truncation_is_refused(model: Model, saved: Path) -> None:
    data = saved.read_bytes()
    for size in range(0, len(data), 37):
        saved.write_bytes(data[:size])
        with pytest.raises(SessionError, match="truncated or damaged"):
            model.resume(saved)


def test_a_flipped_byte_is_refused_or_harmless(model: Model, saved: Path) -> None:
    data, random = saved.read_bytes(), np.random.default_rng(0)
    whole: Chat = model.resume(saved)
    refused = 0
    for place in random.integers(0, len(data), 150):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(random.integers(8))
        saved.write_bytes(flipped)
        try:
            chat = model.resume(saved)
        except SessionError:
            refused += 1
            continue
        assert (chat.groups, chat.settings, chat.messages) == (whole.groups, whole.settings, whole.messages)
        assert model.backend.context == whole.groups[: model.backend.slots]
    assert refused > 100
