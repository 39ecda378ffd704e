"""From a recipe file to a trained checkpoint folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.compositional_embedder import CompositionalEmbedder
from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.loading import find_base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.models.checkpoints.manifest import DELTA, MANIFEST
from hamburger_edge.models.checkpoints.rows import RowPrecision, load_rows
from hamburger_edge.models.checkpoints.saving import check_target, save_checkpoint
from hamburger_edge.models.training.curves import plot
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.grafting import graft, prepare
from hamburger_edge.models.training.run_state import same_recipe
from hamburger_edge.models.training.stop_calibration import StopCalibration
from hamburger_edge.models.training.trainer import Trainer, TrainingProgress, Watch
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.models.training.updates.averaging import mean_state
from hamburger_edge.models.training.updates.lora import merge_lora, remember_lora, restore_lora
from hamburger_edge.support.progress import LogCallback
from hamburger_edge.support.strict import read_json

ORIGINS = ("start", "tuned_base")  # checkpoints that a recipe continues; their provenance is recorded


def new_model(recipe: Recipe, base: LoadedBase, data: DistilledData) -> Hamburger:
    size = recipe.shape.draft_vocab_size
    draft_vocab = data.frequent_tokens(size, data.split(recipe.held_out).train) if size else None
    model = graft(base.config, base.state, base.eos_ids, recipe.shape, draft_vocab, recipe.seed)
    if recipe.start:
        _go_on(model, recipe)
    elif recipe.tuned_base:
        _take_base(model, recipe)
    return model


def _go_on(model: Hamburger, recipe: Recipe) -> None:
    """Load the mean of the recipe's checkpoints."""
    pairs = _changes_of(recipe.starts)
    state = mean_state(_begun(start, model, recipe) for start in recipe.starts)
    if _whole(pairs):
        model.load_state_dict(state)
        return
    model.load_state_dict({n: t for n, t in state.items() if n[:5] != "base."}, strict=False)
    _go_on_with_lora(model, pairs, recipe.start, recipe)


def _take_base(model: Hamburger, recipe: Recipe) -> None:
    """Take a checkpoint's changed base, and its embedder if it fits: it may have learned to read."""
    changes = _changes_of(recipe.origins)
    checkpoint = load_checkpoint(recipe.tuned_base)
    _check_parts(checkpoint, recipe.tuned_base, recipe)
    tuned = checkpoint.model
    grafts = model.config.has_graft and tuned.config.has_graft
    if grafts and tuned.config.merge_residual == model.config.merge_residual:
        _take_embedder(model.embedder, tuned.embedder)
    if _whole(changes):
        model.base.load_state_dict(tuned.base.state_dict())
    else:
        _go_on_with_lora(model, changes, recipe.tuned_base, recipe)
        remember_lora(model.base)  # the tuned base is the reference of `loss.features`


@torch.no_grad()
def _take_embedder(ours: CompositionalEmbedder, theirs: CompositionalEmbedder) -> None:
    """Take an embedder, whose groups may be longer or shorter."""
    if ours.heads == theirs.heads:
        count = min(len(ours.places), len(theirs.places))
        ours.load_state_dict({**theirs.state_dict(), "places": ours.places})
        ours.places[:count] = theirs.places[:count]


def _go_on_with_lora(
    model: Hamburger, pairs: Mapping[str, torch.Tensor], source: str, recipe: Recipe
) -> None:
    restore_lora(model.base, pairs)  # continues to learn, with the plain base frozen
    if pairs and recipe.base_ranks - {_rank_of(pairs)}:
        raise ConfigError(f"{source}: its LoRA has another rank than the recipe's lora_rank")


def lora_rank(checkpoint: str) -> int:
    """Return the rank of a checkpoint's update of its base; 0: it has none, or whole weights."""
    return _rank_of(_changes_of((checkpoint,)))


def _rank_of(changes: Mapping[str, torch.Tensor]) -> int:
    return max((len(tensor) for name, tensor in changes.items() if name.endswith(".lora_a")), default=0)


