"""The example of home commands: the parser first, then the model, and neither for other sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.places import ROOT, script

REASON = "run  pip install hassil==3.12.1 home-assistant-intents==2026.10.27"
pytest.importorskip("hassil", reason=REASON)
pytest.importorskip("home_assistant_intents", reason=REASON)

HOME = {
    "area": ["kitchen", "office"],
    "floor": ["upstairs"],
    "name": {"light": ["desk lamp"], "lock": ["gate"]},
}


class ScriptedModel:
    """Calls for listed sentences, and a record of all requests."""

    def __init__(self, calls: Mapping[str, Sequence[Any]]):
        self.calls, self.requests = calls, list[tuple[str, Any]]()

    def call(self, text: str, *, names: Mapping[str, Sequence[str]]) -> Sequence[Any]:
        self.requests.append((text, names))
        return self.calls.get(text, [])


@pytest.fixture(scope="module")
def example() -> Any:
    return script(ROOT / "examples" / "home_commands.py", "example_home_commands")


def test_parser_answers_its_own_sentences_and_the_model_is_not_asked(example: Any) -> None:
    model = ScriptedModel({})
    parse = example.make_parser(HOME)
    sentences = {
        "turn on the lights in the kitchen": ("HassTurnOn", {"area": "kitchen", "domain": "light"}),
        "set desk lamp brightness to 40%": ("HassLightSet", {"name": "desk lamp", "brightness": 40}),
        "lock the gate": ("HassTurnOn", {"name": "gate"}),
        "turn off the lights": ("HassTurnOff", {"domain": "light"}),
    }
    for text, call in sentences.items():
        assert example.understand(text, parse, model, HOME) == ("parser", [call]), text
    assert not model.requests


def test_model_answers_what_the_parser_does_not_understand(example: Any) -> None:
    text = "could somebody kill the lights in the kitchen"
    sure = SimpleNamespace(
        name="HassTurnOff", arguments={"area": "kitchen", "domain": "light"}, certainty=0.9
    )
    model = ScriptedModel({text: [sure], "dim it": [SimpleNamespace(name="", arguments={}, certainty=0.3)]})
    parse = example.make_parser(HOME)
    assert example.understand(text, parse, model, HOME) == ("model", [(sure.name, sure.arguments)])
    assert example.understand("the movie was boring", parse, model, HOME) == ("nobody", [])
    assert example.understand("dim it", parse, model, HOME) == ("nobody", [])  # below the certainty
    assert model.requests[0] == (text, example.names_of(HOME))


def test_names_of_the_home_limit_the_values_of_each_function(example: Any) -> None:
    names = example.names_of(HOME)
    assert names["area"] == ["kitchen", "office"]
    assert names["HassTurnOn.name"] == names["HassGetState.name"] == ["desk lamp", "gate"]
    assert names["HassLightSet.name"] == ["desk lamp"]
    assert "HassFanSetSpeed.name" not in names  # no fan has a name in this home
    assert "HassStartTimer.name" not in names  # people name timers as they like
