"""Costs of drafts that are measured at the first start of a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from helpers.toys.toy_bundles import CHANGES

import hamburger_edge
from hamburger_edge.cli.main import main
from hamburger_edge.drafts.drafting import FEW_SLOTS, Costs
from hamburger_edge.loop.call_costs import COSTED_ROWS, time_calls
from hamburger_edge.runtimes.onnx.machine_costs import VARIABLE, costs_file
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend, open_bundle


@pytest.fixture
def bundle(bundles: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE)
    return bundles(precision="int8", **CHANGES)


def opened(bundle: Path, **options: int) -> OnnxBackend:
    return open_bundle(bundle, **{"threads": 1, **options})[0]  # type: ignore[arg-type]


def keep(bundle: Path, content: str) -> Path:
    file = costs_file(opened(bundle), 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def test_costs_kept_for_this_machine_are_read(bundle: Path) -> None:
    keep(bundle, '{"row": 0.31, "micro": 0.07}')
    backend = opened(bundle)
    assert backend.info.machine_costs == Costs(row=0.31, micro=0.07)
    assert backend.info.draft_costs != backend.info.machine_costs
    assert costs_file(backend, 2) != costs_file(backend, 1)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"row": 0}',
        '{"row": "a", "micro": 1}',
        '{"row": 99, "micro": 1}',
        '{"row": 0.1, "micro": 0.1, "row_slots": -1}',
    ],
)
def test_damaged_costs_are_measured_again(content: str, bundle: Path) -> None:
    """A busy machine keeps none: then the damaged file stays, and the bundle's own costs count."""
    file = keep(bundle, content)
    costs = opened(bundle).info.machine_costs
    if costs is None:
        assert file.read_text() == content
    else:
        assert json.loads(file.read_text()) == asdict(costs)


def test_costs_change_no_answer(bundle: Path) -> None:
    answers = set()
    for row, row_slots in ((0.01, 0), (0.01, 10), (0.4, 0), (5, 0)):
        keep(bundle, json.dumps({"row": row, "micro": 0.01, "row_slots": row_slots}))
        with hamburger_edge.load(bundle, threads=1) as model:
            for mode in ("verify", "plain"):
                answers.add(model.generate("hello", mode=mode, max_tokens=40).text)
    assert len(answers) == 1


def test_calls_are_timed_behind_many_slots_too(bundle: Path) -> None:
    backend = opened(bundle)
    times = time_calls(backend, seconds=60)
    assert times is not None
    assert times.many_slots >= 2 * FEW_SLOTS
    assert set(times.rows) == set(times.rows_behind_many) == set(COSTED_ROWS)
    assert backend.slots == 0


def test_folder_that_cannot_be_written_keeps_the_costs_of_the_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    assert opened(bundle).info.machine_costs is None


def test_user_without_a_home_folder_keeps_the_costs_of_the_bundle(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HAMBURGER_EDGE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert opened(bundle).info.machine_costs is None


def test_portable_graphs_keep_the_costs_of_the_bundle(
    bundle: Path, bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """Their rows differ in the last bits by the rows beside them."""
    other = opened(bundles(precision="fp32", **CHANGES))
    assert other.info.machine_costs is None
    assert not costs_file(other, 1).exists()


def test_bench_shows_the_costs(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(bundle, '{"row": 0.31, "micro": 0.07}')
    assert main(["bench", str(bundle), "--costs", "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    assert "24 rows" in shown
    assert "kept for this machine  0.31" in shown
    assert main(["bench", str(bundle), "--costs", "--threads", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["kept"] == {"row": 0.31, "micro": 0.07, "call_slots": 0, "row_slots": 0}
    assert set(figures["ms"]) == {"1", "2", "4", "8", "16", "24"}
