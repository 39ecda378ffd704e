"""The trainings that a task is given where its recipe says none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy_models import toy_config
from training_data_files import DataFiles, ladders

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.tuning import shape
from hamburger_edge.tuning.shape import draft_vocab_size, graft_recipe, tuning_recipe

BASE = toy_config().base


def learned(tuning: Recipe | None) -> tuple[set[str], float, float]:
    [stage] = graft_recipe(ladders(40), BASE, tuning).stages
    return set(stage.learns), stage.loss.first, stage.loss.features


def test_a_base_that_reads_merged_text_stays_as_it_is() -> None:
    tuning = tuning_recipe(ladders(40), BASE, residual="mean")
    assert set(tuning.stages[0].learns) == {"base", "embedder"}
    assert learned(tuning) == ({"micro", "stop_head"}, 0.0, 0.0)
    assert graft_recipe(ladders(40), BASE, tuning).shape.merge_residual == "mean"


def test_a_base_that_was_tuned_elsewhere_learns_to_read_beside_the_graft() -> None:
    assert learned(None) == ({"embedder", "base", "micro", "stop_head"}, 1.0, 1.0)


def test_a_base_with_normed_blocks_learns_at_half_the_rate() -> None:
    def rate(base: BaseConfig, *, full: bool = False) -> float:
        [stage] = tuning_recipe(ladders(40), base, full=full).stages
        return stage.base_learning_rate

    normed = replace(BASE, output_norms=True)
    assert rate(normed) == rate(BASE) / 2
    assert rate(normed, full=True) == rate(BASE, full=True)


def test_few_examples_are_read_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not by a base that learns beside a graft, which would know them by heart."""
    tuning = tuning_recipe(ladders(40), BASE)
    assert tuning.stages[0].epochs == shape.MOST_EPOCHS
    assert graft_recipe(ladders(40), BASE, tuning).stages[0].epochs == shape.MOST_EPOCHS
    assert graft_recipe(ladders(40), BASE, None).stages[0].epochs == shape.EPOCHS
    monkeypatch.setattr(shape, "BASE_STEPS", 1)
    monkeypatch.setattr(shape, "GRAFT_STEPS", 1)
    assert tuning_recipe(ladders(40), BASE).stages[0].epochs == shape.EPOCHS
    assert graft_recipe(ladders(40), BASE, tuning).stages[0].epochs == shape.EPOCHS


def test_the_draft_vocab_holds_nearly_all_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 tokens here, 94 are one of four, the others six rare ones."""
    monkeypatch.setattr(shape, "DRAFT_VOCABS", (2, 4, 5, 8))
    monkeypatch.setattr(shape, "COVERED", 0.95)
    said = [token for token in (3, 4, 5, 6) for _ in range(23)] + [3, 4, 10, 11, 12, 13, 14, 15]
    data = DataFiles.in_memory(roles=[[TEMPLATE, *[ANSWER] * 100]], ids=[[50, *said]])
    assert draft_vocab_size(data, 97) == 5
    monkeypatch.setattr(shape, "COVERED", 0.94)
    assert draft_vocab_size(data, 97) == 4
    monkeypatch.setattr(shape, "COVERED", 1.0)
    assert draft_vocab_size(data, 97) == 8  # the largest, which is all that is tried
    assert draft_vocab_size(data, 8) == 0  # as large as the vocabulary: all of that
