"""Work that writes to a disk and can be stopped anywhere, on toys: it is run, or gone on with, by the same
call; what it leaves is whole, or is not taken for anything.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from toy_bundles import saved_toy
from toy_checkpoints import save
from toy_distillation import make
from toy_tasks import write_base, write_examples
from toy_training import short, toy_trainer

import hamburger_edge
from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.models.distillation.data_manifest import NAME
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.run_state import FILE as LAST
from hamburger_edge.models.training.run_state import load_state
from hamburger_edge.support.files import sha256
from hamburger_edge.tuning.tune import Tuning
from hamburger_edge.tuning.tune_recipe import TuneRecipe, read_tune_recipe

RECIPES = short(0)


class Work(NamedTuple):
    given: Callable[[Path], None]  # makes what it starts from
    run: Callable[[Path, Path], None]  # from there, into another folder
    check: Callable[[Path], None]  # of what lies there, all that looks finished is


def _nothing(given: Path) -> None:
    pass


# -- a bundle ------------------------------------------------------------------------------------------


def _checkpoint(given: Path) -> None:
    saved_toy(given / "checkpoint")


def _exported(format: str) -> Callable[[Path, Path], None]:
    def run(given: Path, made: Path) -> None:
        checkpoint, bundle = given / "checkpoint", made / "bundle"
        export(checkpoint, bundle, formats=[format], precision="int8", verify=False, force=True)  # type: ignore[list-item]

    return run


def _check_bundle(made: Path) -> None:
    if (bundle := made / "bundle").exists():
        check_files(bundle, load_manifest(bundle), hashes=True)


# -- training data -------------------------------------------------------------------------------------


def _distil(given: Path, made: Path) -> None:
    make(made / "data")


def _check_data(made: Path) -> None:
    if (made / "data" / NAME).exists():
        DistilledData.load(made / "data")  # which checks hashes


# -- training ------------------------------------------------------------------------------------------


def _train(given: Path, made: Path) -> None:
    trainer = toy_trainer(made / "run", RECIPES)
    assert trainer.run()
    save(made / "checkpoint", trainer.model)


def _check_training(made: Path) -> None:
    if (made / "run" / LAST).exists():
        assert load_state(made / "run", dataclasses.replace(RECIPES, out=str(made / "run")), {}) is not None
    if (made / "checkpoint").exists():
        load_checkpoint(made / "checkpoint")


# -- a task --------------------------------------------------------------------------------------------


def _task(given: Path) -> None:
    write_base(given / "base")
    write_examples(given / "examples.jsonl", 300)


def _tune(given: Path, made: Path) -> None:
    begun = made / "work" / "recipe.toml"
    recipe = TuneRecipe(base=str(given / "base"), examples=str(given / "examples.jsonl"))
    recipe = read_tune_recipe(begun) if begun.exists() else recipe
    tuning = Tuning(recipe, made / "work", minutes=0.001, report=lambda line: None)
    shutil.copytree(tuning.train(), made / "checkpoint", dirs_exist_ok=True)


def _check_task(made: Path) -> None:
    for folder in ("examples", "scored"):
        if (made / "work" / folder / NAME).exists():
            DistilledData.load(made / "work" / folder)
    for folder in ("tuned", "checkpoint"):
        if (made / "work" / folder / MANIFEST).exists():
            load_checkpoint(made / "work" / folder)


# -- a session -----------------------------------------------------------------------------------------


def _bundle(given: Path) -> None:
    _checkpoint(given)
    _exported("onnx")(given, given)


def _talk(given: Path, made: Path) -> None:
    """Saved after every answer, in the place of the one before."""
    made.mkdir(exist_ok=True)
    with hamburger_edge.load(given / "bundle", threads=1) as model:
        chat = model.chat(confidence=0.0, max_tokens=24, ignore_eos=True, seed=0)
        for _ in range(4):
            list(chat.send("hello"))
            chat.save(made / "talk")
            chat = model.resume(made / "talk")
        (made / "bundle").write_text(str(given / "bundle"))


def _check_session(made: Path) -> None:
    if (made / "talk").exists() and (made / "bundle").exists():
        with hamburger_edge.load(Path((made / "bundle").read_text()), threads=1) as model:
            model.resume(made / "talk")


WORKS = {
    "export": Work(_checkpoint, _exported("onnx"), _check_bundle),
    "export-gguf": Work(_checkpoint, _exported("gguf"), _check_bundle),
    "distill": Work(_nothing, _distil, _check_data),
    "train": Work(_nothing, _train, _check_training),
    "tune": Work(_task, _tune, _check_task),
    "session": Work(_bundle, _talk, _check_session),
}


def files(made: Path) -> dict[str, str]:
    """What a run leaves, by its hashes; figures of time aside, and what is sealed with random numbers."""
    torch.set_num_threads(1)
    return {
        str(path.relative_to(made)): sha256(path)
        for path in sorted(made.rglob("*"))
        if path.is_file() and path.name not in _OF_THE_CLOCK
    }


_OF_THE_CLOCK = {"metrics.jsonl", LAST}
