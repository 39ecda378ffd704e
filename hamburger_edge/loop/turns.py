"""Who may use a model: one answer, or one other use, at a time; and freeing it when nobody does any more.

Turns of use, not those of a conversation, which are in `hamburger_edge/chat/`.

To begin and to end a turn are plain assignments, made where the turn is held: Ctrl-C comes before or after
one, and leaves no model that is busy with nobody to end it.
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

_CLOSED = "this model is closed: load it again"


class Answer(Protocol):
    """An answer on its way."""

    stepper: int | None  # the thread that is in the middle of a step

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Turn:
    """Set `over` to end it, then call `Turns.free_if_closing`."""

    thread: int  # that began it
    answer: weakref.ref[Answer] | None = None  # the one that it is for, if it is for one
    over: bool = False


class Turns:
    """The backend is closed once: after `close` was called, and the turn in progress is over."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turn = Turn(0, over=True)  # the newest
        self._door = threading.RLock()  # to begin a turn, and to free everything, one thread at a time
        self.closing = self._freed = False

    @property
    def answer(self) -> Answer | None:
        """The one that is being made, if any."""
        turn = self._turn
        return None if turn.over or turn.answer is None else turn.answer()

    def begin(self, answer: Answer | None = None) -> Turn:
        """Make the model busy, until the turn is over."""
        turn = Turn(threading.get_ident(), None if answer is None else weakref.ref(answer))
        try:
            with self._door:
                if not self._turn.over:
                    raise BusyError(
                        "this model is in the middle of an answer: read it to the end, close it or cancel it "
                        "first, or load a second model"
                    )
                self._turn = turn
            if self.closing:  # `close` may not have seen this turn
                raise ClosedError(_CLOSED)
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
        """End the answer that is being made, and free everything. Called by a signal's handler in the middle
        of a turn by the same thread, it takes effect when that turn ends."""
        self.closing = True
        answer, here = self.answer, threading.get_ident()
        if answer is not None:
            answer.close()
        while not self._turn.over:
            if here in (self._turn.thread, answer.stepper if answer else None):
                return
            time.sleep(0.01)  # nobody calls: who ends a turn may be interrupted before doing so
        self.free_if_closing()

    def free_if_closing(self) -> None:
        """To be called at the end of every turn."""
        if self.closing:
            with self._door:
                if self._turn.over and not self._freed:
                    self._freed = True
                    self._backend.close()
