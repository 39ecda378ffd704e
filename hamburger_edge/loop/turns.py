"""Exclusive use of a model: one answer or one other use at a time. The last use after `close` frees it.

A turn here is a use of the model. The turns of a conversation are in `hamburger_edge/chat/`.

A turn begins and ends by a plain assignment in the code that holds it. Ctrl-C comes before or after the
assignment, so it never leaves the model busy without a holder.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hamburger_edge.errors import BusyError, ClosedError
from hamburger_edge.loop.backend import Backend


class Flag:
    """A flag that any thread or signal handler may set.

    `threading.Event` has a lock: a signal handler that interrupts `set` would wait for it forever.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class RunningAnswer(Protocol):
    """An answer in progress."""

    stepper: int | None  # the thread inside a step; None between steps

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class ModelTurn:
    """One use of the model. To end it, set `over` and call `Turns.free_if_closing`."""

    thread: int  # the thread that began it
    answer: weakref.ref[RunningAnswer] | None = None  # None: a use without an answer
    over: bool = False


class Turns:
    """The turns of one model. Closes its backend once, after `close` and the end of the current turn."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turn = ModelTurn(0, over=True)  # the newest turn
        self._door = threading.RLock()  # guards the beginning of a turn and the closing of the backend
        self.closing = self._freed = False

    @property
    def answer(self) -> RunningAnswer | None:
        """The answer in progress, if any."""
        turn = self._turn
        return None if turn.over or turn.answer is None else turn.answer()

    def begin(self, answer: RunningAnswer | None = None) -> ModelTurn:
        """Begin a turn; raise BusyError if another one is not over."""
        turn = ModelTurn(threading.get_ident(), None if answer is None else weakref.ref(answer))
        try:
            with self._door:
                if not self._turn.over:
                    raise BusyError(
                        "this model is in the middle of an answer: read it to the end, close it or cancel it "
                        "first, or load a second model"
                    )
                self._turn = turn
            if self.closing:  # `close` may not have seen this turn
                raise ClosedError
        except BaseException:
            turn.over = True
            self.free_if_closing()
            raise
        return turn

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        turn = self.begin()
        try:
            yield
        finally:
            turn.over = True
            self.free_if_closing()

    def close(self) -> None:
        """Close the answer in progress and free everything.

        A signal handler may call this while its thread is inside a turn: the model is then freed at the end
        of that turn.
        """
        self.closing = True
        answer, here = self.answer, threading.get_ident()
        if answer is not None:
            answer.close()
        while not self._turn.over:
            if here in (self._turn.thread, answer.stepper if answer else None):
                return
            time.sleep(0.01)  # polled: a thread may be interrupted before a notification
        self.free_if_closing()

    def free_if_closing(self) -> None:
        """Free the model if `close` was called; called at the end of every turn."""
        if self.closing:
            with self._door:
                if self._turn.over and not self._freed:
                    self._freed = True
                    self._backend.close()
