"""Values that callers pass, checked in one place: numbers in a range, text that has a UTF-8 form."""

from __future__ import annotations

from typing import Any

import numpy as np

from hamburger_edge.errors import InputError


def number_in(name: str, value: Any, low: float, high: float, *, above: bool = False) -> float:
    """`value` as a finite float in [low, high], or in (low, high] when `above`."""
    numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not numeric or not (low < value if above else low <= value) or not value <= high:
        raise InputError(f"{name} must be {'above' if above else 'from'} {low:g} to {high:g}, got {value!r}")
    return float(value)


def whole_in(name: str, value: Any, low: int, high: int) -> int:
    """`value` as an int in low..high."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        limit = f"at most {high}" if high < 2**31 else "not so large"
        raise InputError(f"{name} must be a whole number, {low} or more and {limit}, got {value!r}")
    return int(value)


def check_text(text: str | bytes) -> str:
    """Text that has a UTF-8 form."""
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8")
        if isinstance(text, str):
            text.encode("utf-8")
            return text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(f"the text is not valid UTF-8 ({error.reason} at {error.start})") from error
    raise InputError(f"expected text, got {type(text).__name__}")
