"""The terminal program on the package for JavaScript says what this program says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.goldens import LOOPS
from helpers.nodejs import NODE, needs_node
from helpers.places import ROOT

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


def node(program: str, *words: str | Path, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(HERE / program), *map(str, words)]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)


def readable(text: str) -> str:
    """Random models say bytes that are no text; how many signs stand for them is a matter of taste."""
    return re.sub("\ufffd+", "\ufffd", text)


def test_one_answer_is_python_s(bundles: Callable[..., Path]) -> None:
    """Every option of the loop is compared in the package's own tests."""
    question, bundle = "Où est le café?", bundles(**LOOPS[1])
    options = ("--confidence", "0.3", "--mode", "verify", "--max-tokens", "40", "--threads", "1")
    done = node("chat.mjs", bundle, question, "--json", *options)
    assert not done.stderr
    said = json.loads(done.stdout)
    with hamburger_edge.load(bundle, threads=1) as model:
        here = model.generate(question, confidence=0.3, mode="verify", max_tokens=40)
    assert said["groups"] == [list(group) for group in here.groups]
    assert said["tokens"] == list(here.tokens)
    assert readable(said["text"]) == readable(here.text)


def test_a_conversation_is_python_s(bundle: Path) -> None:
    """Merged groups stay in its cache: a second answer that read them anew would be another one."""
    questions = ["Name a fruit.", "Another one.", "And why?"]
    options = ("--max-tokens", "30", "--mode", "merge", "--confidence", "0.3")
    done = node("chat.mjs", bundle, *options, lines="\n".join(questions) + "\n")
    with hamburger_edge.load(bundle, threads=1) as model:
        chat = model.chat(mode="merge", confidence=0.3, max_tokens=30)
        answers = ["".join(record.text for record in chat.send(question)) for question in questions]
    assert max(map(len, chat.groups)) > 1
    assert not done.stderr
    assert readable(done.stdout) == readable("> " + "".join(f"{answer}\n> " for answer in answers))


def test_the_assistant_calls_a_function_for_each_command(bundle: Path, tmp_path: Path) -> None:
    """A random model, with the markup of a task, is held to the schema of the intents all the same."""
    task = Path(shutil.copytree(bundle, tmp_path / "task"))
    markup = {"before_user": "<|im_start|>", "after_user": "<|im_end|>", "after_answer": "<|im_end|>"}
    replace(load_manifest(task), chat_template=markup).save(task)
    done = node("assistant.mjs", task, lines="play some jazz\nwill it rain\n")
    assert not done.returncode, done.stderr
    first, second, last = (line.removeprefix("> ") for line in done.stdout.splitlines())
    cut = "error: Model response did not contain a tool call"
    for answer in (first, second):
        assert re.match(rf"[A-Z]\w+: .|{cut}", answer)
    assert not last
    assert "usage: node assistant.mjs BUNDLE" in node("assistant.mjs").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [(("Hello", "--confidence", "2"), "confidence"), (("",), "the prompt is empty")],
)
def test_what_is_wrong_is_said_in_a_line(words: tuple[str, ...], said: str, bundle: Path) -> None:
    done = node("chat.mjs", bundle, *words)
    assert done.returncode == 1
    assert re.fullmatch(f"error: .*{said}.*\n", done.stderr)
