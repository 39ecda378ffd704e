"""The core's tests, and whole answers, on every Python and with the oldest and the newest of what the core
needs: `make test-matrix`. A Python that is neither here nor can be fetched is named and left out.
Last, answers with the ONNX Runtime of phones: that of the newest onnxruntime-react-native.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

import bundles

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PHONES = "onnxruntime==1.24.3"
OF_OTHER_CACHES = ("int8", "int4")  # forms that it cannot open: its attention knows float32 caches only
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}


def uv(*words: str | Path, quiet: bool = False) -> bool:
    command = [sys.executable, "-m", "uv", *map(str, words), "--quiet"]
    return subprocess.run(command, stderr=subprocess.DEVNULL if quiet else None).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", action="append", help="a version, or an interpreter's path")
    parser.add_argument("--folder", type=Path, default=Path("runs/processors"))
    parser.add_argument("--phones", action="store_true", help="nothing but the last part: one minute")
    options = parser.parse_args()
    needed = tomllib.loads((bundles.ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    made = bundles.make(options.folder.absolute() / "bundles", ["tiny"])
    told, good = [], True
    for python in () if options.phones else options.python or PYTHONS:
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
    good &= _phones(options.folder.absolute(), made, (options.python or PYTHONS)[0], needed, told)
    print("\n".join(told))
    return not good


def _phones(folder: Path, made: Path, python: str, needed: list[str], told: list[str]) -> bool:
    """Whether bundles with float32 caches answer there, and the others are refused."""
    venv = folder / "phones"
    if not uv("venv", "--clear", "--python", python, venv, quiet=True):
        told.append(f"phones: no Python {python} is to be had here")
        return True
    interpreter = venv / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    others = [name for name in needed if not name.startswith("onnxruntime")]
    installed = uv("pip", "install", "--python", interpreter, "--only-binary", ":all:", PHONES, *others)
    answered = installed and bundles.answer([interpreter], made, "phones", bundles.environment())
    same = answered and bundles.compare(made, "phones", refused=OF_OTHER_CACHES)
    told.append(f"phones: {'holds' if same else 'does not hold'}, {_versions(interpreter)}")
    return same


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
