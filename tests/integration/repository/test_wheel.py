"""The two wheels, built from a source distribution and installed outside the checkout, are whole."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from module_imports import CHECKOUT, PROJECT, modules
from places import ROOT
from without_extras import without_extras

from hamburger_edge.models.checkpoints.built_in import NAMES

# They import at their top what this environment may lack.
UNBUILT = {("integrations", "optimum.py")}
FOR_OPTIMUM = ROOT / "integrations" / "optimum_commands"  # installed where optimum looks for commands


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The core and the built-in checkpoints, both built from the one source distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    [source] = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = (path for path in folder.iterdir() if path.is_dir())
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([*wheel, unpacked, unpacked / "models" / "zoo"], check=True, capture_output=True)
    [core], [zoo] = folder.glob("hamburger_edge-*.whl"), folder.glob("hamburger_edge_zoo-*.whl")
    return core, zoo


def environment(folder: Path, *wheels: Path) -> Path:
    """Python of a new environment that has these wheels, and sees this one's other packages."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = site_packages(python)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, *wheels], check=True, capture_output=True)
    others = [p for p in sys.path if p.endswith("site-packages")]
    (site / "zz_others.pth").write_text("\n".join(others))
    return python


def site_packages(python: Path) -> Path:
    found = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([str(python), "-c", found], text=True).strip())


@pytest.fixture(scope="module")
def core_alone(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("core"), wheels[0])


@pytest.fixture(scope="module")
def core_and_zoo(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("both"), *wheels)


def test_the_core_is_light_and_the_zoo_brings_the_checkpoints(wheels: tuple[Path, Path]) -> None:
    core, zoo = wheels
    assert core.stat().st_size < 1_000_000
    assert core.name.removeprefix("hamburger_edge") == zoo.name.removeprefix(
        "hamburger_edge_zoo"
    )  # a version
    in_core, in_zoo = (set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    assert not [
        name for name in in_core if name.endswith((".safetensors", "hamburger.json")) or "zoo" in name
    ]
    assert all(any(name.endswith("licenses/LICENSE") for name in names) for names in (in_core, in_zoo))
    tracked = subprocess.check_output(
        ["git", "ls-files", "*/*"], cwd=ROOT / "models" / "zoo", text=True
    ).split()
    packed = {name for name in in_zoo if ".dist-info/" not in name}
    shipped = {name for name in tracked if not name.endswith(".py") and "/making/" not in name}
    assert packed == {f"hamburger_edge_zoo/{name}" for name in shipped}


def test_the_wheel_brings_a_command_for_optimum_and_nothing_that_hides_others(
    wheels: tuple[Path, Path],
) -> None:
    names = zipfile.ZipFile(wheels[0]).namelist()
    commands = {f"optimum/commands/register/{path.name}" for path in FOR_OPTIMUM.glob("*.py")}
    assert {name for name in names if name.startswith("optimum")} == commands
    assert commands == {"optimum/commands/register/register_hamburger.py"}


def test_the_page_is_in_the_wheel(wheels: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(wheels[0]).namelist()
    page = {path.name for path in (ROOT / "serve" / "page").iterdir()}
    prefix = f"{PROJECT}/serve/page/"
    assert {name.removeprefix(prefix) for name in names if name.startswith(prefix)} == page


def test_the_core_alone_runs_a_bundle(core_alone: Path, bundle: Path, tmp_path: Path) -> None:
    command = ["run", str(bundle), "Hi", "--max-tokens", "3"]
    program = f"from hamburger_edge.cli.main import main; sys.exit(main({command!r}))"
    done = without_extras(program, python=core_alone, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_core_alone_says_where_the_built_in_models_are(core_alone: Path, tmp_path: Path) -> None:
    code = (
        "import hamburger_edge, hamburger_edge.errors as e\n"
        "from hamburger_edge.cli.main import main\n"
        "try: hamburger_edge.load('tiny')\n"
        "except e.MissingExtraError as error: print(error)\n"
        "assert main(['demo']) == main(['run', 'tiny', 'Hi']) == 1"
    )
    done = subprocess.run([core_alone, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    error = "the built-in model {} is not installed: run  pip install ./models/zoo  in the checkout\n".format
    assert done.stdout == error("tiny")
    assert done.stderr == f"error: {error('voice-commands')}error: {error('tiny')}"


def test_other_programs_are_measured_from_a_checkout(core_alone: Path, bundle: Path, tmp_path: Path) -> None:
    for flag, *value in (["--peers"], ["--serve"], ["--prompts", "prompts.jsonl"]):
        command = [core_alone, "-m", "hamburger_edge", "bench", str(bundle), flag, *value, "--quick"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 1
        assert f"error: {flag} is not in an installed package" in done.stderr


def test_wheels_are_whole_outside_the_checkout(core_and_zoo: Path, tmp_path: Path) -> None:
    names = [
        name
        for name, path in modules().items()
        if path.stem not in ("__init__", "__main__", "lm_eval")
        and path.parts[-2:] not in UNBUILT
        and path.parent != FOR_OPTIMUM
        and not any(map(path.is_relative_to, CHECKOUT))
    ]
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "import hamburger_edge, hamburger_edge.models.checkpoints.built_in as b\n"
        "print(json.dumps([hamburger_edge.__file__, b.__file__, str(b.ZOO), b.built_in()]))\n"
        "with hamburger_edge.load('tiny') as model:\n"
        "    print(model.generate('What is the capital of Norway?').text)"
    )
    printed = subprocess.run([str(core_and_zoo), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    *_, told, answer = printed.stdout.splitlines()
    core, checkpoint, checkpoints, names_of_zoo = json.loads(told)
    assert str(ROOT) not in core
    assert str(ROOT) not in checkpoint
    assert str(ROOT) not in checkpoints
    zoo = {p.parent.name for p in (ROOT / "models" / "zoo").glob("*/hamburger.json")}
    assert set(names_of_zoo) == zoo == set(NAMES)
    assert answer == "The capital of Norway is Oslo."


def test_wheel_holds_each_module_once(core_and_zoo: Path) -> None:
    installed = site_packages(core_and_zoo) / "hamburger_edge"
    expected = {
        path.relative_to(ROOT / PROJECT if path.is_relative_to(ROOT / PROJECT) else ROOT)
        for path in modules().values()
        if path.parent != FOR_OPTIMUM and not any(map(path.is_relative_to, CHECKOUT))
    }
    assert {path.relative_to(installed) for path in installed.glob("**/*.py")} == expected
    assert not [path for path in installed.glob("**/*") if path.is_symlink()]
