"""Dates and times in JSON schemas, as regular expressions.

llguidance's patterns allow the year 0000, the 29th of February in every year and a second 60. Python's
`date.fromisoformat` and JavaScript's `Date` reject these. The expressions here match RFC 3339 with an
upper-case T and Z, years 0001 to 9999, the 29th of February in leap years only, and no leap seconds.
"""

from __future__ import annotations

from typing import Any

_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"  # two-digit multiples of four, except 00
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
)
_HOUR, _MINUTE = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_TIME = f"{_HOUR}:{_MINUTE}:{_MINUTE}(?:[.][0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:{_MINUTE})"

PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}


def with_pattern(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with its date or time format replaced by the pattern."""
    kind = schema.get("format")
    if not isinstance(kind, str) or kind not in PATTERNS:
        return schema
    others = {key: value for key, value in schema.items() if key != "format"}
    pattern = {"pattern": PATTERNS[kind]}
    if "pattern" not in others:
        return others | pattern
    parts = others.get("allOf")
    return others | {"allOf": [*(parts if isinstance(parts, list) else []), pattern]}
