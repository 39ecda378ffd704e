"""Read the messages of a chat request: roles, text parts, earlier tool calls and their results."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue
from hamburger_edge.errors import InputError
from hamburger_edge.serve.catalogue_tools import CatalogueTools
from hamburger_edge.serve.fields import Fields, RefusedError
from hamburger_edge.serve.tools import ToolCall, Tools, written

AnyTools = Tools | CatalogueTools

LONGEST_NAME = 200  # of a model, a user or a tool


def conversation(fields: Fields, tools: AnyTools | None, limit: int) -> tuple[dict[str, str], ...]:
    """Convert messages to those of `Model.stream`. Consecutive ones of tools and users form one."""
    given = fields.items("messages", limit)
    if not given:
        raise fields.refuse("messages", "is missing: give at least one message of a user")
    system: list[str] = []
    turns: list[list[str]] = []
    for index, item in enumerate(given):
        inner = Fields(item, f"messages[{index}]")
        role = inner.one_of("role", ("system", "developer", "user", "assistant", "tool"))
        if role is None:
            raise inner.refuse("role", "is missing")
        if role != "tool":
            inner.text("name", longest=LONGEST_NAME)
        if role in ("system", "developer"):
            if turns:
                raise inner.refuse("role", f"must not be {role} after the conversation began")
            system.append(content(inner, required=True))
        elif role == "assistant":
            if len(turns) % 2 == 0:
                raise inner.refuse("role", "must not be assistant before a user's message, or twice")
            turns.append([_answer(inner, tools)])
        else:
            text = content(inner, required=True)
            if role == "tool":
                inner.checked_text("tool_call_id", inner.need("tool_call_id"), LONGEST_NAME)
                text = f"The result is {text}"
            if len(turns) % 2:
                turns[-1].append(text)
            else:
                turns.append([text])
        inner.end()
    if len(turns) % 2 == 0:
        raise RefusedError("messages: the last one must be of a user or a tool", "messages")
    if [""] in turns[::2]:
        raise RefusedError("messages: a user's message is empty: say something", "messages")
    messages = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    for index, turn in enumerate(turns):
        messages.append({"role": ("user", "assistant")[index % 2], "content": "\n\n".join(turn)})
    return tuple(messages)


def answer_to_results(messages: list[dict[str, Any]], catalogue: Catalogue) -> str | None:
    """Return the answer to the results of tools at the end of checked messages; None if a user wrote last.

    It has a line for each result: the filled answer template of the tool, else the result itself.
    """
    results = list(itertools.takewhile(lambda message: message["role"] == "tool", reversed(messages)))
    if not results:
        return None
    before = messages[-len(results) - 1] if len(messages) > len(results) else {}
    calls = {call.get("id"): call["function"] for call in before.get("tool_calls") or ()}
    lines = []
    for result in reversed(results):
        identifier = result["tool_call_id"]
        if identifier not in calls:
            raise RefusedError(
                f"messages: tool_call_id {identifier!r:.80} is no id of a call before it: give one",
                "messages",
            )
        tool = catalogue.tool(calls[identifier]["name"], "messages")
        arguments = json.loads(calls[identifier]["arguments"])
        try:
            lines.append(tool.result_text(arguments, content(Fields(result), required=True)))
        except InputError as error:
            raise RefusedError(f"messages: {error}", "messages") from error
    return "\n".join(lines)


def _answer(fields: Fields, tools: AnyTools | None) -> str:
    """Return an earlier answer as the text that the model generated, tool calls included."""
    given = fields.items("tool_calls", 64)
    fields.only("refusal")
    fields.only("audio")
    fields.only("function_call")
    fields.only("annotations", [])
    text = content(fields, required=not given)
    if not given:
        return tools.written([]) if isinstance(tools, CatalogueTools) and not text else text
    calls = []
    for index, item in enumerate(given):
        inner = Fields(item, f"{fields.path('tool_calls')}[{index}]")
        inner.text("id", longest=LONGEST_NAME)
        inner.take("index")
        inner.only("type", "function")
        function = Fields(inner.need("function"), f"{inner.path('function')}")
        name = function.checked_text("name", function.need("name"), LONGEST_NAME)
        calls.append(ToolCall(name, function.checked_text("arguments", function.need("arguments"))))
        function.end()
        inner.end()
    return text + (written(calls, several=False) if tools is None else tools.written(calls))


def content(fields: Fields, *, required: bool) -> str:
    """Return the content: a text, or a list of text parts."""
    if not fields.has("content"):
        if required:
            raise fields.refuse("content", "is missing")
        return ""
    value = fields.take("content")
    if not isinstance(value, list):
        return fields.checked_text("content", value)
    texts = []
    for index, item in enumerate(value):
        part = Fields(item, f"{fields.path('content')}[{index}]")
        kind = part.need("type")
        if kind != "text":
            raise part.refuse("type", "must be text: this model reads nothing else")
        texts.append(part.checked_text("text", part.need("text")))
        part.end()
    return "".join(texts)
