"""How a run is told to end."""

from __future__ import annotations


class Flag:
    """Set from any thread, and by a signal's handler in the middle of setting it: unlike `threading.Event`,
    which has a lock that the handler could wait for in vain."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set
