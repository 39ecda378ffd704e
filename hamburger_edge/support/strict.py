"""Strict reading of our own files: the error names the first unknown, missing or wrongly typed key.

Bundle manifests, checkpoint configurations and training recipes are read with it.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import types
import typing
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.support.files import TEXT, read_regular
from hamburger_edge.support.values import safe_repr


def from_mapping(cls: type[Any], data: Any, where: str) -> Any:
    """Build a dataclass from decoded JSON or TOML; check every key and type, nested ones included."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: expected a table of settings, got {type(data).__name__}")
    hints, known = _fields_of(cls)  # type: ignore[arg-type]  # a class is hashable
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError(f"{where}: unknown key {safe_repr(unknown[0])} (known: {', '.join(known)})")
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = _convert(hints[name], data[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: missing key {name!r}")
    return cls(**values)


@functools.cache
def _fields_of(cls: type[Any]) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    """Return the types and fields by name. A manifest has hundreds of tensors of one class."""
    return typing.get_type_hints(cls), {field.name: field for field in dataclasses.fields(cls)}


def _convert(hint: Any, value: Any, where: str) -> Any:
    if type(value) is hint:  # most values
        return value
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        [hint] = [a for a in args if a is not type(None)]
        return _convert(hint, value, where)
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast(type[Any], hint), value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, got {safe_repr(value)}")
        if all(type(item) is args[0] for item in value):
            return tuple(value)
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Literal:
        if value not in args:
            raise ConfigError(
                f"{where}: expected one of {', '.join(map(repr, args))}, got {safe_repr(value)}"
            )
        return value
    if origin is dict:  # the caller checks the contents
        hint = dict
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{where}: expected {hint.__name__}, got {safe_repr(value)}")
    return value


def read_json(path: str | PathLike[str]) -> Any:
    """Decode a JSON file, or raise a ConfigError naming it."""
    try:
        return parse_json(read_regular(path), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error


def parse_json(data: bytes, where: str) -> Any:
    """Decode the contents of a JSON file, or raise a ConfigError naming it."""
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid JSON ({error})") from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, as a hook of `json.loads`: parsers disagree on the value to keep."""
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {safe_repr(twice)} stands there twice")
    return table


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """Decode a TOML file, or raise a ConfigError naming it."""
    import tomllib

    try:
        return tomllib.loads(read_regular(path, limit=1 << 20).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error


def decode_line(line: str, where: str) -> Any:
    """Decode one line of JSON, or raise an InputError with its location."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from error


def canonical_json(text: str) -> str | None:
    """Return a canonical form of a JSON value, or None if it is not JSON.

    The numbers 1 and 1.0 have the same form; true has another.
    """
    try:
        return json.dumps(json.loads(text, parse_int=float), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def only_keys(data: Any, known: Sequence[str], where: str) -> None:
    """Raise an InputError unless `data` is an object without unknown keys."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected an object with {', '.join(known)}, got {safe_repr(data)}")
    if unknown := sorted(set(data) - set(known)):
        raise InputError(f"{where}: unknown key {safe_repr(unknown[0])} (known: {', '.join(known)})")


def read_lines(path: str | PathLike[str]) -> list[tuple[str, str]]:
    """Return (location for errors, line) for each non-blank line of a .jsonl or .jsonl.gz file.

    Only a line feed ends a line: JSON strings may contain the other line separators of `str.splitlines`.
    """
    import gzip
    import zlib

    try:
        content = read_regular(path)
        if str(path).endswith(".gz"):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(TEXT + 1)
        if len(content) > TEXT:
            raise InputError(f"{path}: more than {TEXT >> 20} MiB of lines: divide the file")
        lines = content.decode("utf-8").split("\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file: get it again") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): name a file that can") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    return [(f"{path}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
