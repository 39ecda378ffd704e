r"""The compact form: calls as the text that a model generates.

    HassLightSet area living room; brightness 50     name, then values; an optional one after its name
    HassStartTimer 10; minutes                       required values come first, without their names
    HassTurnOn name fan                              several calls: a line each
    AddEvent dentist; guests ( Ann; age 3), ( Bob)   an object has its properties in parentheses
    -                                                no call

A space stands before each value, so a word has the same token in the prompt and in the answer. Arguments
follow the catalogue's order. In texts a backslash escapes `;`, `\`, line feeds, carriage returns and tabs; in
lists also `,` and a first `[`, in objects also `)`. An empty list is `[]`, an empty object `()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue, Tool
from hamburger_edge.calls.parameters import Parameter, in_text_order, same
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import safe_repr

NO_CALL = "-"
CALLS, ARGUMENTS, ITEMS, EMPTY_LIST = "\n", ";", ",", "[]"
OPEN, CLOSE = "(", ")"  # of an object
CONTROLS = {"\n": "n", "\r": "r", "\t": "t"}  # character -> letter after a backslash
_LETTERS = {letter: character for character, letter in CONTROLS.items()}


@dataclass(frozen=True)
class Call:
    name: str
    arguments: Any  # a dictionary; an instance of the tool's Pydantic model if that was given
    certainty: float | None = None  # of the whole answer; None: not measured for this model


class Calls(list[Call]):
    """The calls of an answer. An empty list has a certainty, too: that there is nothing to call."""

    certainty: float | None  # of the whole answer; None: not measured for this model
    unsure: bool  # whether the certainty is below `min_certainty`

    def __init__(
        self, calls: Iterable[Call] = (), certainty: float | None = None, unsure: bool = False
    ) -> None:
        super().__init__(calls)
        self.certainty, self.unsure = certainty, unsure


def checked_calls(calls: Any, catalogue: Catalogue, where: str) -> list[Call]:
    """Check calls as examples give them, {"name": ..., "arguments": {...}}, against their tools."""
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise InputError(f"{where} must be a list of calls, got {safe_repr(calls)}")
    checked = []
    for index, call in enumerate(calls):
        path = f"{where}[{index}]"
        if not isinstance(call, dict) or not call.keys() <= {"name", "arguments"} or "name" not in call:
            raise InputError(f'{path} must be {{"name": ..., "arguments": {{...}}}}, got {safe_repr(call)}')
        tool = catalogue.tool(call["name"], f"{path}.name")
        checked.append(Call(tool.name, tool.checked(call.get("arguments", {}), f"{path}.arguments")))
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


def escaped(text: str, ends: str) -> str:
    """Return a text with a backslash before the marks that may end it."""
    special = f"\\{ends}"
    inner = "".join(f"\\{CONTROLS.get(c, c)}" if c in CONTROLS or c in special else c for c in text)
    return "\\" + inner if ITEMS in ends and inner.startswith("[") else inner


def spelling(ends: str) -> dict[int, bytes]:
    """Return the bytes that texts spell otherwise, where these marks may end one."""
    return {ord(mark): escaped(mark, ends).encode() for mark in (*CONTROLS, "\\", *ends)}


def _line(call: Call, tool: Tool) -> str:
    return call.name + _arguments_text(call.arguments, tool.parameters, ARGUMENTS)


def _arguments_text(arguments: Any, parameters: Sequence[Parameter], ends: str) -> str:
    """Return checked arguments as text. `ends` are the marks that may follow a value."""
    return ARGUMENTS.join(
        parameter.mark + _value_text(arguments[parameter.name], parameter, ends)
        for parameter in in_text_order(parameters)
        if arguments.get(parameter.name) is not None
    )


def _value_text(value: Any, parameter: Parameter, ends: str) -> str:
    if not parameter.is_list:
        return _item_text(value, parameter, ends)
    if not value:
        return EMPTY_LIST
    return f"{ITEMS} ".join(_item_text(item, parameter, ends + ITEMS) for item in value)


def _item_text(value: Any, parameter: Parameter, ends: str) -> str:
    if parameter.kind == "object":
        return OPEN + _arguments_text(value, parameter.properties, ARGUMENTS + CLOSE) + CLOSE
    if parameter.kind == "choice":
        return escaped(next(text for text, choice in parameter.choices.items() if same(choice, value)), ends)
    if parameter.kind == "string":
        return escaped(value, ends)
    return str(value) if isinstance(value, int) else format(Decimal(repr(value)), "f")


def _parsed(line: str, catalogue: Catalogue, certainty: float | None) -> Call:
    name = line.partition(" ")[0]
    tool = catalogue.tool(name, "the answer")
    reader = _TextReader(line, len(name))
    arguments = (
        _with_nulls({}, tool.parameters) if reader.at_end else reader.arguments(tool.parameters, ARGUMENTS)
    )
    if not reader.at_end:
        raise InputError(f"the answer {safe_repr(line)} has text after its last argument")
    return Call(name, tool.checked(arguments, f"the answer {safe_repr(line)}"), certainty)


def _with_nulls(arguments: dict[str, Any], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Add null for the missing arguments that are required."""
    return arguments | {
        parameter.name: None
        for parameter in parameters
        if parameter.required and parameter.nullable and parameter.name not in arguments
    }


