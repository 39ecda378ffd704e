"""An app that PyInstaller froze answers on a system without Python."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.wheels import build_wheels, lean_environment

from hamburger_edge.loading import find_bundle

FOLDER = ROOT / "examples" / "frozen"
LARGEST = 200e6  # bytes of an app with a small bundle
# Of a user who installs the core, the extra [structured] and PyInstaller.
PACKAGES = ("numpy", "onnxruntime", "tokenizers", "llguidance", "flatbuffers", "protobuf", "packaging")
FREEZING = ("pyinstaller", "pyinstaller-hooks-contrib", "altgraph", "setuptools")
# Part of every Linux system; PyInstaller leaves them out.
LIBRARIES = Path("/lib/x86_64-linux-gnu")
SYSTEM = ("libc", "libdl", "libm", "libpthread", "libresolv", "librt", "libutil", "libz", "ld-linux-x86-64")
# The first process of its own file systems: mounts /proc for ONNX Runtime, then changes the root.
ENTER = 'mount -t proc proc "$0/proc" && exec env -i "$(command -v chroot)" "$0" /app/app "$@"'

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("PyInstaller") is None,
        reason="PyInstaller is not installed: pip install pyinstaller",
    ),
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the frozen app, made by the commands of the guide."""
    folder = tmp_path_factory.mktemp("frozen")
    (folder / "wheels").mkdir()
    core, _ = build_wheels(folder / "wheels")
    python = lean_environment(folder / "environment", core, *PACKAGES, *FREEZING)
    working = folder / "work"
    shutil.copytree(find_bundle("tiny"), working / "my-bundle")
    inspect = [python, "-m", "hamburger_edge", "inspect", "my-bundle", "--licences"]
    (working / "LICENCES.txt").write_bytes(subprocess.check_output(inspect, cwd=working))
    freeze = [python, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", FOLDER / "app.spec"]
    subprocess.run(freeze, cwd=working, check=True, capture_output=True)
    return working / "dist" / "app"


@pytest.fixture(scope="module")
def root(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a file system that has the app and the system's C library, but no Python."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(app, root / "app", symlinks=True)
    for library in (path for name in SYSTEM for path in LIBRARIES.glob(f"{name}.so.*")):
        for place in ("lib/x86_64-linux-gnu", "lib64"):
            (root / place).mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / place)
    for name in ("proc", "tmp"):
        (root / name).mkdir()
    return root


def answer(root: Path, *words: str) -> str:
    command = ["unshare", "--mount", "sh", "-c", ENTER, str(root), *words]
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=path, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def can_enter() -> bool:
    """Whether this user may mount and change the root, on x86-64 Linux."""
    if os.geteuid() or not LIBRARIES.is_dir():
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def test_frozen_app_answers_without_python(root: Path) -> None:
    """Structures once failed with "llguidance is not installed"."""
    if not can_enter():
        pytest.skip("only root on x86-64 Linux may make another folder the root of a process")
    assert answer(root, "What is the capital of Norway?") == "The capital of Norway is Oslo."
    schema = '{"enum": ["red", "green"]}'
    assert answer(root, "What colour?", "--json-schema", schema) in ('"red"', '"green"')
    licences = answer(root, "--licences")
    for name in ("onnxruntime", "tokenizers", "numpy", "llguidance", "ThirdPartyNotices"):
        assert name in licences


def test_frozen_app_is_small(app: Path) -> None:
    files = [path for path in app.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < LARGEST
