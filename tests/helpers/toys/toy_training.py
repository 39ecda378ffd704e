"""A recipe, a base and a trainer small enough for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.training.data.batches import Cuts
from hamburger_edge.models.training.grafting import graft
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe, Shape, Stage
from helpers.toys.toy_models import toy_config
from helpers.toys.training_data_files import END, ladders

SHAPE = Shape(taps=(0, 1), micro_layers=1, merger_heads=4, initialise="random", draft_vocab_size=90)
EVERYTHING = ("micro", "stop_head", "embedder", "base")
JOINT = Stage("joint", EVERYTHING, epochs=4, learning_rate=6e-3, base_learning_rate=6e-3, cuts=Cuts())
RECIPE = Recipe(
    base="toy",
    data="data",
    out="out",
    shape=SHAPE,
    stages=(replace(JOINT, name="plain", cuts=None), JOINT),
    held_out=0.2,
    rows=2,
    row_slots=64,
    precision="fp32",
    judge_every=50,
    save_minutes=0.0,
)


def toy_base(seed: int = 0) -> LoadedBase:
    torch.manual_seed(seed)
    base = Base(toy_config(num_layers=2).base)
    torch.nn.init.normal_(base.embed_tokens.weight, std=0.05)
    return LoadedBase(base.config, dict(base.state_dict()), None, None, (END,), "toy", None)


def toy_model(recipe: Recipe = RECIPE) -> Hamburger:
    base = toy_base()
    draft_vocab = torch.arange(recipe.shape.draft_vocab_size)
    return graft(base.config, base.state, base.eos_ids, recipe.shape, draft_vocab, recipe.seed)


def toy_trainer(
    out: Path, recipe: Recipe = RECIPE, conversations: int = 500, *, divide: bool = False
) -> Trainer:
    torch.set_num_threads(1)
    recipe = replace(recipe, out=str(out))
    quiet = lambda line: None  # noqa: E731
    return Trainer(recipe, toy_model(recipe), ladders(conversations), quiet, device="cpu", divide=divide)


SHORT = replace(RECIPE, stages=tuple(replace(stage, epochs=1) for stage in RECIPE.stages), judge_every=10**6)
SHARED = replace(  # by one, two or four processes: five steps of the same four batches
    SHORT, step_batches=4, stages=(replace(JOINT, epochs=1.5, average=0.5),), judge_every=1, judge_batches=2
)
LORA = replace(JOINT, name="lora", epochs=1, lora_rank=2)


def short(lora_rank: int) -> Recipe:
    """Two stages of a dozen steps, merging text in every way, which end with means of their weights."""
    cuts = Cuts(entropy=0.3, random=0.3, agreement=0.3)
    stages = (
        replace(stage, lora_rank=lora_rank, cuts=cuts if stage.cuts else None, average=0.9)
        for stage in SHORT.stages
    )
    return replace(SHORT, stages=tuple(stages))
