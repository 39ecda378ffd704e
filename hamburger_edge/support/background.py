"""A call in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Background(Generic[Value]):
    """Calls a function in a thread, beside the work of the caller.

    `delay`: seconds before it begins. A function that keeps Python's lock would stop a caller who needs the
    lock for a moment more, and then works without it.
    """

    def __init__(self, function: Callable[[], Value], delay: float = 0.0) -> None:
        self._function, self._delay = function, delay
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the call."""
        self._thread.join()

    def result(self) -> Value:
        """Wait, then return the function's value or raise its error."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            time.sleep(self._delay)
            self._value = self._function()
        except BaseException as error:
            self._error = error
