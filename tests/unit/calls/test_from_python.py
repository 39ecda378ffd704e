"""Tools from functions and Pydantic models."""

from __future__ import annotations

import enum
import types
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from hamburger_edge.calls.catalogue import read_catalogue
from hamburger_edge.calls.from_python import read_tools_file, tools_of
from hamburger_edge.errors import InputError


class Mode(enum.Enum):
    ECO = "eco"
    AWAY = "away"


def set_timer(minutes: int, label: Annotated[str | None, "its name"] = None, days: list[str] = []) -> None:  # noqa: B006
    """Start a timer.

    It rings at the end.
    """


def set_mode(mode: Mode, speed: Literal["slow", "fast"], exact: bool = False, degrees: float = 0.5) -> None:
    pass


class SetTimer(BaseModel):
    """Start a timer."""

    minutes: int = Field(ge=1, le=90)
    label: str | None = None
    mode: Mode = Mode.ECO


def test_function_becomes_a_tool_by_its_annotations_and_docstring() -> None:
    timer, mode = tools_of([set_timer, set_mode]).tools
    assert (timer.name, timer.description) == ("set_timer", "Start a timer.")
    assert timer.to_json()["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "minutes": {"type": "integer"},
            "label": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "its name"},
            "days": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["minutes"],
    }
    assert [parameter.kind for parameter in mode.parameters] == ["choice", "choice", "choice", "number"]
    assert list(mode.parameters[0].choices) == ["eco", "away"]


def test_pydantic_model_becomes_a_tool_by_its_schema() -> None:
    [tool] = tools_of([SetTimer]).tools
    assert (tool.name, tool.description) == ("SetTimer", "Start a timer.")
    minutes, label, mode = tool.parameters
    assert (minutes.low, minutes.high, minutes.required) == (1, 90, True)
    assert (label.nullable, label.required) == (True, False)
    assert list(mode.choices) == ["eco", "away"]
    assert read_catalogue([tool.to_json()]).tools == (tool,)


class Guest(TypedDict):
    name: str
    age: NotRequired[int]


class Place(BaseModel):
    room: str
    floor: int | None = None


class AddEvent(BaseModel):
    places: list[Place]


def invite(guests: list[Guest]) -> None:
    pass


def test_objects_come_from_typed_dictionaries_and_nested_models() -> None:
    typed, model = tools_of([invite, AddEvent]).tools
    [guests], [places] = typed.parameters, model.parameters
    for parameter in (guests, places):
        assert (parameter.kind, parameter.is_list) == ("object", True)
    assert [(one.name, one.required) for one in guests.properties] == [("name", True), ("age", False)]
    assert [(one.name, one.positional) for one in places.properties] == [("room", True), ("floor", False)]


def test_module_gives_its_own_public_functions_and_models() -> None:
    module = types.ModuleType("my_tools")
    local: dict[str, Any] = {"__name__": "my_tools"}
    exec("def play(song: str): pass\ndef _hidden(x): pass\nNUMBER = 3", local)
    vars(module).update(play=local["play"], _hidden=local["_hidden"], NUMBER=3, SetTimer=SetTimer)
    assert [tool.name for tool in tools_of(module).tools] == ["play"]


def no_type(song) -> None:  # type: ignore[no-untyped-def]
    pass


def many(*songs: str) -> None:
    pass


def mapping(songs: dict[str, str]) -> None:
    pass


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ([no_type], "no_type: song has no annotation: give it a type"),
        ([many], "many: songs: \\*, \\*\\* and positional-only arguments are not supported"),
        ([mapping], "mapping: songs: type dict\\[str, str\\] is not supported: use str"),
        ([], "has no public function and no Pydantic model"),
        ([3], "tools must be functions or Pydantic models, got 3"),
        (3, "tools must be functions or Pydantic models, got 3"),
    ],
)
def test_unsupported_source_is_refused(source: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        tools_of(source)


def test_python_file_gives_its_tools(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from pydantic import BaseModel\n"
        "class Dim(BaseModel):\n    level: int\n    area: str | None = None\n"
        "def play(song: str) -> None:\n    '''Play a song.'''\n"
    )
    assert [tool.name for tool in read_tools_file(path).tools] == ["Dim", "play"]
    path.write_text("import nothing_like_that")
    with pytest.raises(InputError, match=r"tools\.py: cannot be run \(ModuleNotFoundError: "):
        read_tools_file(path)
    with pytest.raises(InputError, match=r"none\.py: cannot be read \(No such file or directory\)"):
        read_tools_file(tmp_path / "none.py")
