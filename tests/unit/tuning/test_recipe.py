"""Recipes of a task: written as they are read, with nothing in them that was not chosen."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.places import ROOT

from hamburger_edge.errors import ConfigError
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.models.training.data.batches import Cuts
from hamburger_edge.models.training.objective import LossWeights
from hamburger_edge.models.training.training_recipe import Recipe, Shape, Stage
from hamburger_edge.tuning.tune_recipe import TuneRecipe, read_tune_recipe, to_toml, write_tune_recipe

STAGE = Stage("only", ("embedder", "base"), epochs=1.5, learning_rate=1e-3, cuts=Cuts(entropy=0.5))
TRAINING = Recipe(base="", data="", out="", shape=Shape(taps=(1, 2)), stages=(STAGE,), rows=2)
PLAIN = replace(
    TRAINING,
    shape=Shape(taps=(), max_group_tokens=1),
    stages=(replace(STAGE, learns=("base",), cuts=None, loss=LossWeights(micro=0.0)),),
    calibrate=False,
)
RECIPE = TuneRecipe(
    base='a "base"',
    examples="x.jsonl",
    tune_base=False,
    evaluation=EvaluationPlan(confidences=(0.5,)),
    tuning=TRAINING,
    graft=replace(TRAINING, optimizer="muon"),
)


def test_written_recipe_is_read_back(tmp_path: Path) -> None:
    """Without the place where a run was made."""
    placed = replace(TRAINING, base="b", data="d", out="o", held_out=0.3, tuned_base="t")
    for recipe in (RECIPE, replace(RECIPE, tuning=placed)):
        write_tune_recipe(tmp_path / "r.toml", recipe)
        assert read_tune_recipe(tmp_path / "r.toml") == RECIPE
    assert "warmup" not in (tmp_path / "r.toml").read_text()


def test_toml_text_is_read_back() -> None:
    text = "\"é\\\n\t\x00\x1f\x7f'\U0001f600"
    flat = {"a": True, "b": -(2**40), "c": text, "d": [1e-300, 2.5, 1e22], "e": []}
    nested = {**flat, "w": flat, "x": [flat, {}, {"a": ["", "]"]}]}
    table = {**nested, "deep": nested, "y": {}}
    assert tomllib.loads(to_toml(table)) == table


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("share = 0.5", "share must be between 0 and 0.5, got 0.5"),
        ('[graft]\nout = "o"', "graft: out is the run's own"),
        ('precision = "int9"', "precision"),
        ("layers = 3\nbase_layers = [0, 1]", "base_layers: has 2 layers, recipe.layers is 3: leave out"),
        ("layers = 3\ntune_base = false", "a base that loses layers must be tuned: set tune_base = true"),
        ("layers = -1", "layers must be 0 or more, got -1"),
        ("[graft]\nbase_layers = [0]", "graft: base_layers is the run's own"),
        ("[graft]\nstages = []\nshape = {taps = []}", "at least one"),
        (
            "more_answers = 5",
            "more_answers: a model that merges nothing has no graft: delete it, or merge",
        ),
        (
            '[tuning]\nshape = {taps = []}\nstages = [{name = "s", learns = ["base"], epochs = 1, '
            "learning_rate = 1e-3}]",
            "tuning.shape: a model that merges nothing has max_group_tokens = 1",
        ),
        (
            "[tuning]\nshape = {taps = [], max_group_tokens = 1}\nstages = [{name = 's', learns = ['base'], "
            "epochs = 1, learning_rate = 1e-3}]",
            "max_group_tokens 1 has no graft: let the base learn alone",
        ),
    ],
)
def test_bad_recipe_error_names_the_key(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "r.toml").write_text(f'base = "b"\nexamples = "x"\n{line}')
    with pytest.raises(ConfigError, match=message):
        read_tune_recipe(tmp_path / "r.toml")


def test_recipes_of_the_built_in_models_are_read() -> None:
    """Two of them once had keys that their reader refused."""
    zoo = ROOT / "models" / "zoo"
    recipes = [
        path for path in zoo.rglob("*.toml") if f"tune --recipe {path.relative_to(ROOT)}" in path.read_text()
    ]
    assert len(recipes) >= 8
    assert all(read_tune_recipe(path).base for path in recipes)


def test_training_recipe_has_one_stage() -> None:
    with pytest.raises(ConfigError, match=r"recipe\.graft: has 2 stages"):
        replace(RECIPE, graft=replace(TRAINING, stages=(STAGE, STAGE)))


def test_model_merges_if_asked_to_or_if_its_base_learned_merged_text() -> None:
    plain = replace(TRAINING, stages=(replace(STAGE, cuts=None),))
    frozen = replace(TRAINING, stages=(replace(STAGE, learns=("micro",)),))
    assert RECIPE.merges
    assert not replace(RECIPE, tuning=PLAIN, graft=None).merges
    assert replace(RECIPE, tuning=plain, graft=frozen, merge=True).merges
    assert not TuneRecipe(base="b", examples="x").merges