def _check_parts(checkpoint: Checkpoint, source: str, recipe: Recipe) -> None:
    """Check that a checkpoint has the layers and the tokens of the base that the recipe keeps."""
    base = checkpoint.manifest["base"]
    layers = base.get("layers", [])
    if base["kind"] != "embedded" and layers != list(recipe.base_layers):
        raise ConfigError(
            f"{source}: keeps {_listed(layers)} of its base, the recipe {_listed(recipe.base_layers)}: "
            "use the same base_layers"
        )
    own = recipe.own_tokenizer
    if base.get("cut_vocabulary", False) != (own is not None) or (
        own is not None and read_json(own) != read_json(checkpoint.tokenizer)
    ):
        raise ConfigError(f"{source}: has other tokens of its base than the recipe: use its tokenizer")


def _listed(layers: Sequence[int]) -> str:
    return f"layers {' '.join(map(str, layers))}" if layers else "all layers"


def _begun(start: str, model: Hamburger, recipe: Recipe) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(start)
    _check_parts(checkpoint, start, recipe)
    start_model = checkpoint.model
    # `merge_residual` is no shape: the embedder may continue from another one
    config = dataclasses.replace(start_model.config, merge_residual=model.config.merge_residual)
    if not (config.has_graft or model.config.has_graft):  # the other fields have no meaning then
        config = HamburgerConfig.plain(config.base, config.eos_ids)
    if config != model.config:
        raise ConfigError(f"{start}: its shape is not the recipe's: change [shape], or leave out `start`")
    if checkpoint.manifest["base"]["kind"] == "embedded":
        ours = model.base.state_dict()
        if any(not torch.equal(tensor, ours[name]) for name, tensor in start_model.base.state_dict().items()):
            raise ConfigError(f"{start}: its base is not the recipe's: leave out `start`, or change `base`")
    return dict(start_model.state_dict())


