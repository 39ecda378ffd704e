"""Programs that run as if no extra were installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

WITHOUT_EXTRAS = """
import sys
LACKING = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "gguf", "llguidance")
LACKING += ("starlette", "uvicorn")
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""


def without_extras(
    program: str, *words: str | Path, python: str | Path = sys.executable, **options: Any
) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", WITHOUT_EXTRAS + program, *words]
    return subprocess.run(command, capture_output=True, text=True, **options)
