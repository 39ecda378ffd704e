"""The parameters of a tool as typed values, and the check of arguments against them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hamburger_edge.errors import InputError
from hamburger_edge.support.values import check_text, safe_repr

Kind = Literal["string", "integer", "number", "choice", "object"]

LARGEST_NUMBER = 2**53 - 1  # exact in JavaScript, too
DECIMALS = 12  # of a number
LONGEST_LIST = 1000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all but tab, line feed, carriage return


@dataclass(frozen=True)
class Parameter:
    """A parameter whose values are scalars or objects, or a list of them."""

    name: str
    kind: Kind
    required: bool = False
    nullable: bool = False
    choices: Mapping[str, Any] = field(default_factory=dict)  # text of a choice -> its value
    low: int = -LARGEST_NUMBER  # of integers and numbers
    high: int = LARGEST_NUMBER
    is_list: bool = False
    shortest: int = 0  # items of a list
    longest: int = LONGEST_LIST
    properties: tuple[Parameter, ...] = ()  # of objects
    copied: bool = False  # strings are spans of the prompt

    @property
    def positional(self) -> bool:
        """Whether the compact form has the value without the parameter's name."""
        return self.required and not self.nullable

    @property
    def mark(self) -> str:
        """The text before the value in the compact form."""
        return " " if self.positional else f" {self.name} "

    def checked(self, value: Any, where: str) -> Any:
        """Return the value in its normal form, or raise an error that names the place."""
        if not self.is_list:
            return self._checked_item(value, where)
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, got {safe_repr(value)}")
        if not self.shortest <= len(value) <= self.longest:
            raise InputError(f"{where} must have {self.shortest} to {self.longest} items, got {len(value)}")
        return [self._checked_item(item, f"{where}[{index}]") for index, item in enumerate(value)]

    def _checked_item(self, value: Any, where: str) -> Any:
        if self.kind == "object":
            return checked_arguments(self.properties, value, where, "the object")
        if self.kind == "choice":
            for choice in self.choices.values():
                if same(choice, value):
                    return choice
            known = [json.dumps(choice, ensure_ascii=False) for choice in self.choices.values()]
            listed = ", ".join(dict.fromkeys(known))
            raise InputError(f"{where} must be one of {listed:.200}, got {safe_repr(value)}")
        if self.kind == "string":
            if not isinstance(value, str):
                raise InputError(f"{where} must be a text, got {safe_repr(value)}")
            if _CONTROL.search(value):
                raise InputError(f"{where} has a control character, got {safe_repr(value)}: leave it out")
            return check_text(value)
        return self._checked_number(value, where)

    def _checked_number(self, value: Any, where: str) -> int | float:
        kind = "a whole number" if self.kind == "integer" else "a number"
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{where} must be {kind}, got {safe_repr(value)}")
        if not self.low <= value <= self.high:
            raise InputError(f"{where} must be {self.low} to {self.high}, got {safe_repr(value)}")
        if value == int(value):
            return int(value)
        if self.kind == "integer":
            raise InputError(f"{where} must be {kind}, got {safe_repr(value)}")
        if round(value, DECIMALS) != value:
            raise InputError(f"{where} must have at most {DECIMALS} decimals, got {value!r}: round it")
        return value


def same(one: Any, other: Any) -> bool:
    """Whether two scalars are the same JSON value: 1 equals 1.0, but not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def in_text_order(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameters in the order of the compact form: those without a name first."""
    return sorted(parameters, key=lambda parameter: not parameter.positional)


def string_paths(parameters: Sequence[Parameter], prefix: str = "") -> Iterator[str]:
    """Yield the names of the parameters that take any text; `guest.name` is a property of an object."""
    for parameter in parameters:
        if parameter.kind == "string":
            yield prefix + parameter.name
        yield from string_paths(parameter.properties, f"{prefix}{parameter.name}.")


def changed(
    parameters: Sequence[Parameter], change: Callable[[Parameter, str], Parameter], prefix: str = ""
) -> tuple[Parameter, ...]:
    """Return the result of `change` for each parameter and its path; properties of objects come first."""
    result = []
    for parameter in parameters:
        path = prefix + parameter.name
        properties = changed(parameter.properties, change, f"{path}.")
        result.append(change(replace(parameter, properties=properties), path))
    return tuple(result)


def strings_in(
    arguments: Mapping[str, Any], parameters: Sequence[Parameter], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield path and text of each string in checked arguments whose parameter takes any text."""
    for parameter in parameters:
        value, path = arguments.get(parameter.name), prefix + parameter.name
        if value is None or parameter.kind not in ("string", "object"):
            continue
        for item in value if parameter.is_list else [value]:
            if parameter.kind == "string":
                yield path, item
            else:
                yield from strings_in(item, parameter.properties, f"{path}.")


def checked_arguments(
    parameters: Sequence[Parameter], arguments: Any, where: str, owner: str
) -> dict[str, Any]:
    """Return the arguments in their normal form: in the schema's order, without optional nulls."""
    if not isinstance(arguments, Mapping):
        raise InputError(f"{where} must be an object, got {safe_repr(arguments)}")
    names = [parameter.name for parameter in parameters]
    if unknown := [name for name in arguments if name not in names]:
        known = ", ".join(names) or "none"
        raise InputError(f"{where}: {owner} has no argument {safe_repr(unknown[0])} (known: {known})")
    checked = dict[str, Any]()
    for parameter in parameters:
        value = arguments.get(parameter.name)
        if value is None:
            if parameter.required and not (parameter.nullable and parameter.name in arguments):
                raise InputError(f"{where}: {owner} needs the argument {parameter.name!r}")
            if parameter.required:
                checked[parameter.name] = None
            continue
        checked[parameter.name] = parameter.checked(value, f"{where}.{parameter.name}")
    return checked
