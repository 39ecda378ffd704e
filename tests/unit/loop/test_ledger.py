from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.ledger import Ledger

GROUPS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple), max_size=12)


def ledger(*groups: tuple[int, ...], rule: Any = "token", slots: int = 64, length: int = 256) -> Ledger:
    book = Ledger(rule, slots, length, bytes_per_slot=10)
    for group in groups:
        book.append(group)
    return book


@pytest.mark.parametrize(
    ("newest", "first"), [(0, 6), (1, 6), (2, 4), (3, 4), (4, 4), (5, 2), (7, 2), (8, 2), (9, 0), (99, 0)]
)
def test_the_first_merged_slot_of_the_newest_tokens(newest: int, first: int) -> None:
    book = ledger((1, 2), (3,), (4, 5, 6), (7,), (8, 9), (1,), (2, 3))
    assert book.first_merged(newest, stop=6) == first


@given(GROUPS, st.sampled_from(["token", "slot"]), st.data())
def test_it_always_adds_up(groups: list[tuple[int, ...]], rule: str, data: st.DataObject) -> None:
    book = ledger(rule=rule)
    returned = [book.append(group) for group in groups]
    assert returned == book.positions
    ends = [total - 1 for total in accumulate(map(len, groups))]  # the last token of each
    assert returned == (ends if rule == "token" else [*range(len(groups))])
    keep = data.draw(st.integers(0, len(groups)))
    book.truncate(keep)
    kept = groups[:keep]
    assert book.groups == kept
    assert book.tokens == sum(map(len, kept))
    assert (book.bytes, book.bytes_uncompressed) == (10 * keep, 10 * book.tokens)
    assert book.positions == returned[:keep]
    assert book.append((1, 2)) == (keep if rule == "slot" else book.tokens - 1)


def test_limits_of_slots_and_positions() -> None:
    full = ledger((1,), (1, 2, 3, 4), slots=2)
    assert not full.fits(1)
    book = ledger((1, 1, 1, 1), length=5)
    assert (book.fits(1), book.fits(2), book.room) == (True, False, 1)
    by_slot = ledger((1, 1, 1, 1), rule="slot", length=5)
    assert (by_slot.fits(4), by_slot.room) == (True, 4)
    for refuses, group in ((full, (1,)), (book, (1, 2))):
        before = refuses.positions
        with pytest.raises(ContextFullError):
            refuses.append(group)
        assert refuses.positions == before
    for wrong in (lambda: book.append(()), lambda: book.truncate(2)):
        with pytest.raises(InputError):
            wrong()
    assert (book.slots, book.tokens) == (1, 4)


@pytest.mark.parametrize(
    ("prompt", "merged", "expected"),
    [
        ([(1,), (2,), (3,), (4,), (5,), (9,)], True, (3, 5)),  # the merged slot stands for its tokens
        ([(1,), (2,), (3,), (4,), (5,), (9,)], False, (2, 2)),  # unless the match has to be exact
        ([(1,), (2,), (3,), (4,)], True, (2, 2)),  # a slot that reaches past the prompt does not match
        ([(1,), (2,), (3, 4, 5), (9,)], False, (3, 3)),  # the same group does
        ([(1,), (2,), (3, 4), (5,)], True, (2, 2)),  # groups of another cut do not
        ([(7,), (2,)], True, (0, 0)),
        ([], True, (0, 0)),
    ],
)
def test_match(prompt: list[tuple[int, ...]], merged: bool, expected: tuple[int, int]) -> None:
    assert ledger((1,), (2,), (3, 4, 5), (6,)).match(prompt, merged=merged) == expected
