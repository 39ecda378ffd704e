"""A saved KV cache, looked at before it becomes one again: by shape, type, and whether it holds numbers."""

from __future__ import annotations

import numpy as np

from hamburger_edge.errors import SessionError
from hamburger_edge.loop.backend import Snapshot


def check_saved_cache(snapshot: Snapshot, shape: tuple[int, ...], dtype: str, cache_slots: int) -> None:
    """`keys` and `values` [layers, K, slots, D] of this shape and type, for a cache of `cache_slots`."""
    if shape[2] > cache_slots:
        raise SessionError(f"the saved cache has {shape[2]} slots, this one {cache_slots}: load a larger one")
    if set(snapshot) != {"keys", "values"}:
        raise SessionError("the saved cache is not one of keys and values: it belongs to another runtime")
    for name, array in snapshot.items():
        if array.shape != shape or array.dtype != dtype:
            raise SessionError(
                f"the saved cache does not fit this model's: its {name} are {array.dtype} "
                f"{list(array.shape)}, expected {dtype} {list(shape)}"
            )
        if not all(np.isfinite(layer).all() for layer in array):
            raise SessionError(f"the saved cache is damaged: its {name} hold what is no number")
