"""A small catalogue of a home, and calls of it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hamburger_edge.calls.catalogue import read_catalogue
from hamburger_edge.calls.parameters import LARGEST_NUMBER

STRING: dict[str, Any] = {"type": "string"}


def described(required: tuple[str, ...], /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def function(name: str, required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": described(required, **properties)}}


AGE = {"type": "integer", "minimum": 0, "maximum": 120}
GUEST = described(("name",), age=AGE, name=STRING, tags={"type": "array", "items": STRING})
SEAT = described((), row={"enum": ["a)", "b,;"]}, number={"type": "number"})
PLACE = described(
    ("room", "seats"), room={"type": ["string", "null"]}, seats={"type": "array", "items": SEAT}
)
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
    function(
        "AddEvent", ("title", "guests"), title=STRING, guests={"type": "array", "items": GUEST}, place=PLACE
    ),
]
CATALOGUE = read_catalogue(TOOLS)
LIGHT = {"name": "LightSet", "arguments": {"area": "kitchen", "brightness": 50}}

texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t\r;,\\[]() ")
)
numbers = st.integers(-LARGEST_NUMBER, LARGEST_NUMBER) | st.integers(-(10**12), 10**12).map(
    lambda n: n / 1000
)


def optional(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


_GUESTS = st.fixed_dictionaries(
    {"name": texts}, optional={"age": st.integers(0, 120), "tags": st.lists(texts)}
)
_SEATS = st.lists(optional(row=st.sampled_from(["a)", "b,;"]), number=numbers), max_size=4)
_ARGUMENTS = {
    "AddEvent": st.fixed_dictionaries(
        {"title": texts, "guests": st.lists(_GUESTS, max_size=4)},
        optional={"place": st.fixed_dictionaries({"room": texts | st.none(), "seats": _SEATS})},
    ),
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
