"""Costs of drafts on this machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.scripted_backend import ScriptedBackend, info

from hamburger_edge.drafts.drafting import USUAL_COSTS, Costs
from hamburger_edge.loop.call_costs import CallTimes, time_calls


def test_costs_are_in_units_of_a_call_with_one_row() -> None:
    assert CallTimes({1: 0.010, 4: 0.016}, 0.002, 2.0).costs() == Costs(row=0.2, micro=0.2)
    assert CallTimes({1: 0.010, 4: 0.016}, 0.002, 2.0, pairs_rows=True).costs() == Costs(row=0.3, micro=0.2)
    assert CallTimes({1: 0.010, 4: 0.009}, 0.0, 2.0).costs() == Costs(row=0.01, micro=0.01)
    assert CallTimes({1: 0.010, 4: 1.0}, 1.0, 2.0).costs() == Costs(row=2.0, micro=2.0)


def test_attention_makes_a_row_dearer_and_a_micro_step_cheaper() -> None:
    """Behind 1,064 slots a call takes 15 ms, each further row 6 ms: 0.4 of the call; a micro step 2 ms."""
    times = CallTimes(
        {1: 0.010, 4: 0.016}, 0.002, 2.0, many_slots=1064, rows_behind_many={1: 0.015, 4: 0.033}
    )
    costs = times.costs()
    assert costs == Costs(row=0.2, micro=0.2, call_slots=0.5, row_slots=0.4)
    assert costs.behind(1064).row == pytest.approx(0.6 / 1.5)
    assert costs.behind(1064).micro == pytest.approx(0.2 / 1.5)
    assert costs.behind(10) == costs.behind(64) == Costs(row=0.2, micro=0.2)
    assert USUAL_COSTS.behind(4000) == USUAL_COSTS  # nothing was measured
    pairs = replace(times, pairs_rows=True).costs()  # calls of two rows take what one takes
    assert pairs == Costs(row=0.3, micro=0.2, call_slots=0.5, row_slots=0.6)


@pytest.mark.parametrize(("processors", "threads", "undisturbed"), [(1.9, 2, True), (1.2, 2, False)])
def test_threads_without_processors_are_noticed(processors: float, threads: int, undisturbed: bool) -> None:
    assert CallTimes({}, 0.0, processors).undisturbed(threads) == undisturbed


def test_calls_take_turns_and_leave_the_cache_empty() -> None:
    backend = ScriptedBackend(info(cache_slots=100))  # no room for many slots
    times = time_calls(backend, (1, 3))
    assert times is not None
    assert set(times.rows) == {1, 3}
    assert not times.many_slots
    assert times.micro > 0
    assert backend.macro_calls[:5] == [64, 1, 3, 1, 3]
    assert backend.slots == 0


def test_calls_without_time_for_three_rounds_are_not_measured() -> None:
    assert time_calls(ScriptedBackend(), (1, 3), seconds=0.0) is None


def test_measuring_ends_once_the_threads_have_no_processors() -> None:
    """A start on a busy machine must not wait for all rounds."""
    backend = ScriptedBackend()
    assert time_calls(backend, (1, 3), threads=1000) is None  # more than any machine gives
    assert backend.macro_calls == [64, 1, 3, 1, 3]
    assert backend.slots == 0
