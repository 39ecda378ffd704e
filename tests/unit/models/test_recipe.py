"""Recipes of a training: each wrong key is refused by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.toys.toy_checkpoints import write_hf
from helpers.toys.toy_models import toy_model as random_model
from helpers.toys.toy_training import JOINT, LORA, SHORT, toy_trainer
from helpers.toys.training_data_files import DataFiles, ladders

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.training.objective import LossWeights
from hamburger_edge.models.training.run_state import Reached, load_state, save_state
from hamburger_edge.models.training.runs import train
from hamburger_edge.models.training.training_recipe import read_recipe

GOOD = """
base = "toy"
data = "data"
out = "out"
[shape]
taps = [0, 1]
[[stages]]
name = "joint"
learns = ["micro", "base"]
epochs = 1
learning_rate = 1e-3
cuts = { low = [0.1, 0.2], ratio = [0.3, 0.4] }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs = 1", "epochs = 1\nepohcs = 2", r"stages\[0\]: unknown key 'epohcs'"),
        ('"micro", "base"', '"micro", "bass"', r"'joint': learns has 'bass'"),
        ("ratio = [0.3, 0.4]", "random = 0.5", r"'joint': the shares of cuts add up to 1.1, more than 1"),
        ("ratio = [0.3, 0.4]", "ratio = [0.3]", r"'joint': cuts: low and ratio are rules in pairs"),
        ("ratio = [0.3, 0.4]", "ratio = [0.3, 0.4], entropy = -0.1", r"cuts\.entropy must be 0 to 1"),
        ("epochs = 1", "epochs = 1\nlora_rank = -4", r"'joint': lora_rank must be 0 or more, got -4"),
        ("epochs = 1", "epochs = 1\nloss = { hard = 1.5 }", r"'joint': loss\.hard must be 0 to 1, got 1\.5"),
        ("epochs = 1", "epochs = 1\nloss = { features_every = 0 }", r"loss\.features_every must be positive"),
        ("epochs = 1", "epochs = -1", r"'joint': epochs must be positive, got -1"),
        ("epochs = 1", "epochs = 1\nfinal_rate = 1.5", r"'joint': final_rate must be 0 to 1, got 1.5"),
        ("[shape]", 'more_starts = ["a"]\n[shape]', r"recipe\.more_starts: there is no start"),
        ("epochs = 1", "epochs = 1\nloss = { first = 0.0, micro = 0.0 }", "loss has no weight above 0"),
        ('learns = ["micro", "base"]', "learns = []", r"'joint': learns is empty"),
        ("[shape]", "rows = 0\n[shape]", r"recipe\.rows must be positive, got 0"),
        ("[shape]", "row_slots = 3\n[shape]", r"recipe\.row_slots must be at least 16, got 3"),
    ],
)
def test_bad_recipes_are_refused_with_the_key_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(GOOD)
    assert read_recipe(path).stages[0].cuts.low == (0.1, 0.2)
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        read_recipe(path)


def test_missing_data_and_another_base_are_refused(tmp_path: Path) -> None:
    base = write_hf(tmp_path / "base", random_model())
    recipe = replace(SHORT, base=str(base), data=str(tmp_path / "data"), out=str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="no training data there"):
        train(recipe, tmp_path / "checkpoint")
    DataFiles.write(tmp_path / "data", ladders(50), {"base": "smollm2-135m", "sha256": "0" * 64})
    with pytest.raises(ConfigError, match="was distilled from smollm2-135m, not from the recipe's base"):
        train(recipe, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file"])
def test_a_damaged_state_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"last\.pt: damaged, or of another version"):
        load_state(tmp_path, SHORT, {})


def test_a_state_of_before_is_read(tmp_path: Path) -> None:
    """Runs used to save the lowest held-out loss of each stage, too."""
    save_state(tmp_path, SHORT, {"processes": 1}, Reached(1, 7), {"model": {}})
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    saved["progress"]["best"] = {"plain": 1.5}
    torch.save(saved, tmp_path / "last.pt")
    found = load_state(tmp_path, SHORT, {"processes": 1})
    assert found[0] == Reached(1, 7)
    with pytest.raises(ConfigError, match="made with other processes"):
        load_state(tmp_path, SHORT, {"processes": 2})


def test_features_need_a_base_that_is_still_there() -> None:
    matching = replace(JOINT, loss=LossWeights(features=1.0))
    with pytest.raises(ConfigError, match=r"loss\.features compares with the plain base.*set lora_rank"):
        replace(SHORT, stages=(matching,))
    assert replace(SHORT, stages=(replace(matching, lora_rank=2),)).base_ranks == {2}
    with pytest.raises(ConfigError, match="the base learns at one lora_rank throughout, got 0, 2"):
        replace(SHORT, stages=(JOINT, LORA))


def test_what_a_base_or_its_data_cannot_give_is_refused(tmp_path: Path) -> None:
    shape = replace(SHORT.shape, micro_layers=9, initialise="base")
    with pytest.raises(ConfigError, match="micro_layers is 9, but the base has only 2 layers"):
        toy_trainer(tmp_path, replace(SHORT, shape=shape))
    with pytest.raises(ConfigError, match="too few conversations to hold any out: distill more"):
        toy_trainer(tmp_path, conversations=2)
