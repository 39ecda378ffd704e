"""How light the core is, and that an installation without extras says which one a command needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from without_extras import without_extras

COMMANDS = """
from hamburger_edge.cli.main import main
bundle, data, new = sys.argv[1:]
for words in (["verify", bundle],
              ["export", "tiny", "-o", new, "--precision", "fp32"], ["segment", data],
              ["distill", "smollm2-135m", "-o", new, "--tokens", "9"], ["train", "recipe.toml", "-o", new],
              ["run", bundle, "Hi", "--regex", "a"], ["serve", bundle], ["bench", bundle, "--quick"],
              ["run", bundle, "Hi", "--max-tokens", "3"], ["run", "tiny", "Hi", "--max-tokens", "3"]):
    print("code", main(words), words, flush=True, file=sys.stderr)
"""


def test_a_command_names_the_extra_that_it_lacks(bundle: Path, tmp_path: Path) -> None:
    done = without_extras(COMMANDS, bundle, tmp_path, tmp_path / "new")
    *lacking, bench, bundled, built_in = re.split(r"code (?=\d)", done.stderr)[:-1]
    for said in lacking:
        assert re.search(
            r"error: \w+ is not installed: run  pip install '\.\[\w+\]'  in the checkout\n$", said
        ), said
    assert "Traceback" not in done.stderr
    assert "context of 512 is too short" in bench  # which wants no extra to get that far
    assert "error" not in bundled + built_in  # a built-in model is assembled by the core alone


def test_importing_the_core_stays_light() -> None:
    code = "import sys, hamburger_edge.cli.main, hamburger_edge.loop.grammar, numpy, onnxruntime"
    code += "; print('\\n'.join(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in printed.splitlines()}
    extras = {"torch", "onnx", "onnxscript", "optimum", "transformers", "llama_cpp", "gguf", "safetensors"}
    assert not loaded & (extras | {"llguidance", "starlette", "jinja2"})
    without = "import sys, hamburger_edge; assert 'onnxruntime' not in sys.modules"
    subprocess.run([sys.executable, "-c", without], check=True)
