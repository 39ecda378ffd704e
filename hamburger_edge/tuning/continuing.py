"""Continue a tuned model with more examples: its checkpoint determines base, layers and tokens."""

from __future__ import annotations

from dataclasses import replace

from hamburger_edge.errors import InputError
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest
from hamburger_edge.tuning.tune_recipe import TuneRecipe


def continued(recipe: TuneRecipe, checkpoint: str) -> TuneRecipe:
    """Return the recipe that continues this checkpoint: on its base, with its layers and tokens."""
    folder = resolve(checkpoint)
    manifest = read_manifest(folder / MANIFEST)
    base = manifest.base
    if base.kind == "embedded":
        raise InputError(
            f"{checkpoint}: holds all weights of its base, which --continue does not train: "
            "tune with all examples and a --base"
        )
    return replace(
        recipe,
        base=base.name or str(folder / str(base.path)),
        layers=len(base.layers),
        base_layers=base.layers,
        tokens=manifest.config.base.vocab_size if base.cut_vocabulary else 0,
        start=checkpoint,
        continues=True,
        merge=manifest.config.has_graft,
        edits_prompt=recipe.edits_prompt or manifest.edits_prompt,
    )
