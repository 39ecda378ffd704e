"""Check the fields of a JSON object. `Fields.end` refuses an unknown field by name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hamburger_edge.errors import InputError, one_line
from hamburger_edge.support.strict import unique_keys
from hamburger_edge.support.values import check_text, number_in, whole_in

_LONGEST_FIELD = 200  # characters of a field name in an error


class RefusedError(Exception):
    """A refused request; the response is an error in OpenAI's format. The message is one printable line."""

    def __init__(
        self,
        message: str,
        field: str | None = None,
        *,
        status: int = 400,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.field = None if field is None else one_line(field, _LONGEST_FIELD)
        self.status, self.code = status, code
        self.headers = headers or {}


def mistake() -> RefusedError:
    return RefusedError("this server made a mistake; its log says which", status=500)


def decoded(body: bytes) -> dict[str, Any]:
    """Decode a body to a JSON object. Duplicate fields, NaN and Infinity are errors."""
    try:
        data = json.loads(body.decode("utf-8"), object_pairs_hook=unique_keys, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise RefusedError(f"the body is not UTF-8 ({error.reason} at {error.start})") from error
    except RecursionError as error:
        raise RefusedError("the body has too many levels inside each other: make it flatter") from error
    except ValueError as error:
        raise RefusedError(f"the body is not valid JSON ({error}): correct it") from error
    if not isinstance(data, dict):
        raise RefusedError("the body must be a JSON object")
    return data


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


class Fields:
    """The fields of an object. As in OpenAI's API, `null` equals a missing field."""

    def __init__(self, data: Any, path: str = "") -> None:
        if not isinstance(data, dict):
            raise RefusedError(f"{path or 'the body'} must be an object", path or None)
        self._left = {name: value for name, value in data.items() if value is not None}
        self._path = path

    def path(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        return name in self._left

    def refuse(self, name: str, message: str) -> RefusedError:
        path = self.path(name)
        return RefusedError(f"{one_line(path, _LONGEST_FIELD)} {message}", path)

    def peek(self, name: str) -> Any:
        return self._left.get(name)

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def need(self, name: str) -> Any:
        if name not in self._left:
            raise self.refuse(name, "is missing")
        return self._left.pop(name)

    def text(self, name: str, *, longest: int | None = None) -> str | None:
        value = self.take(name)
        return None if value is None else self.checked_text(name, value, longest)

    def checked_text(self, name: str, value: Any, longest: int | None = None) -> str:
        if not isinstance(value, str):
            raise self.refuse(name, f"must be a text, got {_kind(value)}")
        if longest is not None and len(value) > longest:
            raise self.refuse(name, f"has {len(value)} characters, at most {longest} are taken")
        try:
            return check_text(value)
        except InputError as error:
            raise self.refuse(name, f"is not valid: {error}") from error

    def texts(self, name: str) -> None:
        """Check an object of texts and ignore it."""
        value = self.take(name)
        if value is not None:
            inner = Fields(value, self.path(name))
            for text in value:
                inner.text(text)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, f"must be true or false, got {_kind(value)}")
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        try:
            return number_in(self.path(name), value, low, high)
        except InputError as error:
            raise RefusedError(str(error), self.path(name)) from error

    def whole(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        try:
            return whole_in(self.path(name), value, low, high)
        except InputError as error:
            raise RefusedError(str(error), self.path(name)) from error

    def one_of(self, name: str, choices: Iterable[str]) -> str | None:
        value = self.take(name)
        if value is None or (isinstance(value, str) and value in choices):
            return value
        raise self.refuse(name, f"must be {' or '.join(choices)}, got {_shown(value)}")

    def items(self, name: str, limit: int) -> list[Any] | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.refuse(name, f"must be a list, got {_kind(value)}")
        if len(value) > limit:
            raise self.refuse(name, f"has {len(value)} items, at most {limit} are taken")
        return value

    def only(self, name: str, *allowed: Any) -> None:
        """Accept an unsupported field only with one of the `allowed` values."""
        value = self.take(name)
        if value is not None and not any(
            type(value) is type(choice) and value == choice for choice in allowed
        ):
            shown = " or ".join(json.dumps(choice) for choice in allowed)
            raise self.refuse(name, f"is not supported, but as {shown}" if allowed else "is not supported")

    def end(self) -> None:
        """Refuse fields that have not been taken."""
        for name in self._left:
            raise self.refuse(name, "is not supported: leave it out")


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")


def _shown(value: Any) -> str:
    return json.dumps(value)[:80]
