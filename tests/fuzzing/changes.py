"""Changes to a file's bytes, as plain JSON, so that a finding can be kept and tried again.

Places are shares of the length: what was found in one build of a file is near the same place of the next.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

Change = dict[str, Any]

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, -(2**64), 0.5, 1e308, "", "x", "../../etc/passwd", "\x00"),
    *("\x1b[2J", "\ud800", "a" * 5000, [], {}, [[]], [0] * 3000, {"a": {"b": {"c": 1}}}, "NaN", "int4"),
)


def draw(pick: random.Random, *, structured: bool) -> list[Change]:
    return [_draw(pick, structured) for _ in range(pick.choice((1, 1, 1, 2, 4)))]


def _draw(pick: random.Random, structured: bool) -> Change:
    at = pick.random()
    if structured and pick.random() < 0.7:
        value = pick.choice([{"value": pick.randrange(len(ODD))}, {"like": pick.random()}, {}])
        return {"kind": "node", "at": at, **value}
    kind = pick.choice(("cut", "bit", "bytes", "drop", "repeat"))
    if kind == "bit":
        return {"kind": kind, "at": at, "bit": pick.randrange(8)}
    if kind == "bytes":
        return {"kind": kind, "at": at, "hex": pick.choice((pick.randbytes(8).hex(), "00" * 16, "ff" * 8))}
    if kind in ("drop", "repeat"):
        return {"kind": kind, "at": at, "length": 2 ** pick.randrange(12)}
    return {"kind": kind, "at": at}


def apply(data: bytes, changes: list[Change]) -> bytes:
    for change in changes:
        data = _apply(data, change)
    return data


def _apply(data: bytes, change: Change) -> bytes:
    if change["kind"] == "node":
        return _node(data, change)
    at = min(int(change["at"] * len(data)), max(0, len(data) - 1))
    match change["kind"]:
        case "cut":
            return data[:at]
        case "bit":
            return data[:at] + bytes(byte ^ 1 << change["bit"] for byte in data[at : at + 1]) + data[at + 1 :]
        case "bytes":
            new = bytes.fromhex(change["hex"])
            return data[:at] + new + data[at + len(new) :]
        case "drop":
            return data[:at] + data[at + change["length"] :]
        case "repeat":
            return data[: at + change["length"]] + data[at:]
    raise ValueError(f"unknown change {change['kind']}")


def _node(data: bytes, change: Change) -> bytes:
    """One value anywhere in a JSON text: another value, a copy of one from elsewhere in it, or gone."""
    try:
        tree = json.loads(data)
    except ValueError:  # an earlier change to its bytes
        return data
    nodes = list(_nodes(tree))
    if not nodes:
        return data
    parent, key = nodes[int(change["at"] * len(nodes))]
    if "value" in change:
        parent[key] = ODD[change["value"]]
    elif "like" in change:
        other, name = nodes[int(change["like"] * len(nodes))]
        parent[key] = json.loads(json.dumps(other[name]))
    else:
        del parent[key]
    return json.dumps(tree).encode()


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key or index) of every value; of long lists the beginning, or they would be all of it."""
    keys = (
        list(tree) if isinstance(tree, dict) else range(min(len(tree), 8)) if isinstance(tree, list) else ()
    )
    for key in keys:
        yield tree, key
        yield from _nodes(tree[key])
