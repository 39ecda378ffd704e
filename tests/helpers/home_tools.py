"""A small catalogue of a home, and calls of it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hamburger_edge.calls.catalogue import read_catalogue
from hamburger_edge.calls.parameters import LARGEST_NUMBER

STRING: dict[str, Any] = {"type": "string"}


def function(name: str, required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    function(
        "TurnOn", area=STRING, name=STRING, domain={"type": "string", "enum": ["light", "fan", "light fan"]}
    ),
    function("TurnOnAll"),
    function(
        "LightSet", ("brightness",), area=STRING, brightness={"type": "integer", "minimum": 0, "maximum": 100}
    ),
    function("AddItems", ("items",), items={"type": "array", "items": STRING}, urgent={"type": "boolean"}),
    function("Climate", ("degrees", "room"), room={"type": ["string", "null"]}, degrees={"type": "number"}),
    function("Days", ("days",), days={"type": "array", "items": {"enum": ["mon", "tue"]}, "minItems": 1}),
    function(
        "Levels", (), levels={"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 317}}
    ),
]
CATALOGUE = read_catalogue(TOOLS)
LIGHT = {"name": "LightSet", "arguments": {"area": "kitchen", "brightness": 50}}

texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t\r;,\\[] ")
)
numbers = st.integers(-LARGEST_NUMBER, LARGEST_NUMBER) | st.integers(-(10**12), 10**12).map(
    lambda n: n / 1000
)


def optional(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


_ARGUMENTS = {
    "TurnOn": optional(area=texts, name=texts, domain=st.sampled_from(["light", "fan", "light fan"])),
    "TurnOnAll": st.just({}),
    "LightSet": st.fixed_dictionaries({"brightness": st.integers(0, 100)}, optional={"area": texts}),
    "AddItems": st.fixed_dictionaries({"items": st.lists(texts)}, optional={"urgent": st.booleans()}),
    "Climate": st.fixed_dictionaries({"degrees": numbers, "room": texts | st.none()}),
    "Days": st.fixed_dictionaries({"days": st.lists(st.sampled_from(["mon", "tue"]), min_size=1)}),
    "Levels": optional(levels=st.lists(st.integers(-5, 317))),
}
calls = st.lists(
    st.sampled_from(sorted(_ARGUMENTS)).flatmap(
        lambda name: st.fixed_dictionaries({"name": st.just(name), "arguments": _ARGUMENTS[name]})
    ),
    max_size=3,
)
