"""Each code block of README and guide runs, or has a mark with the reason."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.nodejs import INSTALLED, JAVASCRIPT, PACKAGES, node
from helpers.places import ROOT
from helpers.serving import served
from helpers.toys.toy_bundles import saved_toy

GUIDE = ROOT / "docs" / "guide"
PAGES = {page.name: page for page in (ROOT / "README.md", *sorted(GUIDE.glob("*.md")))}
FIRST = "first-answer.md"  # makes the bundle of the other pages
MARK = r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?"
BLOCK = re.compile(rf"^{MARK}```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    language: str
    text: str
    reason: str | None  # REASON of a mark <!-- not run: REASON --> before the block


def blocks(page: Path) -> list[Block]:
    matches = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["text"], match["reason"]) for match in matches]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with the commands of this environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.fixture(scope="module")
def first_answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `my-bundle` of the guide's first page, which the other pages use."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_page(PAGES[FIRST])
    return folder / "my-bundle"


def run_page(page: Path, port: int = 8080) -> None:
    """Run the blocks in order in one folder, the Python blocks as one program."""
    names: dict[str, object] = {"__name__": page.name}
    for number, block in enumerate(blocks(page), 1):
        if block.reason is not None or block.language == "text":
            continue
        text = block.text.replace(":8080", f":{port}")
        if block.language == "python":
            exec(compile(text, f"{page.name}, block {number}", "exec"), names)
        elif block.language == "js":
            run_javascript(text)
        else:
            run_shell(text)


def run_javascript(text: str) -> None:
    """Run a program in a folder that has the package installed."""
    if not Path("node_modules").exists():
        Path("node_modules").mkdir()
        Path("node_modules", "hamburger-edge").symlink_to(JAVASCRIPT)
        for name in ("ai", "zod"):
            Path("node_modules", name).symlink_to(PACKAGES / name)
    node("--input-type=module", "-e", text, folder=Path.cwd())


def run_shell(text: str) -> None:
    """Run our own commands in this process, because PyTorch is slow to start, and others in a shell."""
    from hamburger_edge.cli.main import main

    commands = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    if any(words[0] != "hamburger-edge" or set(words) & {"|", "&&", ">"} for words in commands):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], timeout=300)
        if done.returncode and commands[0][:2] == ["pip", "download"]:
            pytest.skip(f"{shlex.join(commands[0])}: this needs a package index")
        done.check_returncode()
        return
    for words in commands:
        try:
            code: object = main(words[1:])
        except SystemExit as end:  # --help and --version
            code = end.code
        assert not code, shlex.join(words)


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name in PAGES if name != FIRST])
def test_code_blocks_of_a_page_run(page: str, here: Path, first_answer: Path) -> None:
    if page == "hugging-face.md":
        pytest.importorskip("optimum.onnxruntime", reason="needs the extra [optimum]")
    if page == "javascript.md" and not INSTALLED:
        pytest.skip("needs node's packages: cd runtimes/javascript && npm install --ignore-scripts")
    output = {"export.md": "my-bundle", "train.md": "my-checkpoint"}.get(page)
    text = PAGES[page].read_text(encoding="utf-8")
    if "my-bundle" in text and output != "my-bundle":
        shutil.copytree(first_answer, here / "my-bundle")
    if "my-checkpoint" in text and output != "my-checkpoint":
        saved_toy(here / "my-checkpoint")
    if page == "serve.md":
        with served(here / "my-bundle") as program:
            run_page(PAGES[page], program.port)
    else:
        run_page(PAGES[page])
    if page == "python.md":
        assert (here / "fruit.session").exists()


def test_each_block_has_a_language_and_each_mark_a_block() -> None:
    for name, page in PAGES.items():
        assert {block.language for block in blocks(page)} <= {"python", "sh", "js", "text"}, name
        text = page.read_text(encoding="utf-8")
        assert text.count("\n```") == 2 * len(blocks(page)), f"{name}: a block does not match the pattern"
        marked = sum(block.reason is not None for block in blocks(page))
        assert text.count("<!-- not run") == marked, f"{name}: a mark without a block"
