"""Tools travel from a checkpoint into its bundle, and the command line prints their calls."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import openai
import pytest
from helpers.home_tools import CATALOGUE, TOOLS
from helpers.nodejs import needs_node, node
from helpers.serving import serving
from helpers.toys.exports import export
from helpers.toys.manifests import read_manifest, write_manifest
from helpers.toys.toy_bundles import saved_toy

from hamburger_edge import load
from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.calls.compact_form import checked_calls
from hamburger_edge.calls.parameters import strings_in
from hamburger_edge.cli.main import main
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.models.checkpoints.facts import write_into

DIMMED = "Dimmed to {brightness}[ in the {area}]."
WITH_ANSWER = [*TOOLS[:2], {**TOOLS[2], "answer": DIMMED}, *TOOLS[3:]]
COPIED = ["area", "name", "items", "title", "guests.name"]  # arguments whose strings are spans of the prompt
NAMES = [tool.name for tool in CATALOGUE.tools]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = saved_toy(tmp_path_factory.mktemp("calls") / "checkpoint")
    write_into(checkpoint, tools=WITH_ANSWER, copied_fields=COPIED)
    return checkpoint


@pytest.fixture(scope="module")
def tool_bundle(checkpoint: Path) -> Path:
    return export(checkpoint, checkpoint.with_name("bundle"), precision="fp32", verify=False)


def test_bundle_has_the_tools_of_its_checkpoint(checkpoint: Path, tool_bundle: Path) -> None:
    assert load_manifest(tool_bundle).tools == tuple(WITH_ANSWER)
    assert load_manifest(tool_bundle).copied_fields == tuple(COPIED)
    assert "tools       TurnOn, TurnOnAll, LightSet, AddItems, " in show(describe(tool_bundle))
    with load(checkpoint, "torch") as model, load(tool_bundle, threads=1) as exported:
        assert model.tools == exported.tools == CATALOGUE
        assert model.tools.to_json() == WITH_ANSWER
        assert model.call("lights", max_tokens=40) == exported.call("lights", max_tokens=40)


def test_command_line_prints_calls_as_json(
    tool_bundle: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["run", str(tool_bundle), "lights", "--calls", "--max-tokens", "40", "--threads", "1"]
    assert main(command) == 0
    calls = json.loads(capsys.readouterr().out)
    assert [call.name for call in checked_calls(calls, CATALOGUE, "calls")] == [
        call["name"] for call in calls
    ]
    names = tmp_path / "names.json"
    names.write_text('{"color": ["red"]}')
    for given in (str(names), names.read_text()):
        assert main([*command, "--names", given]) == 1
        assert "error: names: no argument 'color' takes a text (known: " in capsys.readouterr().err
    assert main([*command, "--raw"]) == 1
    assert "--calls prints calls of a prompt: leave --raw" in capsys.readouterr().err


def test_command_line_prints_the_certainty_of_no_call(
    tool_bundle: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tool_bundle, bundle)
    write_manifest(
        bundle, read_manifest(bundle) | {"certainty": {"offset": 0.0, "slope": 0.0}}
    )  # at most 0.5
    command = ["run", str(bundle), "lights", "--calls", "--max-tokens", "1", "--threads", "1"]
    assert main(command) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == []
    assert "no call: the certainty is 0" in output.err
    assert main([*command, "--min-certainty", "0.9", "--json"]) == 3
    output = capsys.readouterr()
    answer = json.loads(output.out)
    assert answer == {"calls": [], "certainty": answer["certainty"], "unsure": True}
    assert "unsure: the certainty of no call is 0" in output.err


def test_command_line_refuses_calls_of_a_model_without_tools(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(bundle), "lights", "--calls", "--threads", "1"]) == 1
    assert re.search(r"error: this model has no tools to call: .* tune --tools", capsys.readouterr().err)


def test_bundle_with_malformed_tools_is_refused(tool_bundle: Path, tmp_path: Path) -> None:

    write_manifest(
        tmp_path, json.loads((tool_bundle / "manifest.json").read_text()) | {"tools": [{"name": "a b"}]}
    )
    with pytest.raises(BundleError, match=r"tools\[0\]: a tool's name must be 1 to 64 letters"):
        load_manifest(tmp_path)


def test_tools_of_a_bundle_can_be_limited(tool_bundle: Path) -> None:
    with load(tool_bundle, threads=1) as model:
        [call] = model.call("lights", tools=["LightSet"], required=True, several=False, max_tokens=40)
        assert call.name == "LightSet"
        with pytest.raises(InputError, match="tools: there is no tool 'Fly'"):
            model.call("lights", tools=["Fly"])


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("lights", {"required": True}),
    ("the fan in the kitchen, please", {"required": True, "several": False}),
    ("hello", {}),
    ("half", {"tools": ["LightSet", "Climate"], "required": True}),
    ("invite Ann and Bob", {"tools": ["AddEvent"], "required": True}),
    ("kids", {"names": {"area": ["Kids Room", "Hall"]}, "tools": ["TurnOn"], "required": True}),
]


RESULT = '{"brightness": 0.1, "days": ["mon", 2], "off": false}'


@needs_node
def test_python_javascript_and_server_give_the_same_calls(tool_bundle: Path) -> None:
    options: dict[str, Any] = {"max_tokens": 40, "mode": "verify"}
    with load(tool_bundle, threads=1) as model:
        answers = [model.call(prompt, **options, **limits) for prompt, limits in ASKED]
        texts = [model.result_text(calls, [RESULT] * len(calls)) for calls in answers]
    expected = [[{"name": call.name, "arguments": call.arguments} for call in calls] for calls in answers]
    assert "Dimmed to 0.1" in "".join(texts)
    assert sum(map(len, expected)) >= 5
    for (prompt, limits), calls in zip(ASKED, answers, strict=True):
        assert all(
            path not in COPIED or path in limits.get("names", {}) or text in f"user\n{prompt}\nassistant"
            for call in calls
            for path, text in strings_in(call.arguments, CATALOGUE.tool(call.name, "calls").parameters)
        )
    prompts = [(prompt, {"maxTokens": 40, "mode": "verify", **limits}) for prompt, limits in ASKED]
    output = node("tests/calls.mjs", bundle=tool_bundle, prompts=json.dumps(prompts), result=RESULT)
    called = [json.loads(line) for line in output.splitlines()]
    assert [
        [{key: call[key] for key in ("name", "arguments")} for call in answer["calls"]] for answer in called
    ] == expected
    assert [answer["text"] for answer in called] == texts
    with serving(lambda: load(tool_bundle, threads=1)) as server:
        for (prompt, limits), calls in zip(ASKED[:-1], expected[:-1], strict=True):
            fields: dict[str, Any] = {"tool_choice": "required" if limits.get("required") else "auto"}
            tools = [tool for tool in TOOLS if tool["function"]["name"] in limits.get("tools", NAMES)]
            several = limits.get("several", True)
            response = server.ask(
                prompt, tools=tools, parallel_tool_calls=several, **options, **fields
            ).json()
            functions = [call["function"] for call in response["choices"][0]["message"].get("tool_calls", [])]
            assert [{**each, "arguments": json.loads(each["arguments"])} for each in functions] == calls


def test_openai_client_gets_the_filled_template_as_the_last_answer(tool_bundle: Path) -> None:
    with (
        serving(lambda: load(tool_bundle, threads=1)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        dim = {"type": "function", "function": {"name": "LightSet"}}
        request: Any = {"model": server.pool.find(None).name, "tools": TOOLS, "max_tokens": 40}
        messages: list[Any] = [{"role": "user", "content": "lights"}]
        called = client.chat.completions.create(
            messages=messages, tool_choice=dim, parallel_tool_calls=False, **request
        )
        message = called.choices[0].message
        [call] = message.tool_calls or ()
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": '{"area": "hall"}'}]
        answer = client.chat.completions.create(messages=messages, **request)
        brightness = json.loads(call.function.arguments)["brightness"]
        assert answer.choices[0].message.content == f"Dimmed to {brightness} in the hall."
        assert answer.usage is not None
        assert answer.usage.total_tokens == 0
        streamed = client.chat.completions.create(messages=messages, stream=True, **request)
        pieces = [chunk.choices[0].delta.content or "" for chunk in streamed]
        assert "".join(pieces) == answer.choices[0].message.content
        messages[-1] = {"role": "tool", "tool_call_id": "other", "content": "x"}
        with pytest.raises(openai.BadRequestError, match="tool_call_id 'other' is no id of a call"):
            client.chat.completions.create(messages=messages, **request)
