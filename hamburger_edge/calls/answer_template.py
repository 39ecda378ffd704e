"""Templates that turn a call and its tool's result into an answer, without another model call.

    It is {temperature} degrees[ in {city}].

A name in braces is replaced by a field of the result, else by an argument of the call; `{result}` is the
whole result. A part in brackets is left out if one of its names has no value. `{{`, `}}`, `[[` and `]]` stand
for the character itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hamburger_edge.calls.parameters import Parameter
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import check_text, safe_repr

RESULT = "result"
_PIECES = re.compile(r"(\{\{|\}\}|\[\[|\]\])|\{([^{}]*)\}|([\[\]{}])|([^\[\]{}]+)")


@dataclass(frozen=True)
class Name:
    """A place that a field of the result, an argument or the whole result fills."""

    name: str


@dataclass(frozen=True)
class Section:
    """A part of a template; an optional one is left out if one of its names has no value."""

    pieces: tuple[str | Name, ...]
    optional: bool

    def text(self, values: Mapping[str, str]) -> str:
        """Return the text with the values of its names; raise KeyError for a missing one that is needed."""
        try:
            return "".join(piece if isinstance(piece, str) else values[piece.name] for piece in self.pieces)
        except KeyError:
            if self.optional:
                return ""
            raise


@dataclass(frozen=True)
class AnswerTemplate:
    text: str  # as written
    sections: tuple[Section, ...]

    def names(self, *, optional: bool) -> list[str]:
        """Return the names in sections of this kind."""
        sections = [section for section in self.sections if section.optional == optional]
        return [piece.name for section in sections for piece in section.pieces if isinstance(piece, Name)]

    def fill(self, tool: str, arguments: Mapping[str, Any], result: Any) -> str:
        """Return the text of a call's result.

        A result that is no object cannot fill fields. If the template needs one, the result itself is the
        answer: tools report their errors as a text.
        """
        fields = _decoded(result)
        values = {**_texts(arguments), RESULT: value_text(result), **_texts(fields or {})}
        if result is None:
            del values[RESULT]
        try:
            return "".join(section.text(values) for section in self.sections)
        except KeyError as error:
            if fields is None and result is not None:
                return value_text(result)
            raise InputError(
                f"{tool}: its answer template needs {{{error.args[0]}}}, and the result {safe_repr(result)} "
                "has no such field: return it, or write the part in brackets"
            ) from error


def read_answer_template(text: Any, parameters: Sequence[Parameter], where: str) -> AnswerTemplate:
    """Read a template and check the arguments in it."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: answer must be a text, got {safe_repr(text)}")
    template = AnswerTemplate(check_text(text), tuple(_sections(text, where)))
    optional = {parameter.name for parameter in parameters if not parameter.positional}
    if name := next((name for name in template.names(optional=False) if name in optional), None):
        raise InputError(
            f"{where}: answer: a call may leave out {name!r}: write its part in brackets, as [ in {{{name}}}]"
        )
    return template


def value_text(value: Any) -> str:
    """Return a value of JSON as text: texts as they are, a list of them with commas, others as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return _number_text(value)
    if isinstance(value, list | tuple) and not any(
        isinstance(item, Mapping | list | tuple) for item in value
    ):
        return ", ".join(map(value_text, value))
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"a tool's result must be JSON, got {safe_repr(value)} ({error})") from error


def _number_text(value: int | float) -> str:
    """Return the number as JavaScript writes it."""
    if isinstance(value, int) or (value == value // 1 and abs(value) < 1e21):
        return str(int(value))
    text = format(Decimal(repr(value)), "f") if 1e-6 <= abs(value) < 1e-4 else repr(value)
    return re.sub(r"e([+-])0", r"e\1", text)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value_text(value) for name, value in values.items() if value is not None}


def _decoded(result: Any) -> Mapping[str, Any] | None:
    """Return the fields of a result that is an object, or its JSON; None if it has none."""
    if isinstance(result, str) and result.lstrip().startswith("{"):
        try:
            result = json.loads(result)
        except (ValueError, RecursionError):
            return None
    return result if isinstance(result, Mapping) else None


def _sections(text: str, where: str) -> list[Section]:
    sections, pieces, opened = list[Section](), list[str | Name](), False
    for doubled, name, mark, literal in (match.groups() for match in _PIECES.finditer(text)):
        if doubled or literal:
            pieces.append(doubled[0] if doubled else literal)
        elif name:
            pieces.append(Name(name))
        elif mark == ("]" if opened else "["):
            sections.append(Section(tuple(pieces), opened))
            pieces, opened = [], not opened
        else:
            raise InputError(
                f"{where}: answer: {text!r:.80} has {mark or '{}'!r} out of place: write names as {{name}}, "
                "optional parts as [part], and the characters themselves twice"
            )
    if opened:
        raise InputError(f"{where}: answer: {text!r:.80} has a [ without a ]: close it, or write [[")
    return [*sections, Section(tuple(pieces), False)]
