"""Recipes of a task: written as they are read, with nothing in them that was not chosen."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamburger_edge.errors import ConfigError
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.models.training.data.batches import Cuts
from hamburger_edge.models.training.training_recipe import Recipe, Shape, Stage
from hamburger_edge.tuning.tune_recipe import TuneRecipe, read_tune_recipe, to_toml, write_tune_recipe

STAGE = Stage("only", ("embedder", "base"), epochs=1.5, learning_rate=1e-3, cuts=Cuts(entropy=0.5))
TRAINING = Recipe(base="", data="", out="", shape=Shape(taps=(1, 2)), stages=(STAGE,), rows=2)
RECIPE = TuneRecipe(
    base='a "base"',
    examples="x.jsonl",
    tune_base=False,
    evaluation=EvaluationPlan(confidences=(0.5,)),
    tuning=TRAINING,
    graft=replace(TRAINING, optimizer="muon"),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_tune_recipe(tmp_path / "r.toml", RECIPE)
    assert read_tune_recipe(tmp_path / "r.toml") == RECIPE
    placed = replace(TRAINING, base="b", data="d", out="o", held_out=0.3, tuned_base="t")
    write_tune_recipe(tmp_path / "r.toml", replace(RECIPE, tuning=placed))
    assert read_tune_recipe(tmp_path / "r.toml") == RECIPE  # where a run was made is no part of it
    assert "warmup" not in (tmp_path / "r.toml").read_text()


VALUES = st.one_of(
    st.booleans(), st.integers(-(2**40), 2**40), st.text(), st.floats(allow_nan=False, allow_infinity=False)
)
FLAT = st.dictionaries(st.sampled_from("abcd"), st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=3)
NESTED = st.dictionaries(
    st.sampled_from("wxyz"), st.one_of(VALUES, FLAT, st.lists(FLAT, min_size=1, max_size=2)), max_size=3
)


@given(FLAT, NESTED)
def test_toml_is_read_back(flat: dict, nested: dict) -> None:
    table = {**flat, **nested, "deep": nested}
    assert tomllib.loads(to_toml(table)) == table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "b"\nexamples = "x"\nshare = 0.5', "share must be between 0 and 0.5, got 0.5"),
        ('base = "b"\nexamples = "x"\n[graft]\nout = "o"', "graft: out is the run's own to say"),
        ('base = "b"\nexamples = "x"\nprecision = "int9"', "precision"),
        ('base = "b"\nexamples = "x"\n[graft]\nstages = []\nshape = {taps = []}', "at least one"),
    ],
)
def test_a_bad_recipe_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_tune_recipe(tmp_path / "r.toml")


def test_trainings_have_one_stage() -> None:
    with pytest.raises(ConfigError, match=r"recipe\.graft: has 2 stages: give one"):
        replace(RECIPE, graft=replace(TRAINING, stages=(STAGE, STAGE)))
