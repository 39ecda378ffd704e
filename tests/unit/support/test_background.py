"""A call in a thread of its own."""

from __future__ import annotations

import threading

import pytest

from hamburger_edge.support import background
from hamburger_edge.support.background import Background


def test_value_and_error_come_with_the_result() -> None:
    assert Background(lambda: 7).result() == 7
    failed = Background(lambda: [][0])
    failed.wait()  # raises nothing yet
    with pytest.raises(IndexError):
        failed.result()


def test_call_begins_after_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller works meanwhile: the function must not begin before the delay is over."""
    over, began = threading.Event(), threading.Event()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        over.wait()

    monkeypatch.setattr(background.time, "sleep", sleep)
    call = Background(began.set, delay=0.5)
    assert not began.is_set()
    over.set()
    call.wait()
    assert began.is_set()
    assert waits == [0.5]
