"""Functions that a model may call. Their schemas become the structure of its answer.

In an answer and in a conversation, a call is `{"name": NAME, "arguments": {...}}`. Several calls are a list
of these objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hamburger_edge.errors import InputError
from hamburger_edge.serve.fields import Fields, RefusedError
from hamburger_edge.structured.grammar import LAYOUT
from hamburger_edge.structured.rewriting import rewritten
from hamburger_edge.structured.structure import Structure

MOST_TOOLS = 64
MOST_CALLS = 8  # in one answer
# With `auto`, plain text must not begin with the first character of a call.
_WORDS = r"/[^{\[](.|\n)*/"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True)
class Function:
    name: str
    description: str
    parameters: dict[str, Any]  # a JSON schema


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: str  # JSON


@dataclass(frozen=True)
class Tools:
    functions: tuple[Function, ...]  # the functions that `tool_choice` permits
    choice: Literal["auto", "required"]
    several: bool  # calls in one answer

    def options(self) -> dict[str, Any]:
        """Return the structure of an answer as options of `Settings`."""
        schema = self.schema()
        if self.choice == "required":
            return {"json_schema": schema}
        call = json.dumps({**rewritten(schema), "x-guidance": LAYOUT})
        return {"grammar": f"start: words | calls\nwords: {_WORDS}\ncalls: %json {call}\n"}

    def schema(self) -> dict[str, Any]:
        calls: list[dict[str, Any]] = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": function.name},
                    "arguments": {"$ref": f"#/$defs/{function.name}"},
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for function in self.functions
        ]
        parts = {
            function.name: _moved(function.parameters, f"#/$defs/{function.name}")
            for function in self.functions
        }
        one: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if self.several:
            one = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_CALLS}
        return {**one, "$defs": parts}

    def described(self) -> str:
        """Return the part of the system text that lists the functions and the call format."""
        lines = [
            json.dumps(
                {
                    "name": function.name,
                    "description": function.description,
                    "parameters": function.parameters,
                },
                ensure_ascii=False,
            )
            for function in self.functions
        ]
        form = '{"name": NAME, "arguments": {...}}'
        how = f"a list of calls [{form}, ...]" if self.several else form
        return "Functions that you can call:\n" + "\n".join(lines) + f"\nTo call, answer with {how} alone."

    def may_call(self, text: str) -> bool:
        """Whether an answer that begins like this is no plain text."""
        return text.startswith(("{", "["))

    def content(self, text: str) -> str:
        """Return the content of an answer without calls."""
        return text

    def written(self, calls: Sequence[ToolCall]) -> str:
        """Return an earlier answer as the model generated it."""
        return written(calls, several=self.several)

    def calls(self, text: str) -> list[ToolCall] | None:
        """Parse the calls of an answer; None: the answer is plain text or truncated."""
        if not self.may_call(text):
            return None
        try:
            answer = json.loads(text)
        except ValueError:
            return None
        parts = answer if isinstance(answer, list) else [answer]
        return [
            ToolCall(part["name"], json.dumps(part["arguments"], ensure_ascii=False, separators=(", ", ": ")))
            for part in parts
        ]


def read_tools(fields: Fields) -> Tools | None:
    """Read the fields `tools`, `tool_choice` and `parallel_tool_calls`."""
    given = fields.items("tools", MOST_TOOLS)
    choice = fields.take("tool_choice")
    several = fields.flag("parallel_tool_calls")
    if not given:
        if choice not in (None, "none", "auto"):
            raise fields.refuse("tool_choice", "needs tools: give some")
        return None
    functions = [_function(item, f"tools[{index}]") for index, item in enumerate(given)]
    names = [function.name for function in functions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RefusedError(f"tools: {twice} is given twice", "tools")
    if choice == "none":
        return None
    if isinstance(choice, dict):
        name = chosen_function(choice)
        chosen = tuple(function for function in functions if function.name == name)
        if not chosen:
            raise RefusedError(f"tool_choice.function.name: there is no tool {name!r:.80}", "tool_choice")
        return Tools(chosen, "required", several)
    if choice not in (None, "auto", "required"):
        raise fields.refuse("tool_choice", "must be auto, none, required or a function")
    return Tools(tuple(functions), "required" if choice == "required" else "auto", several)


def chosen_function(choice: dict[str, Any]) -> str:
    """Return the name of the function that `tool_choice` requires."""
    fields = Fields(choice, "tool_choice")
    fields.only("type", "function")
    function = Fields(fields.need("function"), "tool_choice.function")
    name = function.checked_text("name", function.need("name"))
    function.end()
    fields.end()
    return name


def _function(item: Any, path: str) -> Function:
    fields = Fields(item, path)
    kind = fields.need("type")
    if kind != "function":
        raise fields.refuse("type", "must be function")
    inner = Fields(fields.need("function"), f"{path}.function")
    fields.end()
    name = inner.checked_text("name", inner.need("name"))
    if not _NAME.fullmatch(name):
        raise inner.refuse("name", "must be 1 to 64 letters, digits, _ or -")
    description = inner.text("description")
    parameters = inner.take("parameters")
    inner.flag("strict")  # no effect: arguments always follow the schema
    inner.end()
    if parameters is None:
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(parameters, dict):
        raise inner.refuse("parameters", "must be a JSON schema")
    try:
        Structure.of(json_schema=parameters)
    except InputError as error:
        raise RefusedError(f"{inner.path('parameters')}: {error}", inner.path("parameters")) from error
    return Function(name, description or "", parameters)


def _moved(schema: Any, root: str) -> Any:
    """Return a schema for embedding at `place`, with its local references adjusted."""
    if isinstance(schema, list):
        return [_moved(part, root) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: root + value[1:]
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _moved(value, root)
        for key, value in schema.items()
    }


def written(calls: Sequence[ToolCall], *, several: bool) -> str:
    """Return calls in the format that the model generates."""
    texts = [f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}' for call in calls]
    return f"[{', '.join(texts)}]" if several or len(texts) != 1 else texts[0]
