"""`Model.call` on a scripted backend: any scores give valid calls, since answers follow the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from helpers.home_tools import CATALOGUE, LIGHT, TOOLS, function
from helpers.toys.chat_models import toy_model
from pydantic import BaseModel

from hamburger_edge import Call, InputError
from hamburger_edge.calls.compact_form import checked_calls, encode
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.dial import Mode
from hamburger_edge.model import Model

SHAPE = {"tools": tuple(TOOLS)}


@pytest.fixture
def model(tokenizer: Tokenizer) -> Iterator[Model]:
    with toy_model(tokenizer, SHAPE) as model:
        yield model


def speller(tokenizer: Tokenizer, text: str) -> Model:
    """Prefers this answer after a prompt of two tokens."""
    model = toy_model(tokenizer, {**SHAPE, "certainty": Certainty(3.0, 1.0)}, template="plain", p_stop=0.0)
    model.backend.say(tokenizer.encode_text(text), prompt=2)
    return model


@pytest.mark.parametrize("mode", ["plain", "verify", "hybrid", "merge"])
def test_any_model_gives_valid_calls(model: Model, mode: Mode) -> None:
    for prompt in ("light", "the fan, please", "x"):
        answer = model.call(prompt, mode=mode, max_tokens=60)
        given = [{"name": call.name, "arguments": call.arguments} for call in answer]
        assert [call.arguments for call in checked_calls(given, CATALOGUE, "calls")] == [
            call.arguments for call in answer
        ]


def test_verify_gives_the_calls_of_plain_decoding(model: Model) -> None:
    plain, verify = (model.call("light", mode=mode, max_tokens=90) for mode in ("plain", "verify"))
    assert plain == verify != []


def test_call_has_name_arguments_and_the_certainty_of_its_answer(tokenizer: Tokenizer) -> None:
    text = encode(checked_calls([LIGHT], CATALOGUE, "calls"), CATALOGUE)
    with speller(tokenizer, text) as model:
        [call] = model.call("hi")
        assert call == Call("LightSet", {"area": "kitchen", "brightness": 50}, call.certainty)
        assert call.certainty == model.generate("hi").certainty is not None
        assert model.generate("hi").text == text


def test_end_of_the_answer_is_an_empty_list(tokenizer: Tokenizer) -> None:
    with speller(tokenizer, "-") as model:
        assert model.call("hi") == []
        assert len(model.call("hi", required=True)) >= 1


def test_names_and_tools_limit_the_answer(tokenizer: Tokenizer) -> None:
    with speller(tokenizer, "TurnOn area kitchen") as model:
        assert model.call("hi", names={"area": ["Kitchen", "Hall"]})[0].arguments == {"area": "Kitchen"}
        assert {call.name for call in model.call("hi", tools=["Days"], required=True)} == {"Days"}
        with pytest.raises(InputError, match="names: no argument 'color' takes a text"):
            model.call("hi", names={"color": ["red"]})
        with pytest.raises(InputError, match="tools: there is no tool 'Fly'"):
            model.call("hi", tools=["Fly"])


class TurnOn(BaseModel):
    area: str | None = None
    name: str | None = None
    domain: Literal["light", "fan", "light fan"] | None = None


def test_arguments_of_a_pydantic_model_are_its_instance(tokenizer: Tokenizer) -> None:
    with speller(tokenizer, "TurnOn area kitchen; domain fan") as model:
        [call] = model.call("hi", tools=[TurnOn])
    assert call.arguments == TurnOn(area="kitchen", domain="fan")


class Timer(BaseModel):
    seconds: int


def test_results_become_text_by_the_templates_of_their_tools(tokenizer: Tokenizer) -> None:
    timer = function("Timer", ("seconds",), seconds={"type": "integer"})
    tools = ({**timer, "answer": "{seconds} seconds[, {name}]."}, function("Stop"))
    with toy_model(tokenizer, {"tools": tools}) as model:
        calls = [Call("Timer", {"seconds": 5}), Call("Timer", Timer(seconds=6)), Call("Stop", {})]
        text = model.result_text(calls, [None, {"name": "tea"}, "stopped"])
        assert text == "5 seconds.\n6 seconds, tea.\nstopped"
        with pytest.raises(InputError, match="there are 3 calls and 1 results: give one for each"):
            model.result_text(calls, [None])


def test_model_without_tools_refuses_calls(tokenizer: Tokenizer) -> None:
    with toy_model(tokenizer) as model:
        with pytest.raises(
            InputError, match=r"this model has no tools to call: make one with .* tune --tools"
        ):
            model.call("hi")
        with pytest.raises(InputError, match="this model has no tools to call"):
            model.generate("hi", calls={})


def test_answer_of_a_conversation_follows_the_tools_too(model: Model) -> None:
    chat = model.chat()
    chat.send("light", max_tokens=30).result()
    assert chat.send("more", max_tokens=30).result().complete is not None
