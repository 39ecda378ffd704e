"""Calls of a backend with the ledger's positions, and how close two results are."""

from __future__ import annotations

from typing import Any

import numpy as np

from hamburger_edge.loop.backend import Backend, Readout
from hamburger_edge.loop.ledger import Group, Ledger


def feed(backend: Backend, groups: list[Group], rows: list[int], ledger: Ledger | None = None) -> Readout:
    ledger = ledger or Ledger.of(backend.info)
    return backend.macro(groups, [ledger.append(group) for group in groups], rows)


def close(got: Any, want: Any, tolerance: float = 1e-4) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=tolerance * (1 + want.std()), rtol=tolerance)
