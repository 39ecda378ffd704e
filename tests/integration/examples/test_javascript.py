"""The terminal program on the package for JavaScript says what this program says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from goldens import LOOPS
from nodejs import NODE, needs_node
from places import ROOT

import hamburger_edge
from hamburger_edge.bundle.reading import load_manifest

HERE = ROOT / "examples" / "javascript"
pytestmark = [
    needs_node,
    pytest.mark.skipif(
        not (HERE / "node_modules" / ".package-lock.json").is_file(),  # written last
        reason="packages are missing: cd examples/javascript && npm install --ignore-scripts",
    ),
]


def node(bundle: Path, *words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(HERE / "chat.mjs"), str(bundle), *words, "--threads", "1"]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)


def readable(text: str) -> str:
    """Random models say bytes that are no text; how many signs stand for them is a matter of taste."""
    return re.sub("\ufffd+", "\ufffd", text)


@pytest.mark.parametrize(("changes", "mode"), [(LOOPS[0], "merge"), (LOOPS[1], "verify")], ids=str)
def test_node_says_the_same(changes: dict[str, Any], mode: str, bundles: Callable[..., Path]) -> None:
    """Every option of the loop is compared in the package's own tests."""
    question, bundle = "Où est le café?", bundles(**changes)
    done = node(bundle, question, "--confidence", "0.3", "--mode", mode, "--max-tokens", "40", "--json")
    assert not done.stderr
    said = json.loads(done.stdout)
    with hamburger_edge.load(bundle, threads=1) as model:
        here = model.generate(question, confidence=0.3, mode=mode, max_tokens=40)
    assert said["groups"] == [list(group) for group in here.groups]
    assert said["tokens"] == list(here.tokens)
    assert readable(said["text"]) == readable(here.text)
    assert mode == "verify" or max(map(len, here.groups)) > 1


def test_node_goes_on_with_a_conversation(bundle: Path) -> None:
    """Merged groups stay in its cache: a second answer that read them anew would be another one."""
    questions = ["Name a fruit.", "Another one.", "And why?"]
    options = "--max-tokens 30 --mode merge --confidence 0.3".split()  # noqa: SIM905
    done = node(bundle, *options, lines="\n".join(questions) + "\n")
    with hamburger_edge.load(bundle, threads=1) as model:
        chat = model.chat(mode="merge", confidence=0.3, max_tokens=30)
        answers = ["".join(record.text for record in chat.send(question)) for question in questions]
    assert not done.stderr
    assert readable(done.stdout) == readable("> " + "".join(f"{answer}\n> " for answer in answers))


def test_the_assistant_calls_a_function_for_each_command(bundle: Path, tmp_path: Path) -> None:
    """A random model, with the markup of a task, is held to the schema of the intents all the same."""
    task = Path(shutil.copytree(bundle, tmp_path / "task"))
    markup = {"before_user": "<|im_start|>", "after_user": "<|im_end|>", "after_answer": "<|im_end|>"}
    replace(load_manifest(task), chat_template=markup).save(task)
    command = [str(NODE), str(HERE / "assistant.mjs"), str(task)]
    lines = "play some jazz\nwill it rain\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert not done.returncode, done.stderr
    first, second, last = (line.removeprefix("> ") for line in done.stdout.splitlines())
    for answer in (first, second):
        assert re.match(
            r"[A-Z]\w+: .|error: Model response did not contain a tool call", answer
        )  # it was cut
    assert not last
    done = subprocess.run(command[:2], capture_output=True, text=True, timeout=60, check=False)
    assert "usage: node assistant.mjs BUNDLE" in done.stderr


def test_node_says_what_is_wrong_in_a_line(bundle: Path, tmp_path: Path) -> None:
    for folder, words, said in (
        (tmp_path / "nowhere", ("Hello",), "manifest.json"),
        (bundle, ("Hello", "--confidence", "2"), "confidence"),
        (bundle, ("",), "the prompt is empty"),
    ):
        done = node(folder, *words)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
