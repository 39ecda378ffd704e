"""The fuzzer notices what it is there to notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from helpers.isolated import Ended, fault, isolated

from hamburger_edge.errors import InputError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process for every case is forked")


def refuse() -> str:
    raise InputError("file: damaged: get it again")


def fail() -> str:
    raise KeyError("layers")


def hang() -> str:
    while True:
        pass


def wait(seconds: float) -> str:
    time.sleep(seconds)
    return "honest"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (refuse, None),
        (lambda: "honest", None),
        # as on a busy machine: longer than it may take, but of the processor's time hardly any
        (lambda: wait(1.5), None),
        (fail, "raised KeyError"),
        (hang, "SIGXCPU"),
        (lambda: wait(60), "SIGALRM"),
        (lambda: signal.raise_signal(signal.SIGKILL), "SIGKILL"),
        (lambda: os._exit(0), "ended without a word"),
        (lambda: "something else", "said something else"),
    ],
)
def test_each_end_of_a_case_is_classified(call: Callable[[], str], told: str | None) -> None:
    got = isolated(call, 1, waits=3)
    found = fault(got, Ended("said", "honest", got.memory), hashed=True)
    assert found is told is None or str(found).startswith(str(told))


def test_damage_outside_the_hash_is_allowed_and_memory_is_limited() -> None:
    honest = Ended("said", "honest", 1000)
    assert fault(Ended("said", "other", 2000), honest, hashed=False) is None
    assert "of memory" in str(fault(Ended("said", "honest", 2001), honest, hashed=True))
