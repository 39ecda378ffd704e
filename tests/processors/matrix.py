"""The core's tests, and whole answers, on every Python and with the oldest and the newest of what the core
needs: `make test-matrix`. A Python that is neither here nor can be fetched is named and left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

import bundles

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}


def uv(*words: str | Path, quiet: bool = False) -> bool:
    command = [sys.executable, "-m", "uv", *map(str, words), "--quiet"]
    return subprocess.run(command, stderr=subprocess.DEVNULL if quiet else None).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", action="append", help="a version, or an interpreter's path")
    parser.add_argument("--folder", type=Path, default=Path("runs/processors"))
    options = parser.parse_args()
    needed = tomllib.loads((bundles.ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    made = bundles.make(options.folder.absolute() / "bundles", ["tiny"])
    told, good = [], True
    for python in options.python or PYTHONS:
        for name, resolution in RESOLUTIONS.items():
            what = f"{Path(python).name}-{name}"
            venv = options.folder.absolute() / what
            interpreter = venv / ("Scripts" if sys.platform == "win32" else "bin") / "python"
            if not uv("venv", "--clear", "--python", python, venv, quiet=True):
                told.append(f"{what}: no such Python is to be had here")
                continue
            into = ("pip", "install", "--python", interpreter, "--only-binary", ":all:")
            installed = uv(*into, "--resolution", resolution, *needed) and uv(*into, *bundles.TOOLS)
            env = bundles.environment()
            passed = installed and bundles.test([interpreter], env)
            answered = passed and bundles.answer([interpreter], made, what, env)
            same = answered and bundles.compare(made, what)
            good &= same
            told.append(f"{what}: {'holds' if same else 'does not hold'}, {_versions(interpreter)}")
    print("\n".join(told))
    return not good


def _versions(interpreter: Path) -> str:
    program = (
        "import numpy, onnxruntime, platform, tokenizers as t\n"
        "print('Python', platform.python_version(), 'numpy', numpy.__version__, 'onnxruntime', "
        "onnxruntime.__version__, 'tokenizers', t.__version__)"
    )
    done = subprocess.run([interpreter, "-c", program], capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
