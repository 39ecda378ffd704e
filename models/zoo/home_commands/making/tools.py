"""The functions of a home as tools in OpenAI's form, of the package's intents, lists and templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hassil.intents import TextSlotList

from hamburger_edge.models.zoo.home_commands.making.templates import Template, Templates, read_descriptions

PERCENT = {"type": "integer", "minimum": 0, "maximum": 100}
COUNT = {"type": "integer", "minimum": 1, "maximum": 999}
KELVIN = {"type": "integer", "minimum": 1000, "maximum": 10000}
DEGREES = {"type": "number", "minimum": 0, "maximum": 100}
STEP = {"enum": ["up", "down", *range(-100, 101)]}  # a word, or percent
TYPES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("brightness", "percentage", "position", "volume_level"), PERCENT),
    **dict.fromkeys(("hours", "minutes", "seconds", "start_hours", "start_minutes", "start_seconds"), COUNT),
    "volume_step": STEP,
}
LISTS = {
    "color": "color",
    "fan_mode": "fan_mode",
    "media_class": "media_class",
    "device_class": "cover_classes",
}
UNUSED = ("response",)  # slots that no template fills
OPTIONAL = ("area",)  # without it: the room of the speaker


def tools(templates: Templates) -> list[dict[str, Any]]:
    """Return a tool for each intent, its parameters in the order of the package."""
    descriptions = read_descriptions()
    return [tool(intent, descriptions[intent], templates) for intent in templates.package]


def tool(intent: str, description: Mapping[str, Any], templates: Templates) -> dict[str, Any]:
    slots = {name: slot for name, slot in description.get("slots", {}).items() if name not in UNUSED}
    sources = (*templates.package[intent], *templates.phrases.get(intent, ()))
    parameters = {
        "type": "object",
        "properties": {
            name: {**schema(intent, name, sources, templates), "description": slot["description"]}
            for name, slot in slots.items()
        },
        "required": [name for name, slot in slots.items() if slot.get("required") and name not in OPTIONAL],
        "additionalProperties": False,
    }
    function = {"name": intent, "description": description["description"], "parameters": parameters}
    return {"type": "function", "function": function}


def schema(intent: str, slot: str, sources: Iterable[Template], templates: Templates) -> dict[str, Any]:
    if slot == "temperature":
        return dict(KELVIN if intent == "HassLightSet" else DEGREES)
    fixed = sorted({source.slots[slot] for source in sources if slot in source.slots})
    if slot in LISTS:
        values = templates.lists[LISTS[slot]]
        assert isinstance(values, TextSlotList)
        choices = dict.fromkeys(value.value_out for value in values.values)
        return {"type": "string", "enum": [*choices, *(value for value in fixed if value not in choices)]}
    if slot == "domain" and fixed:
        return {"type": "string", "enum": fixed}
    return dict(TYPES.get(slot, {"type": "string"}))
