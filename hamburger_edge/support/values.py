"""Checks of values that callers pass: numbers in a range, names of a list, text that UTF-8 can encode.

Errors format refused values with `safe_repr`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Container
from typing import Any

import numpy as np

from hamburger_edge.errors import InputError, one_line

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def safe_repr(value: object) -> str:
    """Format any value for an error: one printable line of at most 80 characters."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # raised by the object's own __repr__, or for an int of too many digits
        text = f"one of type {type(value).__name__}"
    return one_line(text, 80)


def among(value: object, known: Container[str]) -> bool:
    """Return whether `value` is one of these names.

    Any value is safe, also an unhashable one or an array, whose comparison has no single truth value.
    """
    return isinstance(value, str) and value in known


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is a bool; refuse other truthy or falsy values, such as 1."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {safe_repr(value)}")
    return value


def number_in(name: str, value: Any, low: float, high: float, *, above: bool = False) -> float:
    """Return `value` as a finite float in [low, high], or in (low, high] if `above`."""
    numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not numeric or not (low < value if above else low <= value) or not value <= high:
        raise InputError(
            f"{name} must be {'above' if above else 'from'} {low:g} to {high:g}, got {safe_repr(value)}"
        )
    return float(value)


def whole_in(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int in [low, high]."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        limit = f"at most {high}" if high < 2**31 else "not so large"
        raise InputError(f"{name} must be a whole number, {low} or more and {limit}, got {safe_repr(value)}")
    return int(value)


def check_text(text: str | bytes, where: str = "") -> str:
    """Return the text as str; refuse bytes that are not UTF-8 and text that UTF-8 cannot encode.

    An error begins with `where`, the text's location.
    """
    where = where and f"{where}: "
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8")
        if isinstance(text, str):
            text.encode("utf-8")
            return text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(f"{where}the text is not valid UTF-8 ({error.reason} at {error.start})") from error
    raise InputError(f"{where}expected text, got {type(text).__name__}")
