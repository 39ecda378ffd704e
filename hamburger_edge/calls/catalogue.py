"""The tools of a model: names and parameters of the functions that its answers call.

Tools come in OpenAI's form, {"type": "function", "function": {"name": ..., "parameters": ...}}, as
{"name": ..., "parameters": ...} (also `inputSchema`), or as a JSON schema with a title. Each may have an
answer template, "answer", in the outer or in the inner object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hamburger_edge.calls.answer_template import AnswerTemplate, read_answer_template, value_text
from hamburger_edge.calls.parameter_schema import read_parameters
from hamburger_edge.calls.parameters import Parameter, changed, checked_arguments, string_paths
from hamburger_edge.errors import InputError
from hamburger_edge.support.strict import only_keys, read_json
from hamburger_edge.support.values import check_text, safe_repr

MOST_TOOLS = 1000
NO_TOOLS = "this model has no tools to call: make one with  hamburger-edge tune --tools"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_SCHEMA_NAMES = ("parameters", "inputSchema", "input_schema")


@dataclass(frozen=True)
class Tool:
    name: str
    parameters: tuple[Parameter, ...]
    description: str = field(default="", compare=False)
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False)  # of the arguments, as given
    answer: AnswerTemplate | None = field(default=None, compare=False)

    def checked(self, arguments: Any, where: str) -> dict[str, Any]:
        """Return the arguments in their normal form: in the catalogue's order, without optional nulls."""
        return checked_arguments(self.parameters, arguments, where, self.name)

    def result_text(self, arguments: Mapping[str, Any], result: Any) -> str:
        """Return the answer to a call's result: the filled template, else the result as text."""
        if self.answer is not None:
            return self.answer.fill(self.name, arguments, result)
        return "" if result is None else value_text(result)

    def to_json(self) -> dict[str, Any]:
        """Return the tool in OpenAI's form, with its answer template beside the function."""
        description = {"description": self.description} if self.description else {}
        function = {"name": self.name, **description, "parameters": dict(self.schema)}
        answer = {} if self.answer is None else {"answer": self.answer.text}
        return {"type": "function", "function": function, **answer}


@dataclass(frozen=True)
class CallLimits:
    """The tools and values that a caller allows in one answer."""

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # argument -> its allowed values
    tools: tuple[str, ...] | None = None  # None: all
    required: bool = False  # at least one call
    several: bool = True  # more than one call

    @classmethod
    def of(cls, data: Any) -> CallLimits:
        only_keys(data, ("names", "tools", "required", "several"), "calls")
        names, tools = data.get("names") or {}, data.get("tools")
        if not isinstance(names, Mapping):
            raise InputError(f"names must map arguments to lists of values, got {safe_repr(names)}")
        for name, values in names.items():
            listed = isinstance(values, Sequence) and not isinstance(values, str | bytes)
            if not listed or not values or not all(isinstance(text, str) and text.strip() for text in values):
                raise InputError(f"names: {name} must be a list of texts, got {safe_repr(values)}")
        lists = {name: tuple(map(check_text, values)) for name, values in names.items()}
        limits = data.get("required", False), data.get("several", True)
        if not all(isinstance(limit, bool) for limit in limits):
            raise InputError(f"calls: required and several must be true or false, got {safe_repr(data)}")
        return cls(lists, None if tools is None else tuple(map(str, tools)), *limits)

    def to_json(self) -> dict[str, Any]:
        names = {name: list(values) for name, values in self.names.items()}
        tools = None if self.tools is None else list(self.tools)
        data = dict[str, Any]()
        data |= {"names": names} if names else {}
        data |= {} if tools is None else {"tools": tools}
        return data | {"required": self.required, "several": self.several}


