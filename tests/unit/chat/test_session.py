"""A chat that is saved goes on as if it had never stopped; a file that is not one is refused."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.toys.chat_models import TURNS, toy_model

from hamburger_edge.chat import session_file
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError, SessionError
from hamburger_edge.model import Model

# every kind of them; numbers may be numpy's
OPTIONS: dict[str, Any] = {
    "confidence": np.float32(0.5),
    "temperature": 0.9,
    "seed": np.int64(11),
    "top_p": 0.95,
    "frequency_penalty": 0.2,
    "logit_bias": {40: 1.5, 41: -100},
    "stop": ["zq"],
    "max_tokens": np.int32(25),
}
ANY = session_file.SessionLimits(1 << 24, 1 << 24)


@pytest.fixture
def saved(model: Model, tmp_path: Path) -> Path:
    """A conversation of one turn."""
    chat = model.chat(**{**OPTIONS, "max_tokens": 6})
    list(chat.send("hello"))
    chat.save(tmp_path / "s")
    return tmp_path / "s"


@pytest.mark.parametrize(("rule", "mode"), [("token", "merge"), ("slot", "verify")])
def test_resumed_session_continues_bit_for_bit(
    tokenizer: Tokenizer, tmp_path: Path, rule: str, mode: str
) -> None:
    shape = {"position_rule": rule}
    never = toy_model(tokenizer, shape).chat("be kind", mode=mode, **OPTIONS)
    straight = [list(never.send(turn)) for turn in TURNS]
    path = tmp_path / "talk.session"
    chat = toy_model(tokenizer, shape).chat("be kind", mode=mode, **OPTIONS)
    for turn, expected in zip(TURNS, straight, strict=True):
        chat.save(path)  # before the first turn, too
        fresh = toy_model(tokenizer, shape)
        resumed = fresh.resume(path)
        assert (resumed.groups, resumed.messages) == (chat.groups, chat.messages)
        assert (resumed.settings, resumed.system) == (chat.settings, "be kind")
        assert fresh.backend.context == chat.groups[: fresh.backend.slots]
        chat = resumed
        assert list(chat.send(turn)) == expected
    assert chat.groups == never.groups
    assert chat._sampling.state() == never._sampling.state()
    assert os.listdir(tmp_path) == ["talk.session"]


def test_session_keeps_an_unfinished_answer(model: Model, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model.backend.eos_rate = 0.0
    options = {**OPTIONS, "max_tokens": 40}
    whole = model.chat(**options).send("hello").result()
    chat, cut = model.chat(**options), []
    for chunk in chat.send("hello"):
        cut += chunk.tokens
        if len(cut) > 5:
            model.cancel()
    chat.save(tmp_path / "s")
    resumed = toy_model(tokenizer, eos_rate=0.0).resume(tmp_path / "s")
    rest = resumed.continue_answer(max_tokens=40 - len(cut)).result()
    assert cut + rest.tokens == whole.tokens


def test_session_is_saved_after_another_use_of_the_model(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    chat = model.chat(max_tokens=15)
    list(chat.send("hello"))
    model.generate("quite different", max_tokens=30)
    chat.save(tmp_path / "s")
    expected = list(chat.send("on"))
    assert list(toy_model(tokenizer).resume(tmp_path / "s").send("on")) == expected


def test_slots_of_a_session_are_reused_for_its_conversation_only(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """A forged session may hold any slots: they must not be used for other prompts."""
    chat = model.chat(max_tokens=9)
    list(chat.send("hello " * 9))
    chat.save(tmp_path / "s")
    said = [token for group in chat.groups[:-1] for token in group]
    fresh = toy_model(tokenizer)
    fresh.resume(tmp_path / "s")
    assert fresh.generate([*said, 5], max_tokens=3).stats.reused_tokens == 0
    assert fresh.generate([*said, 5, 6], max_tokens=3).stats.reused_tokens >= len(said)  # computed here
    resumed = fresh.resume(tmp_path / "s")
    new = fresh.chat(max_tokens=9)
    list(new.send("hello " * 9))
    assert new.stats.reused_tokens == 0
    resumed = fresh.resume(tmp_path / "s")
    list(resumed.send("x"))
    assert resumed.stats.reused_tokens >= len(said)
    resumed.save(tmp_path / "t")
    assert fresh.backend.slots
    new.save(tmp_path / "u")  # of another owner: nothing of the cache is its own
    assert fresh.backend.slots == 0


# Refused


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


def test_a_session_too_large_for_this_cache_is_refused(saved: Path, tokenizer: Tokenizer) -> None:
    small = toy_model(tokenizer, {"cache_slots": 10})
    with pytest.raises(SessionError, match="cache here has 10"):
        small.resume(saved)
    assert small.backend.slots == small.inference.engine.ledger.slots == 0


def test_missing_and_unwritable_paths_are_errors(model: Model, tmp_path: Path) -> None:
    for place in (tmp_path / "missing", tmp_path, "a\0b"):
        with pytest.raises(SessionError, match=r"no session here|cannot be read"):
            model.resume(place)
    for place in (tmp_path / "no" / "folder", tmp_path, f"{tmp_path}/a\0b"):
        with pytest.raises(SessionError, match=r"cannot be written|not a regular file"):
            model.chat().save(place)
    assert os.listdir(tmp_path) == []
    with pytest.raises(InputError, match="named by its path"):
        model.resume(5)  # type: ignore[arg-type]


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither")
def test_pipe_is_refused_and_only_the_owner_can_read_a_session(
    model: Model, saved: Path, tmp_path: Path
) -> None:
    assert saved.stat().st_mode & 0o777 == 0o600
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SessionError, match="cannot be read"):
            model.resume(path)


@pytest.mark.parametrize(
    ("begins", "named"),
    [
        (b"hamburger-edge session 4\n", "version 4, this program reads 3: begin the conversation anew"),
        (b"PK\3\4", "version 1, this program reads 3"),  # a zip file, with pickles
        (b"hamburger-edge diary 3\n", "not a session"),
    ],
)
def test_other_versions_are_refused(begins: bytes, named: str, model: Model, saved: Path) -> None:
    saved.write_bytes(saved.read_bytes().replace(b"hamburger-edge session 3\n", begins, 1))
    with pytest.raises(SessionError, match=named):
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
    header, arrays = session_file.read(saved, ANY)
    session_file.write(saved, {**header, **change}, arrays, ANY)
    with pytest.raises(SessionError, match=str(saved)):
        model.resume(saved)
    assert model.backend.slots == model.inference.engine.ledger.slots
    assert model.generate("still fine", max_tokens=2).tokens


def test_session_with_former_options_continues(model: Model, saved: Path) -> None:
    header, snapshot = session_file.read(saved, ANY)
    header["options"] |= {"forced": "split", "force_group": None}
    session_file.write(saved, header, snapshot, ANY)
    assert model.resume(saved).send("and more", max_tokens=2).result().tokens


def test_arrays_are_bounded_before_they_are_allocated(saved: Path) -> None:
    """Overlapping ones, too: they have to fill the file, each byte once."""
    header, _ = session_file.read(saved, ANY)
    for described in (
        [["sizes", "int32", [1 << 62]]],
        [["sizes", "float64", [1]]],
        [["sizes", "int32", [-1]]],
        [["sizes", "int32", [0] * 9]],
        [["sizes", "int32", [1]]],
        [["sizes", "int32", [2]]] * 2,
        [["sizes", "int32", [2]], ["tokens", "int32", [2]]],
    ):
        text = json.dumps({**header, "arrays": described}).encode()
        content = b"hamburger-edge session 3\n" + len(text).to_bytes(8, "little") + text + bytes(8)
        saved.write_bytes(content + hashlib.sha256(content).digest())
        with pytest.raises(ValueError, match="array"):
            session_file.read(saved, ANY)


def test_files_and_headers_larger_than_any_of_this_model_are_not_read(model: Model, saved: Path) -> None:
    with pytest.raises(ValueError, match="a header of"):
        session_file.read(saved, ANY._replace(header=10))
    with saved.open("ab") as file:
        file.truncate(1 << 34)  # without taking space
    with pytest.raises(SessionError, match=r"17179869184 bytes, of which at most \d+ are read"):
        model.resume(saved)


def test_too_little_memory_is_not_reported_as_damage(
    model: Model, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(SessionError, match="not enough memory"):
        model.resume(saved)


def test_truncated_and_flipped_bytes_are_refused(model: Model, saved: Path) -> None:
    data, random = saved.read_bytes(), np.random.default_rng(0)
    for size in range(0, len(data), 37):
        saved.write_bytes(data[:size])
        with pytest.raises(SessionError, match="truncated or damaged"):
            model.resume(saved)
    for place in random.integers(0, len(data), 150):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(random.integers(8))
        saved.write_bytes(flipped)
        with pytest.raises(SessionError):
            model.resume(saved)
