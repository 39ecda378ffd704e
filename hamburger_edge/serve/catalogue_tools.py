"""Tools of a model that learned them: a request may name them all or some, and its prompt stays as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue, Limits, Tool, read_catalogue
from hamburger_edge.calls.compact_form import NO_CALL, checked_calls, encode, parse
from hamburger_edge.errors import InputError
from hamburger_edge.serve.fields import Fields, RefusedError
from hamburger_edge.serve.tools import Call, chosen_function


@dataclass(frozen=True)
class CatalogueTools:
    """The tools of one request. Its answers are calls in the compact form."""

    catalogue: Catalogue
    limits: Limits

    def options(self) -> dict[str, Any]:
        """Return the structure of an answer as options of `Settings`."""
        return {"calls": self.limits.to_json()}

    def described(self) -> str:
        """Return nothing to add to the system text: the model knows its tools."""
        return ""

    def calls(self, text: str) -> list[Call] | None:
        """Parse the calls of an answer; None: it has none, or is truncated."""
        try:
            calls = parse(text, self.catalogue)
        except InputError:
            return None
        return [Call(call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in calls] or None

    def may_call(self, text: str) -> bool:
        """Whether an answer that begins like this is no content for a user."""
        return True

    def content(self, text: str) -> str:
        """Return the content of an answer without calls."""
        return "" if text == NO_CALL else text

    def written(self, calls: Sequence[Call]) -> str:
        """Return an earlier answer as the model generated it."""
        plain = []
        for call in calls:
            try:
                plain.append({"name": call.name, "arguments": json.loads(call.arguments)})
            except ValueError as error:
                raise RefusedError(f"messages: arguments of {call.name} are not JSON", "messages") from error
        try:
            return encode(checked_calls(plain, self.catalogue, "messages: tool_calls"), self.catalogue)
        except InputError as error:
            raise RefusedError(str(error), "messages") from error


def read_catalogue_tools(fields: Fields, catalogue: Catalogue) -> CatalogueTools | None:
    """Read the fields `tools`, `tool_choice` and `parallel_tool_calls`; None: the request has no tools.

    Raise `RefusedError` for a tool that the model does not have.
    """
    given, choice = fields.take("tools"), fields.take("tool_choice")
    several = fields.flag("parallel_tool_calls", True)
    if not given:
        if choice not in (None, "none", "auto"):
            raise fields.refuse("tool_choice", "needs tools: give some")
        return None
    try:
        requested = read_catalogue(given).tools
    except InputError as error:
        raise RefusedError(str(error), "tools") from error
    for tool in requested:
        _check(tool, catalogue)
    names = tuple(tool.name for tool in requested)
    if choice == "none":
        return CatalogueTools(catalogue, Limits(tools=()))
    if isinstance(choice, dict):
        name = chosen_function(choice)
        if name not in names:
            raise RefusedError(f"tool_choice.function.name: there is no tool {name!r:.80}", "tool_choice")
        return CatalogueTools(catalogue, Limits(tools=(name,), required=True, several=several))
    if choice not in (None, "auto", "required"):
        raise fields.refuse("tool_choice", "must be auto, none, required or a function")
    limits = Limits(tools=names, required=choice == "required", several=several)
    return CatalogueTools(catalogue, limits)


def _check(tool: Tool, catalogue: Catalogue) -> None:
    """Refuse a tool that is not the model's; the order of its arguments does not matter."""
    own = {known.name: known.parameters for known in catalogue.tools}
    if tool.name not in own:
        known = f"(these are: {', '.join(own):.300})"
        message = f"tools: {tool.name} is not one of this model's tools {known}: leave it out"
        raise RefusedError(message, "tools")
    learned = own[tool.name]
    for parameter in (*tool.parameters, *learned):
        if parameter not in tool.parameters or parameter not in learned:
            message = f"tools: {tool.name}: argument {parameter.name} differs from the model's: give its own"
            raise RefusedError(message, "tools")