@dataclass(frozen=True)
class Catalogue:
    tools: tuple[Tool, ...]

    def tool(self, name: Any, where: str) -> Tool:
        for tool in self.tools:
            if tool.name == name:
                return tool
        known = ", ".join(tool.name for tool in self.tools)
        raise InputError(f"{where}: there is no tool {safe_repr(name)} (known: {known:.200})")

    def check_own(self, requested: Catalogue) -> None:
        """Refuse a tool that is not one of these, or has other parameters. Their order does not matter."""
        own = {tool.name: tool for tool in self.tools}
        for tool in requested.tools:
            if tool.name not in own:
                known = f"(these are: {', '.join(own):.300})"
                raise InputError(f"tools: {tool.name} is not one of this model's tools {known}: leave it out")
            parameters, learned = _by_name(tool.parameters), _by_name(own[tool.name].parameters)
            for name in {**parameters, **learned}:
                if parameters.get(name) != learned.get(name):
                    raise InputError(
                        f"tools: {tool.name}: argument {name} differs from the model's: give its own"
                    )

    def limited(self, limits: CallLimits) -> Catalogue:
        """Return the catalogue with only the tools and values that the limits allow."""
        chosen = self.tools
        if limits.tools is not None:
            chosen = tuple(self.tool(name, "tools") for name in dict.fromkeys(limits.tools))
        strings = [(tool.name, path) for tool in self.tools for path in string_paths(tool.parameters)]
        open_names = {path for _, path in strings} | {f"{tool}.{path}" for tool, path in strings}
        for name in limits.names:
            if name not in open_names:
                known = ", ".join(sorted(open_names)) or "none"
                raise InputError(f"names: no argument {safe_repr(name)} takes a text (known: {known:.200})")

        def limited(tool: Tool) -> Tool:
            limit = partial(_limited, tool=tool.name, names=limits.names)
            return replace(tool, parameters=changed(tool.parameters, limit))

        return Catalogue(tuple(map(limited, chosen)))

    def copying(self, paths: Collection[str]) -> Catalogue:
        """Return the catalogue whose strings at these paths are spans of the prompt."""

        def copying(parameter: Parameter, path: str) -> Parameter:
            return replace(parameter, copied=path in paths)

        return Catalogue(
            tuple(replace(tool, parameters=changed(tool.parameters, copying)) for tool in self.tools)
        )

    def to_json(self) -> list[dict[str, Any]]:
        return [tool.to_json() for tool in self.tools]


def _by_name(parameters: Sequence[Parameter]) -> dict[str, Parameter]:
    """Return parameters in a form whose equality does not depend on their order.

    An argument that may be left out may also be null, whether its schema has that or not.
    """
    return {
        parameter.name: replace(
            parameter,
            nullable=parameter.required and parameter.nullable,
            properties=tuple(property for _, property in sorted(_by_name(parameter.properties).items())),
        )
        for parameter in parameters
    }


def _limited(parameter: Parameter, path: str, tool: str, names: Mapping[str, tuple[str, ...]]) -> Parameter:
    """Give a string parameter its allowed values, as listed or in lower case."""
    values = names.get(f"{tool}.{path}", names.get(path))
    if values is None or parameter.kind != "string":
        return parameter
    choices = {value.lower(): value for value in reversed(values)} | {value: value for value in values}
    return replace(parameter, kind="choice", choices=choices)


def read_catalogue(data: Any, where: str = "tools") -> Catalogue:
    """Read tools from decoded JSON: a list of them, one of them, or {"tools": [...]}."""
    if isinstance(data, Catalogue):
        return data
    if isinstance(data, Mapping):
        data = data.get("tools", [data])
    if not isinstance(data, Sequence) or isinstance(data, str | bytes) or not data:
        raise InputError(f"{where}: expected a list of tools, got {safe_repr(data)}")
    if len(data) > MOST_TOOLS:
        raise InputError(f"{where}: {len(data)} tools are given, at most {MOST_TOOLS} are taken")
    tools = [_read_tool(item, f"{where}[{index}]") for index, item in enumerate(data)]
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{where}: {twice} is given twice: rename one")
    return Catalogue(tuple(tools))


def read_catalogue_file(path: Path) -> Catalogue:
    return read_catalogue(read_json(path), str(path))


def _read_tool(item: Any, where: str) -> Tool:
    if not isinstance(item, Mapping):
        raise InputError(f"{where} must be an object, got {safe_repr(item)}")
    outer = item
    if "function" in item:
        if item.get("type", "function") != "function":
            raise InputError(f"{where}: type must be function, got {safe_repr(item['type'])}")
        item = item["function"]
        if not isinstance(item, Mapping):
            raise InputError(f"{where}.function must be an object, got {safe_repr(item)}")
    if "name" in item:
        schemas = [item[name] for name in _SCHEMA_NAMES if name in item]
        name, schema, description = item["name"], (schemas or [None])[0], item.get("description")
    else:
        name, description = item.get("title"), item.get("description")
        schema = {keyword: part for keyword, part in item.items() if keyword != "answer"}
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{where}: a tool's name must be 1 to 64 letters, digits, _ or -, got {safe_repr(name)}"
        )
    if description is not None and not isinstance(description, str):
        raise InputError(f"{where}: description must be a text, got {safe_repr(description)}")
    path = f"{where} {name}"
    parameters = read_parameters(schema, path)
    text = outer.get("answer", item.get("answer"))
    answer = None if text is None else read_answer_template(text, parameters, path)
    schema = dict(schema or {"type": "object", "properties": {}})
    return Tool(name, parameters, description or "", schema, answer)
