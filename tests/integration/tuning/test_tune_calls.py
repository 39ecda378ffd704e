"""`tune` on examples of calls: the model generates valid calls, and its report scores each tool."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.home_tools import STRING, function
from helpers.toys import toy_tuning
from helpers.toys.toy_tasks import write_base

from hamburger_edge import load
from hamburger_edge.calls.catalogue import read_catalogue
from hamburger_edge.calls.compact_form import checked_calls
from hamburger_edge.cli.main import main
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.tuning.tune_recipe import TuneRecipe, write_tune_recipe

pytestmark = pytest.mark.slow

TOOLS = [function("On", ("area",), area=STRING), function("Off", ("area",), area=STRING), function("Dim")]
TUNING = replace(toy_tuning.PLAIN, stages=(replace(toy_tuning.TUNED, epochs=1.0),))


def write_calls(path: Path, count: int) -> Path:
    draw, rows = random.Random(0), list[str]()
    for number in range(count):
        area = "".join(draw.choice("abcde") for _ in range(3))
        name = ("On", "Off")[number % 2]
        calls = [{"name": name, "arguments": {"area": area}}] if number % 5 else []
        rows.append(json.dumps({"prompt": f"{name} {area} {number}", "calls": calls}) + "\n")
    path.write_text("".join(rows))
    return path


def test_tuned_model_has_the_tools_and_its_report_their_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    recipe = TuneRecipe(
        base=str(write_base(tmp_path / "base", layers=2)),
        examples=str(write_calls(tmp_path / "examples.jsonl", 200)),
        tools=str(tools),
        share=0.1,
        precision="fp32",
        evaluation=EvaluationPlan(prompts=20, points=49.0, confidences=(0.0,), quick=True),
        tuning=TUNING,
    )
    write_tune_recipe(tmp_path / "recipe.toml", recipe)
    made, figures = tmp_path / "made", tmp_path / "figures.json"
    command = [*toy_tuning.COMMAND, "--recipe", str(tmp_path / "recipe.toml"), "-o", str(made)]
    assert main([*command, "--report", str(figures)]) == 0
    assert "fewer than 20 examples: Dim (0): write more of these" in capsys.readouterr().out
    report = json.loads(figures.read_text())
    assert [row["name"] for row in report["choosing"]] == ["plain", "verify-0.0"]
    assert [tool["name"] for tool in report["tools"]] == ["On", "Off", "Dim", "no call"]
    assert report["tools"][0]["examples"] > 40
    assert {"functions", "arguments"} == set(report["plain"]["figures"])
    card = (made / "README.md").read_text()
    assert "- Values of `area` are always spans of the prompt." in card
    assert report["values_not_in_the_prompt"] == 0
    assert "| tool | examples | held out | right function | right arguments | right call |" in card
    # fewer than 50 prompts are held out: those of the calibration part judge, too
    assert re.search(
        r"\| held out, judging \| \d+, by a hash of the prompt, and the \d+ that calibrate \|", card
    )
    catalogue = read_catalogue(TOOLS)
    with load(tmp_path / "made.bundle", threads=1) as model:
        assert model.tools == catalogue
        assert model.info.copied_fields == ("area",)
        calls = [{"name": call.name, "arguments": call.arguments} for call in model.call("On abc 9")]
        checked_calls(calls, catalogue, "calls")
        assert model.info.max_group_tokens == 1
        plain = model.generate("On abc 9", mode="plain")
        for mode in ("hybrid", "merge"):
            answer = model.generate("On abc 9", mode=mode, confidence=0.0)
            assert (answer.text, answer.stats.slots) == (plain.text, plain.stats.slots)
