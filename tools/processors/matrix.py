"""The core's tests, and whole answers, on every Python and with the oldest and the newest of what the core
needs: `make test-matrix`. A Python that is neither here nor can be fetched is named and left out.
Last, answers with the ONNX Runtime of phones: that of the newest onnxruntime-react-native.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import bundles

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PHONES = "onnxruntime==1.24.3"
OF_OTHER_CACHES = ("int8", "int4")  # forms that it cannot open: its attention knows float32 caches only
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
VERSIONS = """
import numpy, onnxruntime, platform, tokenizers
print("Python", platform.python_version(), end=" ")
print(*(f"{module.__name__} {module.__version__}" for module in (numpy, onnxruntime, tokenizers)))
"""


def uv(*words: str | Path, quiet: bool = False) -> bool:
    command = [sys.executable, "-m", "uv", *map(str, words), "--quiet"]
    return subprocess.run(command, stderr=subprocess.DEVNULL if quiet else None).returncode == 0


def installed(venv: Path, python: str, *packages: tuple[str, ...]) -> Path | None:
    """The interpreter of a new environment with these packages, where there is such a Python."""
    if not uv("venv", "--clear", "--python", python, venv, quiet=True):
        return None
    interpreter = venv / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    for wanted in packages:
        uv("pip", "install", "--python", interpreter, "--only-binary", ":all:", *wanted)
    return interpreter


def main() -> int:
    needed = tomllib.loads((bundles.ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    others = [name for name in needed if not name.startswith("onnxruntime")]
    environments = {
        f"{python}-{name}": (python, ("--resolution", resolution, *needed), bundles.TOOLS)
        for python in PYTHONS
        for name, resolution in RESOLUTIONS.items()
    }
    environments["phones"] = (PYTHONS[0], (PHONES, *others))
    bundles.make()
    told, good = [], True
    for name, (python, *packages) in environments.items():
        interpreter = installed(bundles.FOLDER / name, python, *packages)
        if interpreter is None:
            told.append(f"{name}: no Python {python} is to be had here")
            continue
        refused = OF_OTHER_CACHES if name == "phones" else ()
        same = name == "phones" or bundles.passes_tests([interpreter])
        same = same and bundles.answers_alike([interpreter], name, refused=refused)
        versions = subprocess.run([interpreter, "-c", VERSIONS], capture_output=True, text=True).stdout
        told.append(f"{name}: {'holds' if same else 'does not hold'}, {versions.strip()}")
        good &= same
    print("\n".join(told))
    return not good


if __name__ == "__main__":
    sys.exit(main())
