"""The loop in another language, written from docs/spec/loop.md alone, says what this program says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

import hamburger_edge

HERE = ROOT / "examples" / "javascript"
NODE = shutil.which("node")

needs_node = pytest.mark.skipif(
    NODE is None or not (HERE / "node_modules" / ".package-lock.json").is_file(),  # npm writes it last
    reason="no node, or its packages are missing: cd examples/javascript && npm install --ignore-scripts",
)


def node(bundle: Path, *words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(HERE / "chat.mjs"), str(bundle), *words, "--threads", "1"]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)


def readable(text: str) -> str:
    """Random models say bytes that are no text; how many signs stand for them is a matter of taste."""
    return re.sub("\ufffd+", "\ufffd", text)


@needs_node
@pytest.mark.parametrize(
    "changes",
    [
        {"shortlist_size": 100},
        {"shortlist_size": 100, "flavor": "portable"},
        {"position_rule": "slot"},
        {"position_rule": "slot", "flavor": "portable"},
        {"stop_rule": "after", "shortlist_size": 100},
        {"stop_rule": "after", "position_rule": "slot"},
    ],
    ids=lambda changes: " ".join(str(value) for value in changes.values()),
)
def test_node_says_the_same(changes: dict[str, Any], bundles: Callable[..., Path]) -> None:
    bundle = bundles(**changes)
    sizes = set()
    with hamburger_edge.load(bundle, threads=1) as model:
        for confidence, mode in ((0.0, "trust"), (0.45, "trust"), (1.0, "trust"), (0.3, "verify")):
            done = node(
                bundle,
                "Où est le café?",
                "--confidence",
                str(confidence),
                "--mode",
                mode,
                "--max-tokens",
                "40",
                "--json",
            )
            assert not done.stderr
            said = json.loads(done.stdout)
            here = model.generate("Où est le café?", confidence=confidence, mode=mode, max_tokens=40)
            assert said["groups"] == [list(group) for group in here.groups]
            assert said["tokens"] == list(here.tokens)
            assert readable(said["text"]) == readable(here.text)
            sizes |= {len(group) for group in here.groups}
    assert len(sizes) > 1


@needs_node
def test_node_goes_on_with_a_conversation(bundle: Path) -> None:
    """Merged groups stay in its cache: a second answer that read them anew would be another one."""
    questions = ["Name a fruit.", "Another one.", "And why?"]
    done = node(bundle, "--max-tokens", "30", "--confidence", "0.3", lines="\n".join(questions) + "\n")
    with hamburger_edge.load(bundle, threads=1) as model:
        chat = model.chat(confidence=0.3, max_tokens=30)
        answers = ["".join(record.text for record in chat.send(question)) for question in questions]
    assert not done.stderr
    assert readable(done.stdout) == readable("> " + "".join(f"{answer}\n> " for answer in answers))


@needs_node
def test_node_says_what_is_wrong_in_a_line(bundle: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundle, broken)
    (broken / "base.onnx").unlink()
    for folder, words, said in (
        (tmp_path / "nowhere", ("Hello",), "manifest.json"),
        (broken, ("Hello",), "base.onnx"),
        (bundle, ("x" * 5000,), "capacity"),
        (bundle, ("Hello", "--confidence", "2"), "confidence"),
        (bundle, ("Hello", "--confidence", ""), "confidence"),
        (bundle, ("",), "the prompt is empty"),
    ):
        done = node(folder, *words)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


@needs_node
def test_node_repeats_an_end_token_only_where_it_is_none(bundle: Path) -> None:
    """After an answer that ended with its end token, that is not written twice; any other token is."""
    program = (
        f"import {{ Text }} from {json.dumps((HERE / 'text.mjs').as_uri())};\n"
        "const [tokenizer, last, ends] = JSON.parse(process.argv[1]);\n"
        "const says = (role, content) => ({ role, content });\n"
        "const turn = [says('user', 'a'), says('assistant', 'b'), says('user', 'c')];\n"
        "const text = new Text(tokenizer, {after_answer: 'x'}, ends);\n"
        "console.log(JSON.stringify(text.conversation(turn, 2, last)));"
    )
    tokenizer = json.loads((bundle / "tokenizer.json").read_text())
    with hamburger_edge.load(bundle, threads=1) as model:
        x, c = model.encode("x"), model.encode("c")
    assert len(x) == len(c) == 1
    for last, ends, expected in ((x[0], x, c), (x[0], [], [*x, *c]), (c[0], c, [*x, *c])):
        given = json.dumps([tokenizer, last, ends])
        done = subprocess.run(
            [str(NODE), "--input-type=module", "-e", program, given],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == expected
