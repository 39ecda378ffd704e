"""Tools travel from a checkpoint into its bundle, and the command line prints their calls."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.home_tools import CATALOGUE
from helpers.toys.exports import export
from helpers.toys.manifests import write_manifest
from helpers.toys.toy_bundles import saved_toy

from hamburger_edge import load
from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.calls.compact_form import checked_calls
from hamburger_edge.cli.main import main
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.models.checkpoints.facts import write_into


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = saved_toy(tmp_path_factory.mktemp("calls") / "checkpoint")
    write_into(checkpoint, tools=CATALOGUE.to_json())
    return checkpoint


@pytest.fixture(scope="module")
def tool_bundle(checkpoint: Path) -> Path:
    return export(checkpoint, checkpoint.with_name("bundle"), precision="fp32", verify=False)


def test_bundle_has_the_tools_of_its_checkpoint(checkpoint: Path, tool_bundle: Path) -> None:
    assert load_manifest(tool_bundle).tools == tuple(CATALOGUE.to_json())
    assert "tools       TurnOn, TurnOnAll, LightSet, AddItems, " in show(describe(tool_bundle))
    with load(checkpoint, "torch") as model, load(tool_bundle, threads=1) as exported:
        assert model.tools == exported.tools == CATALOGUE
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
