r"""The compact form: calls as the text that a model generates.

    HassLightSet area living room; brightness 50     name, then values; an optional one after its name
    HassStartTimer 10; minutes                       required values come first, without their names
    HassTurnOn name fan                              several calls: a line each
    HassTurnOff area office
    -                                                no call

A space stands before each value, so a word has the same token in the prompt and in the answer. Arguments
follow the catalogue's order. In texts a backslash escapes `;`, `\`, line feeds, carriage returns and tabs;
in lists also `,` and a first `[`. An empty list is `[]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue, Tool
from hamburger_edge.calls.parameters import Parameter, same
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import safe_repr

NO_CALL = "-"
CALLS, ARGUMENTS, ITEMS, EMPTY_LIST = "\n", ";", ",", "[]"
ESCAPES = {"\\": "\\", ";": ";", "\n": "n", "\r": "r", "\t": "t"}
LIST_ESCAPES = {**ESCAPES, ",": ",", "[": "["}
_UNESCAPED = {letter: character for character, letter in LIST_ESCAPES.items()}


@dataclass(frozen=True)
class Call:
    name: str
    arguments: Any  # a dictionary; an instance of the tool's Pydantic model if that was given
    certainty: float | None = None  # of the whole answer; None: not measured for this model


def checked_calls(calls: Any, catalogue: Catalogue, where: str) -> list[Call]:
    """Check calls as examples give them, {"name": ..., "arguments": {...}}, against their tools."""
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise InputError(f"{where} must be a list of calls, got {safe_repr(calls)}")
    checked = []
    for index, call in enumerate(calls):
        place = f"{where}[{index}]"
        if not isinstance(call, dict) or not call.keys() <= {"name", "arguments"} or "name" not in call:
            raise InputError(f'{place} must be {{"name": ..., "arguments": {{...}}}}, got {safe_repr(call)}')
        tool = catalogue.tool(call["name"], f"{place}.name")
        checked.append(Call(tool.name, tool.checked(call.get("arguments", {}), f"{place}.arguments")))
    return checked


def encode(calls: Sequence[Call], catalogue: Catalogue) -> str:
    """Return checked calls as text."""
    if not calls:
        return NO_CALL
    return CALLS.join(_line(call, catalogue.tool(call.name, "calls")) for call in calls)


def parse(text: str, catalogue: Catalogue, certainty: float | None = None) -> list[Call]:
    """Return the calls of an answer; raise InputError if it is not in the compact form."""
    if text == NO_CALL:
        return []
    return [_parsed(line, catalogue, certainty) for line in text.split(CALLS)]


def escaped(text: str, *, in_list: bool) -> str:
    if not in_list:
        return "".join("\\" + ESCAPES[c] if c in ESCAPES else c for c in text)
    inner = "".join("\\" + LIST_ESCAPES[c] if c in LIST_ESCAPES and c != "[" else c for c in text)
    return "\\" + inner if inner.startswith("[") else inner


def value_text(value: Any, parameter: Parameter) -> str:
    """Return the text of a checked value, or of an item of a list."""
    if parameter.kind == "choice":
        text = next(text for text, choice in parameter.choices.items() if same(choice, value))
        return escaped(text, in_list=parameter.is_list)
    if parameter.kind == "string":
        return escaped(value, in_list=parameter.is_list)
    return str(value) if isinstance(value, int) else format(Decimal(repr(value)), "f")


def _line(call: Call, tool: Tool) -> str:
    texts = []
    for parameter in tool.in_text:
        value = call.arguments.get(parameter.name)
        if value is None:
            continue
        text = value_text(value, parameter) if not parameter.is_list else _list_text(value, parameter)
        texts.append(f" {text}" if parameter.positional else f" {parameter.name} {text}")
    return call.name + ARGUMENTS.join(texts)


def _list_text(values: Sequence[Any], parameter: Parameter) -> str:
    return f"{ITEMS} ".join(value_text(value, parameter) for value in values) if values else EMPTY_LIST


def _parsed(line: str, catalogue: Catalogue, certainty: float | None) -> Call:
    name, space, rest = line.partition(" ")
    tool = catalogue.tool(name, "the answer")
    texts = _split(space + rest, ARGUMENTS) if space else []
    arguments = dict[str, Any]()
    parameters = iter(tool.in_text)
    for text in texts:
        if not text.startswith(" "):
            raise InputError(f"the answer {safe_repr(line)} has no space before an argument")
        for parameter in parameters:
            before = " " if parameter.positional else f" {parameter.name} "
            if text.startswith(before):
                arguments[parameter.name] = _value(text.removeprefix(before), parameter)
                break
        else:
            raise InputError(f"the answer {safe_repr(line)} has an unknown argument, or one out of order")
    for parameter in tool.parameters:
        if parameter.required and parameter.nullable:
            arguments.setdefault(parameter.name, None)
    return Call(name, tool.checked(arguments, f"the answer {safe_repr(line)}"), certainty)


def _value(text: str, parameter: Parameter) -> Any:
    if not parameter.is_list:
        return _scalar(text, parameter)
    if text == EMPTY_LIST and not parameter.shortest:
        return []
    first, *others = _split(text, ITEMS)
    return [_scalar(first, parameter), *(_scalar(item.removeprefix(" "), parameter) for item in others)]


def _scalar(text: str, parameter: Parameter) -> Any:
    text = re.sub(r"\\(.)", lambda found: _UNESCAPED.get(found[1], found[1]), text)
    if parameter.kind == "string":
        return text
    if parameter.kind == "choice":
        return parameter.choices.get(text, text)
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return text


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that no backslash escapes."""
    parts = [""]
    for piece in re.findall(r"\\.|[^\\]|\\$", text, re.DOTALL):
        if piece == separator:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
