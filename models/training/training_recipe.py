"""A training recipe: one TOML file with all settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation.storage import Folder, folder_at
from hamburger_edge.models.training.data.batches import Cuts
from hamburger_edge.models.training.objective import LossWeights
from hamburger_edge.support.strict import from_mapping, read_toml

PARTS = {"micro", "stop_head", "embedder", "base"}  # that may learn
SHORTEST_ROW = 16  # slots; a row must hold a question and an answer


@dataclass(frozen=True)
class Shape:
    """The graft's shape; other dimensions are the base's."""

    taps: tuple[int, ...]
    max_group_tokens: int = 4  # 1: no graft; its other keys have no meaning then
    micro_layers: int = 4
    merger_heads: int = 16
    position_rule: Literal["token", "slot"] = "token"
    merge_residual: Literal["mean", "last"] = "mean"  # initial value of a merged slot; `start` may differ
    stop_rule: Literal["before", "after"] = "after"  # when a micro token is judged
    draft_vocab_size: int = 0
    initialise: Literal["base", "random"] = (
        "base"  # micro layers: copies of the base's last layers, or random
    )


@dataclass(frozen=True)
class Stage:
    """One stage of training: the parts that learn, the cuts, the rates."""

    name: str
    learns: tuple[str, ...]  # of PARTS
    epochs: float
    learning_rate: float  # of the graft
    base_learning_rate: float = 5e-5
    lora_rank: int = 0  # 0: the base learns in full
    warmup: float = 0.03  # share of the steps
    final_rate: float = 0.1  # final learning rate as a share of its peak
    average: float = 0.0  # share of the last steps whose mean weights end the stage
    cuts: Cuts | None = None  # None: one token per slot
    loss: LossWeights = field(default_factory=LossWeights)


@dataclass(frozen=True)
class Recipe:
    base: str  # built-in name, GGUF file or Hugging Face folder
    data: str  # folder made by `distill`, or its URL
    out: str  # folder for checkpoints, metrics and curves
    shape: Shape
    stages: tuple[Stage, ...]
    base_layers: tuple[int, ...] = ()  # layers of the base that are kept, numbered anew; (): all
    tokenizer: str = ""  # tokenizer.json with the tokens of the base that are kept; "": all
    more_data: tuple[str, ...] = ()  # more folders from the same base; one named twice counts twice
    start: str = ""  # checkpoint folder or built-in name to continue, instead of a new graft
    more_starts: tuple[str, ...] = ()  # their mean with `start`; one named twice counts twice
    start_share: float = 0.0  # of the continued weights in the mean that ends the run
    tuned_base: str = ""  # checkpoint whose changes to the base a new graft starts from
    seed: int = 0
    held_out: float = 0.02  # share of questions never trained on
    rows: int = 4  # packed rows per batch ...
    row_slots: int = 640  # ... of this many slots
    step_batches: int = 0  # batches per step, shared by all processes; 0: one per process
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for the matrices inside layers
    weight_decay: float = 0.01
    clip: float = 1.0  # gradient norm
    precision: Literal["auto", "bf16", "fp32"] = (
        "auto"  # auto: the one in which the machine multiplies faster
    )
    save_minutes: float = 5.0
    judge_every: int = 200  # steps between judgements on held-out data
    judge_batches: int = 8
    patience: int = (
        0  # judgements in a row without a better loss that end a stage, at its best weights; 0: off
    )
    calibrate: bool = True  # fit the stop head's scale and offset at the end

    @property
    def data_folders(self) -> tuple[Folder, ...]:
        return tuple(map(folder_at, (self.data, *self.more_data)))

    @property
    def starts(self) -> tuple[str, ...]:
        """Checkpoints whose mean training continues; none: a new graft."""
        return (self.start, *self.more_starts) if self.start else ()

    @property
    def origins(self) -> tuple[str, ...]:
        """Checkpoints whose mean holds the base, if it is not the plain one."""
        return self.starts or ((self.tuned_base,) if self.tuned_base else ())

    @property
    def own_tokenizer(self) -> Path | None:
        return Path(self.tokenizer) if self.tokenizer else None

    @property
    def base_ranks(self) -> set[int]:
        """LoRA rank of the stages in which the base learns; 0: in full."""
        return {stage.lora_rank for stage in self.stages if "base" in stage.learns}

    def __post_init__(self) -> None:
        if not self.stages:
            raise ConfigError("recipe.stages: at least one [[stages]] table is needed")
        for name in ("rows", "row_slots", "judge_every", "judge_batches", "clip"):
            _positive(f"recipe.{name}", getattr(self, name))
        if self.row_slots < SHORTEST_ROW:
            raise ConfigError(f"recipe.row_slots must be at least {SHORTEST_ROW}, got {self.row_slots}")
        if self.step_batches < 0:
            raise ConfigError(f"recipe.step_batches must be 0 or more, got {self.step_batches}")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"recipe.held_out must be between 0 and 1, got {self.held_out}")
        self._check_origins()
        for stage in self.stages:
            _check_stage(stage)
        self._check_base_ranks()
        if self.shape.max_group_tokens == 1:
            self._check_plain()

    def _check_plain(self) -> None:
        """Check that a model without a graft does not learn one."""
        for stage in self.stages:
            if set(stage.learns) != {"base"} or stage.loss.micro or stage.cuts is not None:
                raise ConfigError(
                    f"recipe.stages {stage.name!r}: shape.max_group_tokens 1 has no graft: let the base "
                    "learn alone, with loss.micro = 0 and no cuts"
                )
        if self.calibrate:
            raise ConfigError("recipe.calibrate: shape.max_group_tokens 1 has no stop head: set it to false")

    def _check_origins(self) -> None:
        if self.more_starts and not self.start:
            raise ConfigError("recipe.more_starts: there is no start that they could be averaged with")
        _share("recipe.start_share", self.start_share)
        if self.start_share and not self.origins:
            raise ConfigError("recipe.start_share: there is no start whose weights could be kept")
        if self.tuned_base and self.start:
            raise ConfigError(
                "recipe.tuned_base: `start` brings a base that was trained already: name one of them"
            )

    def _check_base_ranks(self) -> None:
        for stage in self.stages:
            if stage.loss.features and 0 in self.base_ranks:
                raise ConfigError(
                    f"recipe.stages {stage.name!r}: loss.features compares with the plain base, "
                    f"which is gone once the base learns in full: set lora_rank"
                )
        if len(self.base_ranks) > 1:
            ranks = ", ".join(map(str, sorted(self.base_ranks)))
            raise ConfigError(f"recipe.stages: the base learns at one lora_rank throughout, got {ranks}")


def _check_stage(stage: Stage) -> None:
    where, known = f"recipe.stages {stage.name!r}", ", ".join(sorted(PARTS))
    for name in ("epochs", "learning_rate", "base_learning_rate"):
        _positive(f"{where}: {name}", getattr(stage, name))
    for name in ("warmup", "final_rate", "average"):
        _share(f"{where}: {name}", getattr(stage, name))
    if not stage.learns:
        raise ConfigError(f"{where}: learns is empty, known are {known}")
    if unknown := set(stage.learns) - PARTS:
        raise ConfigError(f"{where}: learns has {min(unknown)!r}, known are {known}")
    if stage.lora_rank < 0:
        raise ConfigError(f"{where}: lora_rank must be 0 or more, got {stage.lora_rank}")
    _check_loss(where, stage.loss)
    if stage.cuts is not None:
        _check_cuts(where, stage.cuts)


def _check_loss(where: str, loss: LossWeights) -> None:
    for name in ("first_every", "micro_every", "features_every"):
        _positive(f"{where}: loss.{name}", getattr(loss, name))
    _share(f"{where}: loss.hard", loss.hard)
    if not (loss.first or loss.micro or loss.features):
        raise ConfigError(f"{where}: loss has no weight above 0: give it one")


def _check_cuts(where: str, cuts: Cuts) -> None:
    if cuts.merged > 1 + 1e-9:
        raise ConfigError(f"{where}: the shares of cuts add up to {cuts.merged:g}, more than 1")
    for name in ("entropy", "random", "agreement"):
        _share(f"{where}: cuts.{name}", getattr(cuts, name))
    pairs = len(cuts.low), len(cuts.ratio)
    if pairs[0] != pairs[1] or not pairs[0]:
        raise ConfigError(f"{where}: cuts: low and ratio are rules in pairs, got {pairs[0]} and {pairs[1]}")


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} must be positive, got {value}")


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} must be 0 to 1, got {value}")


def read_recipe(path: Path) -> Recipe:
    """Strict: an unknown, missing or wrongly typed key is an error that names it."""
    recipe: Recipe = from_mapping(Recipe, read_toml(path), str(path))
    return recipe
