"""The recipe of a task's model, one TOML file: every run writes it, `--recipe` reads it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hamburger_edge.errors import ConfigError
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.models.training.data.split import JUDGING_SHARE
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.strict import from_mapping, read_toml
from hamburger_edge.support.values import number_in

TRAININGS = ("tuning", "graft", "reading")
# keys of a training that the run sets itself
PLACED = ("base", "base_layers", "tokenizer", "data", "more_data", "out", "held_out", "start", "tuned_base")


@dataclass(frozen=True)
class TuneRecipe:
    base: str  # built-in name, GGUF file or Hugging Face folder
    examples: str  # file, see examples.py; or a command that writes such lines of JSON
    lines: int = 100_000  # limit of lines of a command
    held_out: str = ""  # file of held-out examples; "": a share of `examples` is held out
    tools: str = ""  # file of the functions that answers call; "": those in the rows, if there are any
    share: float = JUDGING_SHARE  # held-out share of the prompts; half as many more calibrate
    more_examples: str = ""  # file of examples that only train, such as made ones: none is held out
    augment: int = 0  # copies of the examples with exchanged texts, see augment.py
    template: Literal["brief", "base"] = "brief"  # marks around a prompt: the fewest possible, or all
    start: str = ""  # checkpoint on this base: tuning continues from its base update and its embedder
    continues: bool = False  # the whole model `start` goes on learning in one training, see continuing.py
    tune_base: bool = True  # False: the base is already tuned
    layers: int = 0  # of the base, the others are dropped before training, see layers.py; 0: all
    base_layers: tuple[int, ...] = ()  # those layers; (): chosen from the examples
    tokens: int = 0  # of the base, the others are left out before training, see vocabulary.py; 0: all
    merge: bool = False  # the model gets a graft, for modes hybrid and merge; see `merges`
    full: bool = False  # tune all weights of the base instead of a low-rank update
    scored: int = 0  # examples that the tuned base scores for the graft's training; 0: all
    read: int = 7500  # if it `merges`: examples of the reading step, cut as the graft groups them; 0: skip it
    more_answers: int = 0  # prompts that the tuned base answers, as more training data of the graft
    off_topic: str = ""  # file of sentences that are no task, or "builtin"; see off_topic.py
    right: float = 95  # percent of right answers, for which a min_certainty is reported
    judge: str = ""  # see judges.py; "": chosen by the form of the answers
    # of the evaluated bundle, and of exports of the checkpoint that name none
    precision: Literal["int4", "int8", "fp16", "fp32"] = "int8"
    edits_prompt: bool = False  # answers are corrected prompts: names, numbers and codes stay as they are
    copied_fields: bool = True  # answers' strings are spans of the prompt in fields where the examples' are
    calibration_text: bool = True  # the checkpoint holds examples, for exports to calibrate on
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    tuning: Recipe | None = None  # training of the base; None: chosen from the examples, see shape.py
    graft: Recipe | None = None  # None: chosen from the scored answers
    reading: Recipe | None = None  # of base and graft, on the graft's groups; None: from the other two

    @property
    def merges(self) -> bool:
        """Whether the model merges tokens: `merge`, or a training with merged text says so."""
        trainings = [self.tuning, self.graft, self.reading]
        stages = [training.stages[0] for training in trainings if training is not None]
        cuts = [stage.cuts for stage in stages if "base" in stage.learns]
        return self.merge or any(cut is not None and cut.merged > 0 for cut in cuts)

    @property
    def main_training(self) -> Literal["tuning", "graft", "reading"]:
        """The training that decides which answers are right: that of the base, if the base learns."""
        if self.continues:
            return "reading"
        return "tuning" if self.tune_base else "graft"

    def __post_init__(self) -> None:
        number_in("recipe.right", self.right, 0, 100, above=True)
        if not 0 < self.share < 0.5:
            raise ConfigError(f"recipe.share must be between 0 and 0.5, got {self.share}")
        if self.lines < 1:
            raise ConfigError(f"recipe.lines must be 1 or more, got {self.lines}")
        for name in ("augment", "scored", "read", "more_answers", "layers", "tokens"):
            if getattr(self, name) < 0:
                raise ConfigError(f"recipe.{name} must be 0 or more, got {getattr(self, name)}")
        if self.base_layers and len(self.base_layers) != self.layers:
            raise ConfigError(
                f"recipe.base_layers: has {len(self.base_layers)} layers, recipe.layers is {self.layers}: "
                "leave out base_layers"
            )
        if self.layers and not self.tune_base:
            raise ConfigError("recipe.layers: a base that loses layers must be tuned: set tune_base = true")
        if self.tokens and not self.tune_base:
            raise ConfigError("recipe.tokens: a base that loses tokens must be tuned: set tune_base = true")
        for name in TRAININGS:
            training = getattr(self, name)
            if training is not None and len(training.stages) != 1:
                raise ConfigError(f"recipe.{name}: has {len(training.stages)} stages: give one")
        if not self.merges:
            self._check_plain()

    def _check_plain(self) -> None:
        """Check that a model that merges nothing gets no graft."""
        for name in ("graft", "more_answers"):
            if getattr(self, name):
                raise ConfigError(
                    f"recipe.{name}: a model that merges nothing has no graft: delete it, or merge (--merge)"
                )
        for name in ("tuning", "reading"):
            training = getattr(self, name)
            if training is not None and training.shape.max_group_tokens > 1:
                raise ConfigError(
                    f"recipe.{name}.shape: a model that merges nothing has max_group_tokens = 1: "
                    "set that, or merge = true"
                )


def read_tune_recipe(path: Path) -> TuneRecipe:
    data = read_toml(path)
    for name in TRAININGS:
        if isinstance(training := data.get(name), dict):
            if given := sorted(set(training) & set(PLACED)):
                raise ConfigError(f"{path}.{name}: {given[0]} is the run's own to say: leave it out")
            origin = {"tuning": "tuned_base", "reading": "start"}.get(name)
            begins = {origin: data.get("start", "")} if origin else {}
            data[name] = {"base": "", "data": "", "out": "", **begins, **training}
    recipe: TuneRecipe = from_mapping(TuneRecipe, data, str(path))
    return recipe


def write_tune_recipe(path: Path, recipe: TuneRecipe) -> None:
    """Write a recipe without default values, so that the file shows the choices."""
    tables = _chosen(recipe)
    for name in TRAININGS:
        for key in PLACED:
            tables.get(name, {}).pop(key, None)
    with write_atomically(path) as temporary:
        temporary.write_text(to_toml(tables), encoding="utf-8")


def _chosen(value: Any) -> dict[str, Any]:
    """Return a dataclass as nested tables, without default values."""
    chosen: dict[str, Any] = {}
    for entry in dataclasses.fields(value):
        own = getattr(value, entry.name)
        default = entry.default
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
        if own is not None and own != default:
            chosen[entry.name] = _plain(own)
    return chosen


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _chosen(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_toml(table: Mapping[str, Any], name: str = "") -> str:
    """Format as TOML: numbers, booleans, strings, lists of them, tables and lists of tables."""
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not _is_table(value)]
    parts = ["\n".join(lines) + "\n"] if lines else []
    for key, value in table.items():
        full = f"{name}.{key}" if name else key
        if isinstance(value, Mapping):
            parts.append(f"[{full}]\n{to_toml(value, full)}")
        elif _is_table(value):
            parts += [f"[[{full}]]\n{to_toml(item, full)}" for item in value]
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    listed = isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    return isinstance(value, Mapping) or listed


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # TOML writes numbers, booleans and basic strings as JSON does, except that DEL must be escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
