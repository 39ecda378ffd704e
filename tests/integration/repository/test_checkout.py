"""Tracked files, the packages that the core imports, and commands without their extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from helpers.module_imports import PROJECT, SISTERS
from helpers.places import ROOT
from helpers.without_extras import without_extras


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True)


def test_tracked_files_are_small() -> None:
    tracked = [file for file in git("ls-files").splitlines() if (ROOT / file).is_file()]
    assert sum((ROOT / file).stat().st_size for file in tracked) < 104 << 20  # most of it is models/zoo
    heavy = {Path(file).name for file in tracked if file.endswith((".pt", ".ckpt", ".bin", ".pkl"))}
    assert heavy <= {"stored.bin", "draft_index.bin"}  # of models/zoo
    code = [file for file in tracked if file.endswith((".py", ".js", ".mjs"))]
    assert not [file for file in code if len((ROOT / file).read_text().splitlines()) > 600]


def test_links_lead_mypy_and_editors_to_every_package() -> None:
    staged = re.findall(r"120000 (\w+) \d\t(.*)", git("ls-files", "--stage", PROJECT))
    links = {name: git("cat-file", "blob", blob) for blob, name in staged}
    assert links == {f"{PROJECT}/{part}": f"../{part}" for part in SISTERS}


COMMANDS = """
from hamburger_edge.cli.main import main
bundle, data, new = sys.argv[1:]
for words in (["verify", bundle, "--against", "tiny"],
              ["export", "tiny", "-o", new, "--precision", "fp32"], ["segment", data],
              ["distill", "smollm2-135m", "-o", new, "--tokens", "9"], ["train", "recipe.toml", "-o", new],
              ["run", bundle, "Hi", "--regex", "a"], ["serve", bundle], ["bench", bundle, "--quick"],
              ["export", "nope", "-o", new], ["verify", bundle], ["run", bundle, "Hi", "--max-tokens", "3"],
              ["run", "tiny", "What is 7 plus 8?"]):
    print("code", main(words), words, flush=True, file=sys.stderr)
"""


def test_command_names_its_missing_extra(bundle: Path, tmp_path: Path) -> None:
    home = {**os.environ, "HAMBURGER_EDGE_HOME": str(tmp_path / "home")}
    done = without_extras(COMMANDS, bundle, tmp_path, tmp_path / "new", env=home)
    *lacking, bench, nowhere, verified, bundled, built_in = re.split(r"code (?=\d)", done.stderr)[:-1]
    for message in lacking:
        assert re.search(
            r"error: \w+ is not installed: run  pip install '\.\[\w+\]'  in the checkout\n$", message
        ), message
    assert "Traceback" not in done.stderr
    assert "context of 512 is too short" in bench  # --quick needs no extra before this error
    assert "error: nope: no such folder" in nowhere
    assert "error" not in verified + bundled + built_in
    assert re.search(r": the hashes of \d+ files are right\nnot compared with its checkpoint: ", done.stdout)
    assert "assembling" in built_in  # a first answer needs the core alone
    assert done.stdout.splitlines()[-1].endswith("15.")


def test_core_imports_no_extra() -> None:
    code = "import sys, hamburger_edge; assert 'onnxruntime' not in sys.modules\n"
    code += "import hamburger_edge.cli.main, hamburger_edge.structured.grammar, numpy, onnxruntime\n"
    code += "print('\\n'.join(sys.modules))"
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    loaded = {name.split(".")[0] for name in printed.splitlines()}
    extras = {"torch", "onnx", "onnxscript", "optimum", "transformers", "llama_cpp", "gguf", "safetensors"}
    assert not loaded & (extras | {"llguidance", "starlette", "jinja2"})
