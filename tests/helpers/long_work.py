"""Toy runs that write to a disk and can be stopped anywhere. The same call starts or resumes them.
Their output is complete, or no reader accepts it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

import hamburger_edge
from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.models.checkpoints.saving import CURVES
from hamburger_edge.models.distillation.data_manifest import NAME
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.metrics import FILE as METRICS
from hamburger_edge.models.training.run_state import FILE as LAST
from hamburger_edge.support.files import sha256
from hamburger_edge.tuning.planning import Budget
from hamburger_edge.tuning.tune import tune
from hamburger_edge.tuning.tune_recipe import TuneRecipe, read_tune_recipe
from hamburger_edge.tuning.tune_run import TuneRun
from helpers.toys.toy_bundles import saved_toy
from helpers.toys.toy_checkpoints import save
from helpers.toys.toy_distillation import make
from helpers.toys.toy_tasks import write_base, write_examples
from helpers.toys.toy_training import short, toy_trainer


class Work(NamedTuple):
    prepare: Callable[[Path], object]  # writes the input
    run: Callable[[Path, Path], object]  # from the input folder into an output folder


def _save_checkpoint(given: Path) -> None:
    saved_toy(given / "checkpoint")


def _export_twice(format: str) -> Callable[[Path, Path], None]:
    """Export to a free name, then replace that bundle."""

    def run(given: Path, made: Path) -> None:
        for _ in range(2):
            export(
                given / "checkpoint",
                made / "bundle",
                formats=[format],  # type: ignore[list-item]
                precision="int8",
                verify=False,
                force=True,
            )
        assert not list(made.glob(".*")), "leftovers of killed exports are deleted"

    return run


def _train(given: Path, made: Path) -> None:
    trainer = toy_trainer(made / "run", short(0))
    assert trainer.run()
    save(made / "checkpoint", trainer.model)


def _write_task(given: Path) -> None:
    write_base(given / "base")
    write_examples(given / "examples.jsonl", 300)


def _tune(given: Path, made: Path) -> None:
    begun = made / "work" / "recipe.toml"
    recipe = TuneRecipe(base=str(given / "base"), examples=str(given / "examples.jsonl"))
    recipe = read_tune_recipe(begun) if begun.exists() else recipe
    tune(recipe, TuneRun(made / "work", Budget(0.001), report=lambda line: None))


def _save_bundle(given: Path) -> None:
    _save_checkpoint(given)
    _export_twice("onnx")(given, given)


def _talk(given: Path, made: Path) -> None:
    """Save the session after every answer and resume it from there."""
    made.mkdir(exist_ok=True)
    with hamburger_edge.load(given / "bundle", threads=1) as model:
        chat = model.chat(confidence=0.0, max_tokens=24, ignore_eos=True, seed=0)
        for _ in range(4):
            list(chat.send("hello"))
            chat.save(made / "talk")
            chat = model.resume(made / "talk")


WORKS = {
    "export": Work(_save_checkpoint, _export_twice("onnx")),
    "export-gguf": Work(_save_checkpoint, _export_twice("gguf")),
    "distill": Work(lambda given: None, lambda given, made: make(made / "data")),
    "train": Work(lambda given: None, _train),
    "tune": Work(_write_task, _tune),
    "session": Work(_save_bundle, _talk),
}


def check(given: Path, made: Path) -> None:
    """Every file that looks complete passes its reader's checks."""
    for path in _visible(made):
        if path.name == FILE_NAME:
            check_files(path.parent, load_manifest(path.parent), hashes=True)
        elif path.name == NAME:
            DistilledData.load(path.parent)  # which checks hashes
        elif path.name == MANIFEST:
            load_checkpoint(path.parent)
        elif path.name == LAST:
            torch.load(path, weights_only=True)
        elif path.name == "talk":
            with hamburger_edge.load(given / "bundle", threads=1) as model:
                model.resume(path)
    bundle = made / "bundle"
    assert not bundle.exists() or (bundle / FILE_NAME).exists()


def files(made: Path) -> dict[str, str]:
    """Return the hashes of a run's files, without durations and randomly sealed content."""
    torch.set_num_threads(1)
    of_the_clock = {METRICS, CURVES, LAST}  # metrics are written every few seconds, curves drawn from them
    kept = [path for path in _visible(made) if path.name not in of_the_clock]
    return {str(path.relative_to(made)): sha256(path) for path in kept}


def _visible(made: Path) -> list[Path]:
    found = sorted(path for path in made.rglob("*") if path.is_file())
    return [path for path in found if not any(part[0] == "." for part in path.relative_to(made).parts)]