def _changes_of(checkpoints: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return the mean change that the continued checkpoints made to their base."""
    files = [resolve(checkpoint) / DELTA for checkpoint in checkpoints]
    changes = [load_rows(file) if file.exists() else {} for file in files]
    for start, change in zip(checkpoints, changes, strict=True):
        if {n: t.shape for n, t in change.items()} != {n: t.shape for n, t in changes[0].items()}:
            raise ConfigError(
                f"{start}: changes its base differently from {checkpoints[0]}: average checkpoints of "
                "which one went on from the other"
            )
    return mean_state(changes)


def _whole(changes: Iterable[str]) -> bool:
    """Return changes to whole weights by name, without low-rank updates."""
    return any(name.endswith(".delta") for name in changes)


def train(
    recipe: Recipe,
    checkpoint: Path,
    *,
    minutes: float | None = None,
    finish: bool = False,
    rows: RowPrecision = "int8",
    chat_template: dict[str, Any] | None = None,
    report: LogCallback = print,
    divide: bool = False,
    watch: Watch | None = None,
    stage_seconds: float = math.inf,
    progress: TrainingProgress | None = None,
) -> Path | None:
    """Run or continue a recipe; at its end write the checkpoint folder. None: stopped by `minutes`.

    With `finish` a stopped run writes a checkpoint too: of the weights so far, or of their mean if it has
    begun. `divide`: each of several processes holds a part of the weights. A stage has fewer steps if
    `stage_seconds` do not suffice. `progress` replaces the lines with figures.
    """
    figures = report if progress is None else lambda line: None
    check_target(checkpoint)
    base, reference = find_base(recipe.base, layers=recipe.base_layers, tokenizer=recipe.own_tokenizer)
    data = DistilledData.load(*recipe.data_folders)
    _same_source(data, reference, recipe)
    model = new_model(recipe, base, data)
    trainer = Trainer(
        recipe,
        model,
        data,
        report,
        divide=divide,
        watch=watch,
        stage_seconds=stage_seconds,
        progress=progress,
    )
    done = trainer.run(minutes=minutes)
    trainer.processes.leave()
    if not (done or finish) or not trainer.processes.first:
        return None
    so_far = trainer.mean.in_place() if trainer.mean and not done else contextlib.nullcontext()
    with so_far:
        if recipe.start_share:
            _keep_start(trainer.model, recipe, base, data)
        calibration = trainer.calibrate() if recipe.calibrate else None
        figures(f"calibrated: {calibration}")
        model, delta = merged(recipe, base, data, trainer.model)
    written = save_checkpoint(
        checkpoint,
        model,
        base=reference,
        tokenizer=recipe.own_tokenizer,
        chat_template=chat_template or base.chat_template,
        provenance=provenance(recipe, data, calibration),
        license={"graft": "Apache-2.0", "base": base.license},
        base_delta=delta or None,
        rows=rows,
    )
    figures(f"wrote {written}")
    try:
        figures(f"wrote {plot(Path(recipe.out))}")
    except Exception as error:  # of matplotlib, or for half a line of a killed run
        figures(f"no picture of the metrics: {error}")
    return written


@torch.no_grad()
def _keep_start(trained: Hamburger, recipe: Recipe, base: LoadedBase, data: DistilledData) -> None:
    """Take the mean of the learned tensors and those that the run continued: it forgets less."""
    start = _prepared(recipe, base, data).state_dict()
    for name, tensor in trained.state_dict().items():
        if tensor.is_floating_point() and not _frozen(name, recipe):
            tensor.lerp_(start[name].to(tensor), recipe.start_share)


def _prepared(recipe: Recipe, base: LoadedBase, data: DistilledData) -> Hamburger:
    """Return the model that the run begins with, with the low-rank updates that it learns."""
    model = new_model(recipe, base, data)
    for stage in recipe.stages:
        prepare(model, stage, bf16=False)
    return model


@torch.no_grad()
def merged(
    recipe: Recipe, base: LoadedBase, data: DistilledData, trained: Hamburger
) -> tuple[Hamburger, dict[str, torch.Tensor]]:
    """Put the learned tensors on the base's exact weights, which training may round -> float32 model,
    delta."""
    model = _prepared(recipe, base, data)
    learned = {n: t for n, t in trained.state_dict().items() if not _frozen(n, recipe)}
    model.load_state_dict(learned, strict=False)
    delta = merge_lora(model.base)
    if not delta or _whole(_changes_of(recipe.origins)):
        delta = {
            f"{n}.delta": t.float() - base.state[n]
            for n, t in model.base.state_dict().items()
            if not torch.equal(t, base.state[n])
        }
    return model.eval().requires_grad_(False), delta


def _frozen(name: str, recipe: Recipe) -> bool:
    """Return the base weights that no stage changed."""
    return name.startswith("base.") and 0 not in recipe.base_ranks and not name.endswith((".up", ".down"))


def provenance(recipe: Recipe, data: DistilledData, calibration: StopCalibration | None) -> dict[str, Any]:
    began = {
        name: json.loads((resolve(source) / MANIFEST).read_text())["provenance"]
        for name in ORIGINS
        if (source := getattr(recipe, name))
    }
    return {
        "recipe": _told(json.loads(json.dumps(dataclasses.asdict(recipe)))),
        "data_answer_tokens": sum(shard.answer_tokens for shard in data.shards),
        "data_sha256": data.sha256,
        "calibration": None if calibration is None else dataclasses.asdict(calibration),
        **began,  # the provenance of the continued checkpoint
    }


def made_alike(before: Any, now: Mapping[str, Any]) -> bool:
    """Whether two provenances are equal: same recipe and data, and equal provenances of their starts."""
    if not isinstance(before, Mapping) or before == now:
        return bool(before == now)
    return (
        same_recipe(before.get("recipe"), now.get("recipe", {}))
        and before.get("data_sha256") == now.get("data_sha256")
        and all(name not in now or made_alike(before.get(name), now[name]) for name in ORIGINS)
    )


def _told(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a path without the folders above the run's, which only this machine has."""
    for name in ("data", "out", "start", "tuned_base", "tokenizer"):
        if (path := Path(recipe[name])).is_absolute():
            recipe[name] = str(Path(*path.parts[-2:]))
    return recipe


def _same_source(data: DistilledData, reference: dict[str, Any], recipe: Recipe) -> None:
    source = data.source
    if source.get("sha256") and source["sha256"] != reference["sha256"]:
        raise ConfigError(
            f"{recipe.data}: was distilled from {source.get('base')}, not from the recipe's base "
            f"{recipe.base}: distill again or change the recipe"
        )
