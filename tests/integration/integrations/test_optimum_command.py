"""`optimum-cli export hamburger` writes what `hamburger-edge export` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from places import environment

pytest.importorskip("optimum.exporters", reason="optimum is not installed: pip install '.[optimum]'")

from hamburger_edge.cli.commands.export import OPTIONS
from hamburger_edge.cli.main import main

OPTIMUM = Path(sys.executable).with_name("optimum-cli")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from toy_bundles import saved_toy

    return saved_toy(tmp_path_factory.mktemp("toy") / "checkpoint")


def optimum_cli(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(OPTIMUM), "export", "hamburger", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(OMP_NUM_THREADS="1"))


@pytest.mark.parametrize("options", [[], ["--format", "gguf", "--precision", "int8"]], ids=["onnx", "gguf"])
def test_the_bundle_is_the_same_byte_for_byte(options: list[str], checkpoint: Path, tmp_path: Path) -> None:
    done = optimum_cli("--model", checkpoint, tmp_path / "theirs", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == str(tmp_path / "theirs")
    assert main(["export", str(checkpoint), "-o", str(tmp_path / "ours"), *options]) == 0
    files = {path.name for path in (tmp_path / "ours").iterdir()}
    assert files == {path.name for path in (tmp_path / "theirs").iterdir()}
    assert "manifest.json" in files
    for name in files:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name


def test_errors_are_one_line(tmp_path: Path) -> None:
    done = optimum_cli("--model", tmp_path / "nowhere", tmp_path / "bundle")
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "nowhere" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "bundle").exists()


def test_it_has_our_options_and_stands_beside_optimum_s_own_exports() -> None:
    shown = optimum_cli("--help")
    assert shown.returncode == 0, shown.stderr[-2000:]
    for option in OPTIONS:
        assert option.flags[0] in shown.stdout
    above = subprocess.run([str(OPTIMUM), "export", "--help"], capture_output=True, text=True)
    assert "{onnx,hamburger}" in above.stdout or "{hamburger,onnx}" in above.stdout
