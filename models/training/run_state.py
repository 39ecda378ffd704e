"""`last.pt`: the saved state from which a stopped or killed run continues bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hamburger_edge.errors import ConfigError, HamburgerError
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.support.files import check_regular, library_writes, write_atomically
from hamburger_edge.support.strict import from_mapping

FILE = "last.pt"


@dataclass
class Reached:
    """Progress of a run."""

    stage: int = 0
    step: int = 0  # steps done within the stage
    left_out: int = 0  # steps so far whose loss or gradient was not finite


def save_state(
    folder: Path,
    recipe: Recipe,
    surroundings: Mapping[str, Any],
    reached: Reached,
    learned: Mapping[str, Any],
) -> None:
    """Save a run. `surroundings`: everything besides the recipe that changes a step. `learned`: weights and
    optimizers; if they are not finite, the earlier save stays."""
    if (name := _not_finite(learned)) is not None:
        raise HamburgerError(
            f"{folder / FILE}: {name} holds NaN or infinity and is not saved: lower the learning rate and "
            "choose another `out`"
        )
    state = {
        "recipe": dataclasses.asdict(recipe),
        **surroundings,
        "progress": vars(reached),
        **learned,
    }
    with write_atomically(folder / FILE) as temporary, library_writes(temporary):
        torch.save(state, temporary)


def load_state(
    folder: Path, recipe: Recipe, surroundings: Mapping[str, Any]
) -> tuple[Reached, dict[str, Any]] | None:
    """Load the state saved with this recipe and these surroundings; None: nothing yet."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        check_regular(path)
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        made_by, progress = saved["recipe"], saved["progress"]
        reached = Reached(progress["stage"], progress["step"], progress.get("left_out", 0))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch's, pickle's and zip's errors have no common base class
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise ConfigError(
            f"{path}: damaged, or of another version ({reason[0][:200]}): choose another `out` or delete "
            "it to begin this run again"
        ) from error
    if not same_recipe(made_by, dataclasses.asdict(recipe)):
        raise ConfigError(f"{path}: was made by another recipe; choose another `out` or delete the folder")
    if "processes" in saved:  # saves from before `step_batches`, with one batch per process
        saved.setdefault("batches a step", saved["processes"])
    for what, now in surroundings.items():
        if saved.get(what, now) != now:
            raise ConfigError(
                f"{path}: was made with other {what}; choose another `out` or delete the folder"
            )
    return reached, saved


def _not_finite(part: Any, name: str = "") -> str | None:
    """Return the path of the first tensor that is not finite."""
    if isinstance(part, torch.Tensor):
        return None if not part.is_floating_point() or torch.isfinite(part).all() else name
    inside = part.items() if isinstance(part, Mapping) else enumerate(part) if isinstance(part, list) else ()
    paths = (_not_finite(inner, f"{name}.{key}".lstrip(".")) for key, inner in inside)
    return next((path for path in paths if path is not None), None)


def same_recipe(made_by: Any, recipe: Mapping[str, Any]) -> bool:
    """Whether both recipes are equal; keys that are newer than the save count as left out."""
    try:
        return bool(from_mapping(Recipe, made_by, "recipe") == from_mapping(Recipe, recipe, "recipe"))
    except ConfigError:
        return False
