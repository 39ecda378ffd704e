"""Cuts on hand-made entropies, and the report about them."""

from __future__ import annotations

import numpy as np
import pytest
from training_data_files import DataFiles

from hamburger_edge.models.training.data.segment_report import answer_spans, render, report
from hamburger_edge.models.training.data.segmentation import (
    EntropyRule,
    cut_at_random,
    cut_by_entropy,
    cut_by_lengths,
)

PAPER = EntropyRule(0.05, 0.3)


@pytest.mark.parametrize(
    ("entropies", "sizes"),
    [
        ([], []),
        ([3.0], [1]),
        ([0.0], [1]),  # the first token has no group to join, however easy
        ([0.01] * 9, [4, 4, 1]),  # all low: only the length limit cuts
        ([2.0] * 5, [1] * 5),  # all high and equal: no token is below a share of its equals
        ([0.05, 0.05], [1, 1]),  # a tie with `low` does not join
        ([1.0, 0.3], [1, 1]),  # a tie with ratio * highest does not join
        ([1.0, 0.29], [2]),
        ([1.0, 0.25, 0.2, 0.29], [4]),  # against the group's highest, not the last
        ([1.0, 0.2, 0.4, 0.1], [2, 2]),  # the highest starts anew with each group
        ([0.1, 0.04, 0.5, 0.1, 0.1, 0.1, 0.1], [2, 4, 1]),
    ],
)
def test_the_papers_rule(entropies: list[float], sizes: list[int]) -> None:
    assert cut_by_entropy(entropies, 4, PAPER) == sizes
    assert cut_by_entropy(np.asarray(entropies, dtype=np.float32), 4, PAPER) == sizes


def test_a_joining_token_can_raise_the_highest() -> None:
    """0.9 joins below `low`, after which 1.1 < 2 * 0.9 may join too."""
    assert cut_by_entropy([0.1, 0.9, 1.1], 4, EntropyRule(1.0, 2.0)) == [3]
    assert cut_by_entropy([0.1, 0.9, 1.9], 4, EntropyRule(1.0, 2.0)) == [2, 1]


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_length_limits(most: int) -> None:
    sizes = cut_by_entropy([0.0] * 20, most, PAPER)
    assert sum(sizes) == 20
    assert set(sizes[:-1]) == {most}


def test_tokens_that_may_not_join_open_groups() -> None:
    may_join = np.array([True, True, False, True, True, False, False])
    assert cut_by_entropy([0.0] * 7, 4, PAPER, may_join) == [2, 3, 1, 1]
    for seed in range(20):
        sizes = cut_at_random(7, 4, np.random.default_rng(seed), may_join)
        assert sum(sizes) == 7
        assert {2, 5, 6} <= set(np.cumsum([0, *sizes]).tolist())


def test_random_cuts_have_every_length_equally_often() -> None:
    sizes = cut_at_random(20_000, 4, np.random.default_rng(0))
    assert sum(sizes) == 20_000
    shares = np.bincount(sizes[:-1], minlength=5)[1:] / len(sizes)
    assert shares == pytest.approx([0.25] * 4, abs=0.02)


def test_lengths_are_followed_where_tokens_may_join() -> None:
    lengths = np.array([1, 3, 4, 1, 2, 4, 1])
    assert cut_by_lengths(lengths, np.ones(7, dtype=bool)) == [1, 3, 2, 1]
    may_join = np.array([True, True, True, False, True, True, True])
    assert cut_by_lengths(lengths, may_join) == [1, 2, 1, 2, 1]


def test_report_covers_answers_only_and_shows_groups() -> None:
    # Q Q A A A | Q A A Q A: three answers; entropies of the questions must not count
    data = DataFiles.in_memory(
        roles=[[1, 1, 2, 2, 2], [0, 2, 2, 1, 2]],
        entropies=[[9, 9, 1.0, 0.01, 2.0], [9, 1.0, 0.01, 9, 1.0]],
    )
    assert answer_spans(data) == [(2, 5), (6, 8), (9, 10)]
    found = report(data, [PAPER], decode=lambda ids: " ".join(map(str, ids)) + "\n")
    assert found.answers == 3
    assert found.mean_entropy == pytest.approx(5.02 / 6, abs=1e-3)
    assert found.cuts[0].histogram == {1: 2, 2: 2, 3: 0, 4: 0}
    assert (found.cuts[0].tokens, found.cuts[0].groups) == (6, 4)
    assert [len(group.split()) for group in found.samples[0]] == [2, 1]
    text = render(found)
    assert "1.50" in text
    assert text.count("\x1b[30;48;5;") == text.count("\x1b[0m") == 2
    assert "\x1b" not in str(found)
    assert found.to_json()["cuts"][0]["tokens_per_group"] == 1.5
