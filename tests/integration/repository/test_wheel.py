"""The wheel, built and installed outside the checkout, is whole."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from module_imports import PROJECT, SISTERS, modules
from places import ROOT

UNBUILT = ("peers", "llama_cpp.py")  # imports llama.cpp at its top


@pytest.fixture(scope="module")
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that has the built wheel, and sees this one's other packages."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools packs what an older build left there
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    others = [p for p in sys.path if p.endswith("site-packages")]
    (Path(site) / "zz_others.pth").write_text("\n".join(others))
    return python


def test_wheel_is_whole_outside_the_checkout(installed_wheel: Path, tmp_path: Path) -> None:
    names = [
        name
        for name, path in modules().items()
        if path.stem not in ("__init__", "__main__", "lm_eval_adapter") and path.parts[-2:] != UNBUILT
    ]
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "import hamburger_edge, hamburger_edge.models.checkpoints.checkpoint as c\n"
        "print(json.dumps([hamburger_edge.__file__, c.__file__, c.built_in()]))"
    )
    printed = subprocess.run([str(installed_wheel), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    core, checkpoint, names_of_zoo = json.loads(printed.stdout.splitlines()[-1])
    assert str(ROOT) not in core
    assert str(ROOT) not in checkpoint
    zoo = {p.parent.name for p in (ROOT / "models" / "zoo").glob("*/hamburger.json")}
    assert set(names_of_zoo) == zoo


def test_wheel_holds_each_module_once(installed_wheel: Path) -> None:
    found = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.check_output([str(installed_wheel), "-c", found], text=True)
    installed = Path(site.strip()) / "hamburger_edge"
    expected = {
        path.relative_to(ROOT / PROJECT if path.is_relative_to(ROOT / PROJECT) else ROOT)
        for path in modules().values()
    }
    assert {path.relative_to(installed) for path in installed.glob("**/*.py")} == expected
    assert not [path for path in installed.glob("**/*") if path.is_symlink()]


def test_links_let_editors_and_mypy_find_every_package() -> None:
    staged = ["git", "ls-files", "--stage", PROJECT]
    entries = re.findall(r"120000 (\w+) \d\t(.*)", subprocess.check_output(staged, cwd=ROOT, text=True))
    links = {
        name: subprocess.check_output(["git", "cat-file", "blob", blob], cwd=ROOT, text=True)
        for blob, name in entries
    }
    assert links == {f"{PROJECT}/{part}": f"../{part}" for part in SISTERS}
