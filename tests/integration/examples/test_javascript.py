"""The JavaScript terminal programs generate the tokens of the Python package."""

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
    """Merge replacement characters: the decoders differ in how many they write for invalid UTF-8."""
    return re.sub("\ufffd+", "\ufffd", text)


def test_one_answer_equals_python(bundles: Callable[..., Path]) -> None:
    """The package's own tests compare every option of the loop."""
    question, bundle = "Où est le café?", bundles(**LOOPS[1])
    options = ("--confidence", "0.3", "--mode", "verify", "--max-tokens", "40", "--threads", "1")
    done = node("chat.mjs", bundle, question, "--json", *options)
    assert not done.stderr
    answer = json.loads(done.stdout)
    with hamburger_edge.load(bundle, threads=1) as model:
        expected = model.generate(question, confidence=0.3, mode="verify", max_tokens=40)
    assert answer["groups"] == [list(group) for group in expected.groups]
    assert answer["tokens"] == list(expected.tokens)
    assert readable(answer["text"]) == readable(expected.text)


def test_conversation_equals_python(bundle: Path) -> None:
    """The second answer reads the merged groups from the cache; reading them again would change it."""
    questions = ["Name a fruit.", "Another one.", "And why?"]
    options = ("--max-tokens", "30", "--mode", "merge", "--confidence", "0.3")
    done = node("chat.mjs", bundle, *options, lines="\n".join(questions) + "\n")
    with hamburger_edge.load(bundle, threads=1) as model:
        chat = model.chat(mode="merge", confidence=0.3, max_tokens=30)
        answers = ["".join(record.text for record in chat.send(question)) for question in questions]
    assert max(map(len, chat.groups)) > 1
    assert not done.stderr
    assert readable(done.stdout) == readable("> " + "".join(f"{answer}\n> " for answer in answers))


def test_assistant_calls_a_function_for_each_command(bundle: Path, tmp_path: Path) -> None:
    """The schema of the intents constrains a random model that has the markup of a task."""
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
    ("words", "message"),
    [(("Hello", "--confidence", "2"), "confidence"), (("",), "the prompt is empty")],
)
def test_bad_argument_is_an_error_of_one_line(words: tuple[str, ...], message: str, bundle: Path) -> None:
    done = node("chat.mjs", bundle, *words)
    assert done.returncode == 1
    assert re.fullmatch(f"error: .*{message}.*\n", done.stderr)
