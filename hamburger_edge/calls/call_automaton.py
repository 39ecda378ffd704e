"""The compact form of a catalogue as an automaton over bytes."""

from __future__ import annotations

from hamburger_edge.calls.byte_automaton import Builder, States
from hamburger_edge.calls.catalogue import CallLimits, Catalogue, Tool
from hamburger_edge.calls.compact_form import (
    ARGUMENTS,
    CALLS,
    EMPTY_LIST,
    ESCAPES,
    ITEMS,
    LIST_ESCAPES,
    NO_CALL,
    escaped,
)
from hamburger_edge.calls.parameters import DECIMALS, Parameter


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
    """Add a call. While optional arguments are left out, no separator is due."""
    bare: int | None = builder.literal(start, tool.name)  # after the name; None: an argument was given
    given: list[int] = []  # ends of the arguments so far
    for parameter in tool.in_text:
        begins = builder.node()
        if bare is not None:
            builder.skip(bare, begins)
        if given:
            builder.skip(builder.literal(builder.either(given), ARGUMENTS), begins)
        name = " " if parameter.positional else f" {parameter.name} "
        end = _value(builder, builder.literal(begins, name), parameter)
        if parameter.positional:
            bare, given = None, [end]
        else:
            given = [*given, end]
    return builder.either([*([] if bare is None else [bare]), *given])


def _value(builder: Builder, start: int, parameter: Parameter) -> int:
    if not parameter.is_list:
        return _scalar(builder, start, parameter)
    ends = [] if parameter.shortest else [builder.literal(start, EMPTY_LIST)]
    if not parameter.longest:
        return builder.either(ends)
    end = _scalar(builder, start, parameter)
    for _ in range(1, parameter.shortest):
        end = _scalar(builder, builder.literal(end, f"{ITEMS} "), parameter)
    ends.append(end)
    more = parameter.longest - max(1, parameter.shortest)
    if more > UNROLLED:
        again = builder.literal(end, f"{ITEMS} ")
        builder.skip(_scalar(builder, again, parameter), end)
        more = 0
    for _ in range(more):
        end = _scalar(builder, builder.literal(end, f"{ITEMS} "), parameter)
        ends.append(end)
    return builder.either(ends)


UNROLLED = 64  # most optional items that the automaton counts; longer lists are not limited


def _scalar(builder: Builder, start: int, parameter: Parameter) -> int:
    if parameter.kind == "choice":
        texts = (escaped(text, in_list=parameter.is_list) for text in parameter.choices)
        return builder.either([builder.literal(start, text) for text in texts])
    if parameter.kind == "string":
        return _text(builder, start, in_list=parameter.is_list)
    return _number(builder, start, parameter)


def _text(builder: Builder, start: int, *, in_list: bool) -> int:
    if not in_list:
        return builder.text(start, "\\;", "".join(ESCAPES.values()))
    # an item that begins with "[" has a backslash before it, and none has one inside
    return builder.text(start, "\\;,", "".join(LIST_ESCAPES.values()))


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
