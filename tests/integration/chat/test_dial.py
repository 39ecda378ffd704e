"""One rule chooses mode and confidence in Python, the command line, the server and JavaScript."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.nodejs import JAVASCRIPT, needs_node, node
from helpers.serving import serving

import hamburger_edge
import hamburger_edge.cli.main as cli
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import DEFAULT_CONFIDENCE, MODES, Recommended
from hamburger_edge.loop.modes.engine import Engine

SURE, CHECKED, PLAIN = Recommended("hybrid", 0.85), Recommended("verify", 0.6), Recommended("plain", 1.0)
REFUSED = None
Given = dict[str, Any]

QUESTIONS: list[tuple[Recommended, Given, tuple[str, float] | None]] = [
    (SURE, {}, ("hybrid", 0.85)),
    (SURE, {"confidence": 0.9}, ("hybrid", 0.9)),
    (SURE, {"mode": "hybrid"}, ("hybrid", 0.85)),
    (SURE, {"mode": "verify"}, ("verify", 0.8)),
    (CHECKED, {"mode": "hybrid"}, ("hybrid", 0.95)),
    (CHECKED, {"mode": "merge", "confidence": 0.5}, ("merge", 0.5)),
    (CHECKED, {"mode": "plain"}, ("plain", 1.0)),
    (PLAIN, {"mode": "merge"}, ("merge", 0.8)),
    (PLAIN, {"confidence": 0.9}, REFUSED),
    (SURE, {"mode": "plain", "confidence": 0.9}, REFUSED),
]


@pytest.fixture(scope="module")
def recommending(
    bundles: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Recommended], Path]:
    """Toy bundles by the setting that they recommend."""
    parent = tmp_path_factory.mktemp("recommending")

    def saved(setting: Recommended) -> Path:
        folder = parent / str(setting)
        if not folder.exists():
            shutil.copytree(bundles(draft_vocab_size=100), folder)
            replace(load_manifest(folder), recommended=setting).save(folder)
        return folder

    return saved


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Mode and confidence of every run of the engine."""
    dials_of_runs: list[tuple[str, float]] = []
    run = Engine.run

    def watched(engine: Engine, prompt: Any, decoding: Any, *more: Any, **options: Any) -> Any:
        dials_of_runs.append((decoding.mode, decoding.confidence))
        return run(engine, prompt, decoding, *more, **options)

    monkeypatch.setattr(Engine, "run", watched)
    return dials_of_runs


@pytest.mark.parametrize(
    ("recommended", "given", "expected"), QUESTIONS, ids=[f"{r} {g}" for r, g, _ in QUESTIONS]
)
def test_python_command_line_and_server_choose_the_same_dial(
    recommended: Recommended,
    given: Given,
    expected: tuple[str, float] | None,
    recommending: Callable[[Recommended], Path],
    dials: list[tuple[str, float]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = recommending(recommended)
    with hamburger_edge.load(folder, threads=1) as model:

        def configured() -> None:
            chat = model.chat(max_tokens=2)
            chat.configure(**given)
            list(chat.send("hi"))

        calls: list[Callable[[], Any]] = [
            lambda: model.generate("hi", max_tokens=2, **given),
            lambda: list(model.stream("hi", max_tokens=2, **given)),
            lambda: list(model.chat(max_tokens=2, **given).send("hi")),
            configured,
        ]
        for call in calls:
            refused = pytest.raises(InputError, match=r"confidence 0\.9 has no effect in mode 'plain'")
            with refused if expected is REFUSED else nullcontext():
                call()
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    code = cli.main(["run", str(folder), "hi", "--max-tokens", "2", "--threads", "1", *words])
    assert code == ("has no effect" in capsys.readouterr().err) == (expected is REFUSED)
    with serving([("toy", lambda: hamburger_edge.load(folder, threads=1))]) as running:
        answer = running.ask("hi", **given)
        assert answer.status_code == (400 if expected is REFUSED else 200)
        with running.client() as client:  # the model list of the page
            listed = client.get("/v1/models").json()["data"][0]
    assert listed["recommended"] == vars(recommended)
    if expected is REFUSED:
        assert "has no effect" in answer.json()["error"]["message"]
        assert dials == []
    else:
        assert dials == [expected] * 6
        if "mode" in given and "confidence" not in given:
            assert listed["confidences"][given["mode"]] == expected[1]


@needs_node
def test_javascript_chooses_the_same_dial(tmp_path: Path) -> None:
    """The page that runs a model in the browser uses this module too."""
    questions = [(vars(recommended), given) for recommended, given, _ in QUESTIONS]
    script = tmp_path / "ask.mjs"
    module = (JAVASCRIPT / "loop" / "dial.js").as_uri()
    script.write_text(
        f"""import {{ DEFAULT_CONFIDENCE, setDial }} from {json.dumps(module)};
        const dial = (recommended, given) => {{
          try {{ return setDial(given, recommended); }} catch (error) {{ return error.message; }}
        }};
        const answers = {json.dumps(questions)}.map(([recommended, given]) => dial(recommended, given));
        console.log(JSON.stringify([DEFAULT_CONFIDENCE, answers]));"""
    )
    table, answers = json.loads(node(script))
    assert table == dict(DEFAULT_CONFIDENCE)
    assert list(table) == list(MODES)
    for answer, (_, _, expected) in zip(answers, QUESTIONS, strict=True):
        if expected is REFUSED:
            assert answer.startswith('confidence 0.9 has no effect in mode "plain"')
        else:
            assert (answer["mode"], answer["confidence"]) == expected


def test_conversation_keeps_its_mode_until_configured(recommending: Callable[[Recommended], Path]) -> None:
    with hamburger_edge.load(recommending(SURE), threads=1) as model:
        chat = model.chat(mode="merge", confidence=0.5)
        steps: list[tuple[Given, tuple[str, float]]] = [
            ({"confidence": 0.7}, ("merge", 0.7)),
            ({"temperature": 0.5}, ("merge", 0.7)),
            ({"mode": "merge"}, ("merge", 0.7)),
            ({"mode": "verify"}, ("verify", 0.8)),
            ({"mode": "hybrid"}, ("hybrid", 0.85)),  # as recommended for this mode
            ({"mode": "plain"}, ("plain", 1.0)),
        ]
        for change, expected in steps:
            chat.configure(**change)
            assert (chat.settings.decoding.mode, chat.settings.decoding.confidence) == expected
        with pytest.raises(InputError, match="which holds here because none is given"):
            chat.configure(confidence=0.9)
        assert chat.settings.decoding.mode == "plain"
