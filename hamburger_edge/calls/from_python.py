"""Tools from Python: functions with annotations and docstrings, and Pydantic models.

def set_timer(minutes: int, label: str | None = None) -> None:
    \"""Start a kitchen timer.\"""

catalogue = tools_of(my_tools)  # a module, or a list of functions and models

`answer_template` gives a function or model the text that its results are shown in.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from hamburger_edge.calls.catalogue import Catalogue, read_catalogue, read_catalogue_file
from hamburger_edge.calls.compact_form import Call
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import safe_repr

T = TypeVar("T")
_TEMPLATE = "__answer_template__"  # attribute of a function or model
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def read_tools_file(path: Path) -> Catalogue:
    """Read the tools of a JSON file, or run a Python file and read those that it defines."""
    if path.suffix != ".py":
        return read_catalogue_file(path)
    module = types.ModuleType(path.stem)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): name a file of tools") from error
    except Exception as error:  # of the user's own code
        raise InputError(f"{path}: cannot be run ({type(error).__name__}: {error}): correct it") from error
    return tools_of(module)


def answer_template(text: str) -> Callable[[T], T]:
    """Give a function or Pydantic model a template of answers, as a decorator.

    "It is {temperature} degrees[ in {city}]." has fields of the tool's result and arguments of the call, and
    `{result}` for the whole result. A part in brackets is left out if one of its names has no value.
    """

    def with_template(target: T) -> T:
        setattr(target, _TEMPLATE, text)
        return target

    return with_template


def tools_of(source: Any) -> Catalogue:
    """Return the tools of a module, or of a list of functions and Pydantic models.

    Of a module these are its own public functions and models, in their order.
    """
    return read_catalogue([_tool_of(target) for target in targets_of(source).values()])


def targets_of(source: Any) -> dict[str, Any]:
    """Return the functions and models by their names."""
    if inspect.ismodule(source):
        own = [value for name, value in vars(source).items() if not name.startswith("_")]
        members = [value for value in own if getattr(value, "__module__", None) == source.__name__]
        listed = [value for value in members if inspect.isfunction(value) or _is_model(value)]
    else:
        listed = list(source) if isinstance(source, Iterable) else [source]
    if not listed:
        raise InputError(f"{safe_repr(source)} has no public function and no Pydantic model: write one")
    for target in listed:
        if not (inspect.isroutine(target) or _is_model(target)):
            raise InputError(f"tools must be functions or Pydantic models, got {safe_repr(target)}")
    return {target.__name__: target for target in listed}


def typed(calls: Sequence[Call], targets: Mapping[str, Any]) -> list[Call]:
    """Return the calls with the arguments of Pydantic models as their instances."""
    models = {name: target for name, target in targets.items() if _is_model(target)}
    return [
        replace(call, arguments=models[call.name].model_validate(call.arguments))
        if call.name in models
        else call
        for call in calls
    ]


def plain(value: Any) -> Any:
    """Return an instance of a Pydantic model as its fields, any other value as it is."""
    return value.model_dump(mode="json") if _is_model(type(value)) else value


def _is_model(value: Any) -> bool:
    return inspect.isclass(value) and callable(getattr(value, "model_json_schema", None))


def _tool_of(target: Any) -> dict[str, Any]:
    answer = getattr(target, "__dict__", {}).get(_TEMPLATE)  # not that of a parent class
    return {**_function_of(target), **({} if answer is None else {"answer": answer})}


def _function_of(target: Any) -> dict[str, Any]:
    description = inspect.cleandoc(target.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    if _is_model(target):
        schema = target.model_json_schema()
        schema.pop("description", None)
        return {"name": target.__name__, "description": description, "parameters": schema}
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except Exception as error:  # an annotation is any expression
        raise InputError(f"{target.__name__}: its annotations cannot be read ({error})") from error
    properties, required = dict[str, Any](), list[str]()
    for name, parameter in inspect.signature(target).parameters.items():
        where = f"{target.__name__}: {name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InputError(f"{where}: *, ** and positional-only arguments are not supported: name them")
        if name not in hints:
            raise InputError(f"{where} has no annotation: give it a type")
        properties[name] = _schema_of(hints[name], where)
        if parameter.default is parameter.empty:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": target.__name__, "description": description, "parameters": schema}


def _schema_of(hint: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of an annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        return {**_schema_of(arguments[0], where), **({"description": texts[0]} if texts else {})}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if origin is list and arguments:
        return {"type": "array", "items": _schema_of(arguments[0], where)}
    if typing.is_typeddict(hint):
        parts = typing.get_type_hints(hint, include_extras=True)
        properties = {name: _schema_of(part, f"{where}: {name}") for name, part in parts.items()}
        required = [name for name, part in parts.items() if _is_required(hint, name, part)]
        return {"type": "object", "properties": properties, "required": required}
    if origin in (typing.Required, typing.NotRequired):
        return _schema_of(arguments[0], where)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        null = [{"type": "null"}] if len(options) < len(arguments) else []
        return {"anyOf": [*(_schema_of(option, where) for option in options), *null]}
    raise InputError(
        f"{where}: type {safe_repr(hint)} is not supported: use str, int, float, bool, Literal, an Enum, a "
        "TypedDict or a list of these"
    )


def _is_required(typed_dict: Any, name: str, part: Any) -> bool:
    """Whether a TypedDict needs this key. `__required_keys__` misses marks in annotations that are text."""
    mark = typing.get_origin(part)
    if mark in (typing.Required, typing.NotRequired):
        return mark is typing.Required
    return name in typed_dict.__required_keys__
