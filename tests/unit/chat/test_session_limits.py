"""What a session file may hold, and for which conversation its slots are used."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from chat_models import toy_model
from session_files import ANY

from hamburger_edge.chat import session_file
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import SessionError
from hamburger_edge.model import Model


def test_arrays_are_bounded_before_they_are_allocated(model: Model, saved: Path) -> None:
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
        digest = hashlib.sha256(content).digest()
        saved.write_bytes(content + digest)
        with pytest.raises(ValueError, match="array"):
            session_file.read(saved, ANY)
        with pytest.raises(SessionError, match="damaged"):
            model.resume(saved)


def test_a_header_larger_than_any_of_this_model_is_not_parsed(saved: Path) -> None:
    header, _ = session_file.read(saved, ANY)
    assert header["messages"]
    with pytest.raises(ValueError, match="a header of"):
        session_file.read(saved, ANY._replace(header=10))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_only_its_owner_can_read_it(saved: Path) -> None:
    assert saved.stat().st_mode & 0o777 == 0o600


def test_a_file_larger_than_any_session_of_this_model_is_not_read(model: Model, saved: Path) -> None:
    with saved.open("ab") as file:
        file.truncate(1 << 34)  # without taking space
    with pytest.raises(SessionError, match=r"17179869184 bytes, of which at most \d+ are read"):
        model.resume(saved)


@pytest.mark.skipif(os.name == "nt", reason="there are none")
def test_only_regular_files_are_opened(model: Model, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SessionError, match="cannot be read"):
            model.resume(path)  # and not waited for


def test_slots_of_a_session_are_reused_for_its_own_conversation_alone(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Whoever made it up could have put anything there: it must not answer other prompts."""
    chat = model.chat(max_tokens=9)
    list(chat.send("hello " * 9))
    chat.save(tmp_path / "s")
    said = [token for group in chat.groups[:-1] for token in group]
    fresh = toy_model(tokenizer)
    resumed = fresh.resume(tmp_path / "s")
    other = fresh.generate([*said, 5], max_tokens=3)
    assert other.stats.reused_tokens == 0
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
