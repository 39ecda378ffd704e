"""Choose the training recipes of a task from its data: epochs, row length and the graft's shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import Cuts, DistilledData
from hamburger_edge.models.training.data.segmentation import EntropyRule, report_cuts
from hamburger_edge.models.training.objective import LossWeights
from hamburger_edge.models.training.runs import lora_rank
from hamburger_edge.models.training.training_recipe import Recipe, Shape, Stage

PLAIN = Shape(taps=(), max_group_tokens=1)  # the base alone
ROW_SLOTS = 512  # minimum length of a row
BASE_ROWS, GRAFT_ROWS = 1, 4  # rows per batch: a base learns most per slot in small batches at a high rate
LORA_RATE, FULL_RATE, EMBEDDER_RATE = 2e-3, 2e-4, 1e-3
NORMED_RATE = 1e-3  # LoRA rate where a norm follows every block: 86.3% of Gemma's commands right, 2e-3 75.4%
RANK = 32  # LoRA rank of the base's update
LONGEST = 8  # tokens per group
EPOCHS = 2.0
# minimum steps of base, graft, and both continued: small data sets get more epochs, up to MOST_EPOCHS
BASE_STEPS, GRAFT_STEPS, CONTINUED_STEPS, MOST_EPOCHS = 900, 150, 300, 10.0
START_SHARE = 0.25  # of the continued weights in the final mean: the less, the more it forgets
DRAFT_VOCABS = (512, 1024, 2048, 4096, 8192)
COVERED = 0.98  # share of the answers' tokens that the draft vocabulary covers
LONG_GROUPS = 1.15  # groups of 8 are used from this ratio of tokens per group, against groups of 4


def row_slots(data: DistilledData, context: int) -> int:
    """Return the row length: the longest conversation, at least ROW_SLOTS, at most the context."""
    longest = int(np.diff(data.starts).max())
    return min(context, max(ROW_SLOTS, -(-longest // 64) * 64))


def tuning_recipe(
    data: DistilledData,
    base: BaseConfig,
    *,
    merge: bool = False,
    full: bool = False,
    residual: Literal["mean", "last"] = "last",
) -> Recipe:
    """Return the recipe that trains the base to answer.

    `merge`: also to read merged text, for the graft that follows. Then half of the examples are cut into
    groups at random, which costs right answers.
    """
    low_rank = NORMED_RATE if base.output_norms else LORA_RATE
    rate, slots = FULL_RATE if full else low_rank, row_slots(data, base.context_length)
    stage = Stage(
        name="tuning",
        learns=("base", "embedder") if merge else ("base",),
        epochs=epochs(data, BASE_ROWS * slots, BASE_STEPS),
        learning_rate=min(rate, EMBEDDER_RATE),
        base_learning_rate=rate,
        lora_rank=0 if full else RANK,
        cuts=Cuts(entropy=0.0, random=0.5) if merge else None,
        loss=LossWeights(micro=0.0, hard=0.0),
    )
    return Recipe(
        base="",
        data="",
        out="",
        shape=_reading_shape(base, residual) if merge else PLAIN,
        stages=(stage,),
        rows=BASE_ROWS,
        row_slots=slots,
        weight_decay=0.0,
        judge_every=200,
        patience=3,
        calibrate=False,
    )


def _reading_shape(base: BaseConfig, residual: Literal["mean", "last"]) -> Shape:
    """Return the shape of a model that only reads merged text: with the least micro decoder, untrained."""
    return Shape(
        taps=(),
        max_group_tokens=LONGEST,
        micro_layers=1,
        merger_heads=_heads(base),
        merge_residual=residual,
        initialise="random",
    )


def graft_recipe(scored: DistilledData, base: BaseConfig, tuning: Recipe | None) -> Recipe:
    """Return the recipe of a new graft.

    A base that already reads merged text stays frozen, which takes a third of the time. Any other base learns
    that together with the graft.
    """
    frozen = tuning is not None and "embedder" in tuning.stages[0].learns
    merged = Cuts(entropy=0.5, random=0.3, low=(0.005, 0.02, 0.05), ratio=(0.1, 0.2, 0.3))
    rank = RANK if tuning is None else tuning.stages[0].lora_rank
    slots = row_slots(scored, base.context_length)
    beside = LossWeights(features=1.0 if rank else 0.0, features_every=2, micro_every=2)
    stage = Stage(
        name="graft",
        learns=("micro", "stop_head") if frozen else ("embedder", "base", "micro", "stop_head"),
        epochs=epochs(scored, GRAFT_ROWS * slots, GRAFT_STEPS) if frozen else EPOCHS,
        learning_rate=1.5e-3,
        base_learning_rate=6e-4,
        lora_rank=rank,
        average=0.2,
        cuts=merged,
        loss=LossWeights(first=0.0, micro_every=2) if frozen else beside,
    )
    return Recipe(
        base="",
        data="",
        out="",
        shape=shape(scored, base, "last" if tuning is None else tuning.shape.merge_residual),
        stages=(stage,),
        rows=GRAFT_ROWS,
        row_slots=slots,
        optimizer="muon",
        judge_every=100,
    )


def reading_recipe(tuning: Recipe | None, graft: Recipe) -> Recipe:
    """Return the recipe that continues training base and graft together on the graft's own groups.

    Its main purpose is that the base learns to read those groups.
    """
    taught = graft if tuning is None else tuning
    stage = _together(taught.stages[0].lora_rank, 1.0, Cuts(entropy=0.0, random=0.15, agreement=0.65))
    return replace(
        graft, stages=(stage,), optimizer="adamw", weight_decay=0.0, judge_every=50, judge_batches=6, seed=1
    )


def continuing_recipe(start: str, data: DistilledData) -> Recipe:
    """Return the recipe that continues base and graft of a task's checkpoint on more examples.

    With a graft, a third of the examples is cut into groups at random, so that the base still reads merged
    text. A part of the old weights stays in the final mean, so that the model forgets less.
    """
    manifest = read_manifest(resolve(start) / MANIFEST)
    config = manifest.config
    slots = row_slots(data, config.base.context_length)
    more = epochs(data, BASE_ROWS * slots, CONTINUED_STEPS)
    stage = _together(lora_rank(start), more, Cuts(entropy=0.0, random=0.3))
    if not config.has_graft:
        stage = replace(stage, learns=("base",), cuts=None, loss=LossWeights(micro=0.0))
    return Recipe(
        base="",
        data="",
        out="",
        shape=Shape(
            taps=config.taps,
            max_group_tokens=config.max_group_tokens,
            micro_layers=config.micro_layers,
            merger_heads=config.merger_heads,
            position_rule=config.position_rule,
            merge_residual=config.merge_residual,
            stop_rule=config.stop_rule,
            draft_vocab_size=config.draft_vocab_size,
        ),
        stages=(stage,),
        start=start,
        start_share=START_SHARE,
        rows=BASE_ROWS,
        row_slots=slots,
        weight_decay=0.0,
        judge_every=100,
        judge_batches=6,
        calibrate=config.has_graft,
    )


def _together(rank: int, epochs: float, cuts: Cuts) -> Stage:
    """Return the stage in which base and graft learn together."""
    return Stage(
        name="reading",
        learns=("base", "embedder", "micro", "stop_head"),
        epochs=epochs,
        learning_rate=2e-4,
        base_learning_rate=5e-4 if rank else 5e-5,
        lora_rank=rank,
        average=0.3,
        cuts=cuts,
        loss=LossWeights(micro=0.3, stop=0.3, micro_every=3),
    )


def epochs(data: DistilledData, slots: int, least: int) -> float:
    """Return epochs for at least `least` steps of `slots` slots, between EPOCHS and MOST_EPOCHS.

    The estimate counts one token per slot.
    """
    steps = max(1.0, len(data.ids) / slots)
    return min(MOST_EPOCHS, max(EPOCHS, round(least / steps, 1)))


def shape(scored: DistilledData, base: BaseConfig, residual: Literal["mean", "last"]) -> Shape:
    layers = base.num_layers
    return Shape(
        taps=tuple(sorted({layers * quarter // 4 for quarter in (1, 2, 3)})),
        max_group_tokens=LONGEST if long_groups(scored) else 4,
        micro_layers=min(2, layers),
        merger_heads=_heads(base),
        merge_residual=residual,
        draft_vocab_size=draft_vocab_size(scored, base.vocab_size),
    )


def long_groups(scored: DistilledData) -> bool:
    """Return whether groups of 8 hold at least LONG_GROUPS times the tokens of groups of 4."""
    answers = _answers(scored)
    four, eight = (report_cuts(answers, longest, EntropyRule()).tokens_per_group for longest in (4, LONGEST))
    return eight >= LONG_GROUPS * four


def draft_vocab_size(data: DistilledData, vocabulary: int) -> int:
    """Return the smallest of DRAFT_VOCABS that covers COVERED of the answers' tokens, else the largest.

    Sizes must be below `vocabulary`. Return 0, the whole vocabulary, if the fallback is not.
    """
    counts = np.sort(np.bincount(data.ids[data.roles == ANSWER], minlength=vocabulary))[::-1]
    covered = np.cumsum(counts) / max(1, counts.sum())
    fitting = [size for size in DRAFT_VOCABS if size < vocabulary and covered[size - 1] >= COVERED]
    largest = DRAFT_VOCABS[-1] if DRAFT_VOCABS[-1] < vocabulary else 0
    return fitting[0] if fitting else largest


def _answers(data: DistilledData) -> Sequence[np.ndarray]:
    """Return the entropies of the answer tokens, one array per conversation."""
    answers = data.roles == ANSWER
    spans = zip(data.starts[:-1], data.starts[1:], strict=True)
    return [data.entropies[start:stop][answers[start:stop]].astype(np.float32) for start, stop in spans]


def _heads(base: BaseConfig) -> int:
    return next(heads for heads in (16, 8, 4, 2, 1) if base.hidden_size % heads == 0)
