"""Whether more text can make the beginning of an answer right."""

from __future__ import annotations

import json

SPELLED = 2  # JSON of the same value has at most this many times the characters: 1.0 for 1, escapes ...
SPARE = 16  # ... and a few more
HALF, HALVES = "\ufffd", 3  # the text of an unfinished character is at most so many of these


def may_become_right(judge: str, begun: str, expected: str) -> bool:
    """Return whether an answer that begins with `begun` may still be right under this judge.

    The judge "distance" and commands give parts of a score: under them every answer may.
    """
    begun = (begun[:-HALVES] + begun[-HALVES:].rstrip(HALF)).lstrip()
    expected = expected.strip()
    if judge in ("exact", "calls"):
        return expected.startswith(begun) or begun.rstrip() == expected
    if judge == "fields":
        return _may_become_equal(begun, expected)
    return True


def _may_become_equal(begun: str, expected: str) -> bool:
    """Return whether JSON that begins with `begun` may have the value of the JSON `expected`."""
    try:
        escaped = json.dumps(json.loads(expected))
    except (ValueError, RecursionError):
        return False  # nothing equals what is no JSON
    if _visible(begun) > SPELLED * max(_visible(escaped), _visible(expected)) + SPARE:
        return False
    if not begun or expected[0] not in '{["':
        return True
    if begun[0] != expected[0]:
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(begun)
    except (ValueError, RecursionError):
        return True  # unfinished
    return not begun[end:].strip()


def _visible(text: str) -> int:
    """Return the number of characters without white space, which JSON may have any amount of."""
    return sum(map(len, text.split()))
