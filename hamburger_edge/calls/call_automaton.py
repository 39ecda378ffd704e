"""The compact form of a catalogue as an automaton over bytes."""

from __future__ import annotations

from collections.abc import Sequence

from hamburger_edge.calls.byte_automaton import Builder, States
from hamburger_edge.calls.catalogue import CallLimits, Catalogue, Tool
from hamburger_edge.calls.compact_form import (
    ARGUMENTS,
    CALLS,
    CLOSE,
    CONTROLS,
    EMPTY_LIST,
    ITEMS,
    NO_CALL,
    OPEN,
    escaped,
)
from hamburger_edge.calls.parameters import DECIMALS, Parameter, in_text_order

UNROLLED = 64  # most optional items that the automaton counts; longer lists are not limited
UNROLLED_OBJECTS = 8


def call_states(catalogue: Catalogue, limits: CallLimits) -> States:
    """Return the states of an answer: calls of these tools, or none."""
    builder = Builder()
    start, line = builder.node(), builder.node()
    builder.skip(start, line)
    end = builder.either(_call(builder, line, tool) for tool in catalogue.tools)
    if limits.several:
        builder.skip(builder.literal(end, CALLS), line)
    if not limits.required:
        builder.skip(builder.literal(start, NO_CALL), last := builder.node())
        builder.skip(end, last)
        end = last
    return States(builder, start, end)


def _call(builder: Builder, start: int, tool: Tool) -> int:
    return _arguments(builder, builder.literal(start, tool.name), tool.parameters, ARGUMENTS)


def _arguments(builder: Builder, start: int, parameters: Sequence[Parameter], ends: str) -> int:
    """Add the arguments of a call or an object. While optional ones are left out, no separator is due.

    `ends` are the marks that may follow a value.
    """
    bare: int | None = start  # None: an argument was given
    given: list[int] = []  # ends of the arguments so far
    for parameter in in_text_order(parameters):
        begins = builder.node()
        if bare is not None:
            builder.skip(bare, begins)
        if given:
            builder.skip(builder.literal(builder.either(given), ARGUMENTS), begins)
        end = _value(builder, builder.literal(begins, parameter.mark), parameter, ends)
        if parameter.positional:
            bare, given = None, [end]
        else:
            given = [*given, end]
    return builder.either([*([] if bare is None else [bare]), *given])


def _value(builder: Builder, start: int, parameter: Parameter, ends: str) -> int:
    if not parameter.is_list:
        return _item(builder, start, parameter, ends)
    list_ends = [] if parameter.shortest else [builder.literal(start, EMPTY_LIST)]
    if not parameter.longest:
        return builder.either(list_ends)

    def another(end: int) -> int:
        return _item(builder, builder.literal(end, f"{ITEMS} "), parameter, ends + ITEMS)

    end = _item(builder, start, parameter, ends + ITEMS)
    for _ in range(1, parameter.shortest):
        end = another(end)
    list_ends.append(end)
    more = parameter.longest - max(1, parameter.shortest)
    if more > (UNROLLED_OBJECTS if parameter.kind == "object" else UNROLLED):
        builder.skip(another(end), end)
        more = 0
    for _ in range(more):
        end = another(end)
        list_ends.append(end)
    return builder.either(list_ends)


def _item(builder: Builder, start: int, parameter: Parameter, ends: str) -> int:
    if parameter.kind == "object":
        opened = builder.literal(start, OPEN)
        return builder.literal(_arguments(builder, opened, parameter.properties, ARGUMENTS + CLOSE), CLOSE)
    if parameter.kind == "choice":
        return builder.either([builder.literal(start, escaped(text, ends)) for text in parameter.choices])
    if parameter.kind == "string":
        # an item that begins with "[" has a backslash before it, and none has one inside
        first = "[" if ITEMS in ends else ""
        escapes = f"\\{ends}{first}{''.join(CONTROLS.values())}"
        return builder.text(start, f"\\{ends}", escapes, first, copied=ends if parameter.copied else None)
    return _number(builder, start, parameter)


def _number(builder: Builder, start: int, parameter: Parameter) -> int:
    low, high, ends = parameter.low, parameter.high, list[int]()
    fractional = parameter.kind == "number"
    if high >= 0:
        ends += _magnitudes(builder, start, max(0, low), high, fractional)
    if low < 0:
        minus = builder.literal(start, "-")
        ends += _magnitudes(builder, minus, max(0 if fractional else 1, -high), -low, fractional)
    return builder.either(ends)


def _magnitudes(builder: Builder, start: int, low: int, high: int, fractional: bool) -> list[int]:
    ends = [builder.between(start, low, high)]
    if fractional and low < high:
        end = builder.literal(builder.between(start, low, high - 1), ".")
        for _ in range(DECIMALS):
            end = builder.digits(end, 1)
            ends.append(end)
    return ends
