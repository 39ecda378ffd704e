"""The two wheels, built from a source distribution and installed outside the checkout, are whole."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from helpers.module_imports import CHECKOUT, PROJECT, modules
from helpers.places import ROOT
from helpers.wheels import build_wheels, environment_of, site_packages

from hamburger_edge.models.checkpoints.built_in import NAMES

pytestmark = pytest.mark.slow

# Modules that import an optional package at their top.
UNBUILT = {("integrations", "optimum.py"), ("pyinstaller_hooks", "hook-hamburger_edge.py")}
# Installed among optimum's commands.
FOR_OPTIMUM = ROOT / PROJECT / "integrations" / "optimum_commands"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


def test_core_wheel_is_small_and_zoo_wheel_holds_checkpoints(wheels: tuple[Path, Path]) -> None:
    core, zoo = wheels
    assert core.stat().st_size < 1_000_000
    version = core.name.removeprefix("hamburger_edge")
    assert version == zoo.name.removeprefix("hamburger_edge_zoo")
    in_core, in_zoo = (zipfile.ZipFile(wheel).namelist() for wheel in wheels)
    assert not [name for name in in_core if name.endswith(".safetensors") or "zoo" in name]
    assert all(any(name.endswith("licenses/LICENSE") for name in names) for names in (in_core, in_zoo))
    tracked = subprocess.check_output(["git", "ls-files", "*/*"], cwd=ROOT / "models" / "zoo", text=True)
    shipped = {name for name in tracked.split() if not name.endswith(".py") and "/making/" not in name}
    packed = {name for name in in_zoo if ".dist-info/" not in name}
    assert packed == {f"hamburger_edge_zoo/{name}" for name in shipped}
    # a command for optimum and nothing that hides others
    command = "optimum/commands/register/register_hamburger.py"
    assert [name for name in in_core if name.startswith("optimum")] == [command]
    page = {f"{PROJECT}/serve/page/{path.name}" for path in (ROOT / PROJECT / "serve" / "page").iterdir()}
    assert {name for name in in_core if name.startswith(f"{PROJECT}/serve/page/")} == page


def test_core_wheel_runs_a_bundle_and_names_missing_parts(
    wheels: tuple[Path, Path], bundle: Path, tmp_path: Path
) -> None:
    """The built-in models are in another wheel, the peers of `bench` in a checkout."""
    python = environment_of(tmp_path / "core", wheels[0])
    run = [python, "-m", "hamburger_edge", "run", bundle, "Hi", "--max-tokens", "3"]
    assert subprocess.check_output(run, cwd=tmp_path).strip()
    zoo = "the built-in model {} is not installed: run  pip install ./models/zoo  in the checkout\n".format
    peers = "{} is not in an installed package".format
    bench = ["bench", str(bundle), "--quick"]
    for words, message in (
        (["demo"], zoo("voice-commands")),
        (["run", "tiny", "Hi"], zoo("tiny")),
        ([*bench, "--peers"], peers("--peers")),
        ([*bench, "--serve"], peers("--serve")),
        ([*bench, "--prompts", "prompts.jsonl"], peers("--prompts")),
    ):
        command = [python, "-m", "hamburger_edge", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 1
        assert f"error: {message}" in done.stderr


def test_both_wheels_install_each_module_once(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    python = environment_of(tmp_path / "both", *wheels)
    shipped = {
        name: path
        for name, path in modules().items()
        if path.parent != FOR_OPTIMUM and not any(map(path.is_relative_to, CHECKOUT))
    }
    names = [
        name
        for name, path in shipped.items()
        if path.stem not in ("__init__", "__main__", "lm_eval") and path.parts[-2:] not in UNBUILT
    ]
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "import hamburger_edge, hamburger_edge.models.checkpoints.built_in as b\n"
        "print(json.dumps([b.built_in(), hamburger_edge.__file__, b.__file__, str(b.ZOO)]))\n"
        "with hamburger_edge.load('tiny') as model:\n"
        "    print(model.generate('What is the capital of Norway?').text)"
    )
    printed = subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    *_, report, answer = printed.stdout.splitlines()
    built_in, *paths = json.loads(report)
    assert not [path for path in paths if str(ROOT) in path]
    assert built_in == sorted(NAMES)
    assert answer == "The capital of Norway is Oslo."

    installed = site_packages(python) / "hamburger_edge"
    inside = ROOT / PROJECT
    expected = {p.relative_to(inside if p.is_relative_to(inside) else ROOT) for p in shipped.values()}
    assert {path.relative_to(installed) for path in installed.glob("**/*.py")} == expected
    assert not [path for path in installed.glob("**/*") if path.is_symlink()]
