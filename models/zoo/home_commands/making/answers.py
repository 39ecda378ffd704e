"""Calls as a compact JSON text, and back: {"TurnOn": {"area": "kitchen", "domain": "light"}}.

One call is an object with the function's name, several are a list, and no call is {}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "Hass"  # of every intent of Home Assistant, so an answer omits it


def answer_of(calls: Sequence[Mapping[str, Any]]) -> str:
    objects = [{call["name"].removeprefix(PREFIX): call["arguments"]} for call in calls]
    return json.dumps(objects if len(objects) > 1 else dict(*objects), ensure_ascii=False)


def calls_of(answer: str) -> list[dict[str, Any]]:
    """Return the calls of an answer; ValueError if it is none."""
    parsed = json.loads(answer)
    objects = parsed if isinstance(parsed, list) else [parsed]
    if not all(isinstance(one, dict) and all(isinstance(v, dict) for v in one.values()) for one in objects):
        raise ValueError(f"{answer}: not an object of function and arguments, nor a list of them")
    return [{"name": PREFIX + name, "arguments": values} for one in objects for name, values in one.items()]


def row_of_answer(row: Mapping[str, Any]) -> dict[str, str]:
    return {"prompt": row["prompt"], "answer": answer_of(row["calls"])}
