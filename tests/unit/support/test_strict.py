"""The reader of our own files: each rule once, by its type and the place that it names."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.support import strict


@dataclass(frozen=True)
class Part:
    size: int
    shares: tuple[float, ...] = ()
    kind: Literal["one", "two"] = "one"


@dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...]
    most: int | None = None
    settings: dict[str, int] | None = None


GOOD: dict[str, Any] = {"name": "n", "parts": [{"size": 3, "shares": [1, 0.5]}]}


def test_valid_value_is_read() -> None:
    read = strict.from_mapping(Whole, GOOD | {"most": None, "settings": {"a": 1}}, "here")
    assert read == Whole("n", (Part(3, (1.0, 0.5)),), None, {"a": 1})
    assert isinstance(read.parts[0].shares[0], float)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (GOOD | {"colour": 1}, "here: unknown key 'colour' (known: name, parts"),
        ({"name": "n"}, "here: missing key 'parts'"),
        (GOOD | {"name": 3}, "here.name: expected str, got 3"),
        (GOOD | {"parts": 3}, "here.parts: expected a list, got 3"),
        (GOOD | {"parts": [7]}, "here.parts[0]: expected a table"),
        (GOOD | {"parts": [{"size": 1}, {"size": True}]}, "here.parts[1].size: expected int, got True"),
        (GOOD | {"parts": [{"size": 1, "shares": [True]}]}, "here.parts[0].shares[0]: expected float"),
        (
            GOOD | {"parts": [{"size": 1, "kind": ["one"]}]},
            "here.parts[0].kind: expected one of 'one', 'two'",
        ),
        (GOOD | {"most": 1.5}, "here.most: expected int, got 1.5"),
        (GOOD | {"settings": []}, "here.settings: expected dict"),
    ],
)
def test_wrong_value_error_names_its_path(data: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(named)}"):
        strict.from_mapping(Whole, data, "here")


def test_file_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for read in (strict.read_json, strict.read_toml, strict.read_lines):
        with pytest.raises((ConfigError, InputError), match="x: cannot be read"):
            read(path)
    for content in (b"{", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="x: not valid JSON"):
            strict.read_json(path)
        with pytest.raises(ConfigError, match="x: not valid TOML"):
            strict.read_toml(path)


def test_lines_are_read_strictly(tmp_path: Path) -> None:
    """JSON may hold other characters that end a line elsewhere."""
    path, packed = tmp_path / "x", tmp_path / "x.gz"
    text = '\r\n"one\u2028two"\n\n"three\x85four"'.encode()
    path.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    for file in (path, packed):
        places, lines = zip(*strict.read_lines(file), strict=True)
        assert places == (f"{file}, line 2", f"{file}, line 4")
        assert [strict.decode_line(line, "x") for line in lines] == ["one\u2028two", "three\x85four"]
    path.write_bytes(b"\xff\xfe")
    packed.write_bytes(gzip.compress(text)[:-9])
    for file, told in ((path, "not UTF-8"), (packed, r"x\.gz: not a whole gzip file")):
        with pytest.raises(InputError, match=told):
            strict.read_lines(file)
    for line in ("{", "[" * 100_000):
        with pytest.raises(InputError, match=r"^line 7: not JSON"):
            strict.decode_line(line, "line 7")


def test_objects_are_read_strictly() -> None:
    strict.only_keys({"a": 1}, ("a", "b"), "here")
    for data, named in (([1], "here: expected an object with a, b"), ({"c": 1}, "here: unknown key 'c'")):
        with pytest.raises(InputError, match=named):
            strict.only_keys(data, ("a", "b"), "here")
    with pytest.raises(ValueError, match="key 'a' stands there twice"):
        strict.unique_keys([("a", 1), ("b", 2), ("a", 3)])
    assert strict.canonical_json('{"b": 1, "a": [2.0]}') == strict.canonical_json('{"a":[2],"b":1.0}')
    assert strict.canonical_json("1") != strict.canonical_json("true")
    assert strict.canonical_json("{") is None
