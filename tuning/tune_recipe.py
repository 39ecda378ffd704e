"""All that makes a task's model, as one TOML file: written out by every run, read with `--recipe`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hamburger_edge.errors import ConfigError
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.strict import from_mapping, read_toml

TRAININGS = ("tuning", "graft", "reading")
# of a training: the run itself sees to these
PLACED = ("base", "data", "more_data", "out", "held_out", "tuned_base")


@dataclass(frozen=True)
class TuneRecipe:
    base: str  # built-in name, GGUF file or Hugging Face folder
    examples: str  # file, see examples.py
    held_out: str = ""  # file of examples to judge by, which nothing is trained on; "": a share of `examples`
    share: float = 0.05  # of questions that nothing is trained on; half as many more calibrate the stop head
    augment: int = 0  # copies of the examples with texts exchanged among them, see augment.py
    template: Literal["brief", "base"] = "brief"  # marks around a prompt: as few as can be, or all the base's
    start: str = ""  # checkpoint on this base: the tuning goes on from its changes to it, and its embedder
    tune_base: bool = True  # False: it knows the task already
    full: bool = False  # tune all of the base, not a low-rank update
    scored: int = 0  # examples that the tuned base reads and the graft learns from; 0: all
    read: int = 7500  # examples that base and graft learn to read as this graft groups them; 0: none
    more_answers: int = 0  # prompts that the tuned base answers itself, for the graft to learn from as well
    judge: str = ""  # see judges.py; "": as the answers are
    precision: str = "int4"  # of the bundle that is evaluated
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    tuning: Recipe | None = None  # teaches the base the task; none: chosen by the examples, see shape.py
    graft: Recipe | None = None  # none: chosen once the base has read the answers
    reading: Recipe | None = None  # of both, in the graft's own groups; none: chosen by those two

    def __post_init__(self) -> None:
        if not 0 < self.share < 0.5:
            raise ConfigError(f"recipe.share must be between 0 and 0.5, got {self.share}")
        for name in ("augment", "scored", "read", "more_answers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"recipe.{name} must be 0 or more, got {getattr(self, name)}")
        for name in TRAININGS:
            training = getattr(self, name)
            if training is not None and len(training.stages) != 1:
                raise ConfigError(f"recipe.{name}: has {len(training.stages)} stages: give one")


def read_tune_recipe(path: Path) -> TuneRecipe:
    data = read_toml(path)
    for name in TRAININGS:
        if isinstance(training := data.get(name), dict):
            if given := sorted(set(training) & set(PLACED)):
                raise ConfigError(f"{path}.{name}: {given[0]} is the run's own to say: leave it out")
            data[name] = {"base": "", "data": "", "out": "", **training}
    recipe: TuneRecipe = from_mapping(TuneRecipe, data, str(path))
    return recipe


def write_tune_recipe(path: Path, recipe: TuneRecipe) -> None:
    """What is as it is by default is left out, so that the file shows what was chosen."""
    tables = _chosen(recipe)
    for name in TRAININGS:
        for key in PLACED:
            tables.get(name, {}).pop(key, None)
    with write_atomically(path) as temporary:
        temporary.write_text(to_toml(tables), encoding="utf-8")


def _chosen(value: Any) -> dict[str, Any]:
    """A dataclass as nested tables, without defaults."""
    found: dict[str, Any] = {}
    for entry in dataclasses.fields(value):
        own = getattr(value, entry.name)
        default = entry.default
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
        if own is not None and own != default:
            found[entry.name] = _plain(own)
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _chosen(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_toml(table: Mapping[str, Any], name: str = "") -> str:
    """Numbers, truths, texts, lists of them, tables and lists of tables."""
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
    # TOML's numbers, truths and basic strings are JSON's, but for DEL, which it wants escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