class _TextReader:
    """Reads the values of a line from left to right."""

    def __init__(self, line: str, position: int) -> None:
        self._line, self._position = line, position

    @property
    def at_end(self) -> bool:
        return self._position == len(self._line)

    def arguments(self, parameters: Sequence[Parameter], ends: str) -> dict[str, Any]:
        """Read arguments up to the end of their call or object."""
        arguments, in_order = dict[str, Any](), iter(in_text_order(parameters))
        while True:
            if not self._next_is(" "):
                raise InputError(f"the answer {safe_repr(self._line)} has no space before an argument")
            parameter = next((p for p in in_order if self._next_is(p.mark)), None)
            if parameter is None:
                raise InputError(
                    f"the answer {safe_repr(self._line)} has an unknown argument, or one out of order"
                )
            self._position += len(parameter.mark)
            arguments[parameter.name] = self._value(parameter, ends)
            if not self._took(ARGUMENTS):
                return _with_nulls(arguments, parameters)

    def _value(self, parameter: Parameter, ends: str) -> Any:
        if not parameter.is_list:
            return self._item(parameter, ends)
        if not parameter.shortest and self._took(EMPTY_LIST):
            return []
        items = [self._item(parameter, ends + ITEMS)]
        while self._took(ITEMS):
            self._took(" ")
            items.append(self._item(parameter, ends + ITEMS))
        return items

    def _item(self, parameter: Parameter, ends: str) -> Any:
        if parameter.kind == "object":
            return self._object(parameter)
        text = self._text(ends)
        if parameter.kind == "string":
            return text
        if parameter.kind == "choice":
            return parameter.choices.get(text, text)
        try:
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        except ValueError:
            return text

    def _object(self, parameter: Parameter) -> dict[str, Any]:
        if not self._took(OPEN):
            raise InputError(f"the answer {safe_repr(self._line)} has no ( before an object")
        if self._took(CLOSE):
            return _with_nulls({}, parameter.properties)
        properties = self.arguments(parameter.properties, ARGUMENTS + CLOSE)
        if not self._took(CLOSE):
            raise InputError(f"the answer {safe_repr(self._line)} has no ) after an object")
        return properties

    def _text(self, ends: str) -> str:
        """Read up to one of the ends that no backslash escapes."""
        match = re.compile(rf"(?:\\.|[^\\{re.escape(ends)}]|\\$)*", re.DOTALL).match(
            self._line, self._position
        )
        assert match is not None
        self._position = match.end()
        return re.sub(r"\\(.)", lambda letter: _LETTERS.get(letter[1], letter[1]), match[0])

    def _next_is(self, text: str) -> bool:
        return self._line.startswith(text, self._position)

    def _took(self, text: str) -> bool:
        """Step over a text if it is the next one."""
        if self._next_is(text):
            self._position += len(text)
            return True
        return False
