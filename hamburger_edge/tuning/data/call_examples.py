"""Examples whose answers are calls: check them against their tools and write them in the compact form.

{"prompt": "Lights on", "calls": [{"name": "TurnOn", "arguments": {"area": "kitchen"}}]}
{"messages": [..., {"role": "assistant", "tool_calls": [{"function": {"name": ..., "arguments": "{...}"}}]}]}

A row may have its `tools`. An assistant's text without calls stands for no call. Results of tools, and
texts about them, are left out: they are no part of a call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue, Tool, read_catalogue
from hamburger_edge.calls.compact_form import checked_calls, encode
from hamburger_edge.errors import InputError
from hamburger_edge.support.strict import only_keys
from hamburger_edge.support.values import safe_repr

BESIDE = ("tools", "parallel_tool_calls")  # keys of a row that are no part of the conversation


def catalogue_of(rows: Sequence[tuple[str, Any]], given: Catalogue | None) -> Catalogue | None:
    """Return the given tools, else all tools of the rows; None if no row has any."""
    tools: dict[str, Tool] = {} if given is None else {tool.name: tool for tool in given.tools}
    for where, row in rows:
        if not isinstance(row, Mapping) or not row.get("tools"):
            continue
        for tool in read_catalogue(_decoded(row["tools"], f"{where}: tools"), f"{where}: tools").tools:
            if given is not None and tool.name not in tools:
                raise InputError(f"{where}: tools: {tool.name} is not in the file of --tools: add it there")
            if tools.setdefault(tool.name, tool) != tool:
                raise InputError(
                    f"{where}: tools: {tool.name} has other parameters than before: make them equal"
                )
    if not tools:
        for where, row in rows:
            if isinstance(row, Mapping) and ("calls" in row or _has_tool_calls(row.get("messages"))):
                raise InputError(f"{where}: has calls, but there are no tools: give their file to --tools")
        return None
    return given or Catalogue(tuple(tools.values()))


def calls_as_text(row: Any, catalogue: Catalogue, where: str) -> Any:
    """Return the row as one of texts, with its calls in the compact form."""
    if not isinstance(row, Mapping):
        return row
    row = {name: value for name, value in row.items() if name not in BESIDE}
    if "messages" in row:
        return {**row, "messages": _messages(row["messages"], catalogue, where)}
    only_keys(row, ("prompt", "calls", "system"), where)
    if "calls" not in row:
        raise InputError(f'{where}: has no calls: write "calls": [] if there is nothing to call')
    calls = checked_calls(_decoded(row["calls"], f"{where}: calls"), catalogue, f"{where}: calls")
    texts = {name: value for name, value in row.items() if name != "calls"}
    return {**texts, "answer": encode(calls, catalogue)}


def _messages(messages: Any, catalogue: Catalogue, where: str) -> Any:
    if not isinstance(messages, list):
        return messages  # the reader of conversations refuses it
    written, after_result = list[Any](), False
    for number, message in enumerate(messages):
        here = f"{where}: messages[{number}]"
        role = message.get("role") if isinstance(message, Mapping) else None
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        if role == "tool":
            after_result = True
        elif role != "assistant":
            written.append(message)
            after_result = False
        elif not after_result:
            weight = {"weight": message["weight"]} if "weight" in message else {}
            text = encode(_read_tool_calls(calls or [], catalogue, here), catalogue)
            written.append({"role": role, "content": text, **weight})
        elif calls:
            raise InputError(
                f"{here}: calls after a tool's result are not supported: put them into one message"
            )
    return written


def _read_tool_calls(calls: Any, catalogue: Catalogue, where: str) -> Any:
    if not isinstance(calls, list):
        raise InputError(f"{where}.tool_calls must be a list, got {safe_repr(calls)}")
    plain = []
    for index, call in enumerate(calls):
        path = f"{where}.tool_calls[{index}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise InputError(
                f'{path} must be {{"type": "function", "function": {{...}}}}, got {safe_repr(call)}'
            )
        arguments = _decoded(function.get("arguments", {}), f"{path}.function.arguments")
        plain.append({"name": function.get("name"), "arguments": arguments})
    return checked_calls(plain, catalogue, f"{where}.tool_calls")


def _has_tool_calls(messages: Any) -> bool:
    return isinstance(messages, list) and any(
        isinstance(message, Mapping) and message.get("tool_calls") for message in messages
    )


def _decoded(value: Any, where: str) -> Any:
    """Decode JSON that stands in a text, as in OpenAI's arguments and in columns of tables."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from error
