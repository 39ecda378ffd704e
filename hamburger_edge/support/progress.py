"""How long work tells whoever started it how far it is."""

from __future__ import annotations

from collections.abc import Callable

# (what is happening, how much of it is done, how much there is in all or 0 where unknown)
ProgressCallback = Callable[[str, int, int], None]

LogCallback = Callable[[str], None]  # one line for people to read
