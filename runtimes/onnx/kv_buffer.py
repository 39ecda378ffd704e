"""The preallocated KV cache: one entry per slot, in memory that the runtime binds once.

    keys, values   [layers, 1, K, capacity, D] each; layer N is the graph's past_key.N, past_value.N

It is filled from the left; forgetting reduces `used`. Pages take no memory before they are written. On a
device each layer has a tensor there, and only snapshots pass through host memory.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.errors import ContextFullError, RuntimeFailureError
from hamburger_edge.loop.backend import Snapshot, check_saved_cache


class KVBuffer:
    def __init__(self, layout: KVLayout, cache_slots: int, device: str = "cpu", device_id: int = 0):
        shape = (layout.layers, 1, layout.kv_heads, cache_slots, layout.head_size)
        self.layout, self.cache_slots, self.device = layout, cache_slots, device
        self.used = 0
        # for a device's tensors these are the initial zeros, and stay unchanged
        self.keys, self.values = _untouched(shape, layout.dtype), _untouched(shape, layout.dtype)
        self.tensors = {
            f"{kind}.{layer}": ort.OrtValue.ortvalue_from_numpy(array[layer], device, device_id)
            for kind, array in (("key", self.keys), ("value", self.values))
            for layer in range(layout.layers)
        }

    def reserve(self, slots: int) -> None:
        """Raise unless this many more slots fit."""
        if self.used + slots > self.cache_slots:
            raise ContextFullError(
                f"{self.used + slots} slots do not fit a cache of {self.cache_slots}: load with a larger "
                "cache_slots"
            )

    def truncate(self, slots: int) -> None:
        self.used = max(0, min(slots, self.used))

    def snapshot(self) -> Snapshot:
        """Return copies [layers, K, used, D]. From a device, each layer is copied whole, one at a time."""
        return {"keys": self._copy("key", self.keys), "values": self._copy("value", self.values)}

    def _copy(self, kind: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.device == "cpu":
            return array[:, 0, :, : self.used].copy()
        layout = self.layout
        copied = np.empty((layout.layers, layout.kv_heads, self.used, layout.head_size), layout.dtype)
        for layer in range(layout.layers):
            copied[layer] = self.tensors[f"{kind}.{layer}"].numpy()[0, :, : self.used]
        return copied

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        """Check all of it, then write: in portable graphs even a masked entry must be finite."""
        layout = self.layout
        check_saved_cache(
            snapshot,
            (layout.layers, layout.kv_heads, slots, layout.head_size),
            layout.dtype,
            self.cache_slots,
        )
        for kind, array in (("key", self.keys), ("value", self.values)):
            self._place(kind, array, snapshot[f"{kind}s"])
        self.used = slots

    def _place(self, kind: str, array: npt.NDArray[Any], saved: npt.NDArray[Any]) -> None:
        slots = saved.shape[2]
        if self.device == "cpu":
            array[:, 0, :, :slots] = saved
            return
        whole = np.zeros(array.shape[1:], array.dtype)  # of one layer
        for layer, entries in enumerate(saved):
            whole[0, :, :slots] = entries
            self.tensors[f"{kind}.{layer}"].update_inplace(whole)


def _untouched(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Return zeros whose pages are allocated when written. numpy.zeros would use huge pages: the first slot
    of every head would take 2 MiB."""
    size = max(1, math.prod(shape)) * np.dtype(dtype).itemsize
    try:
        memory = mmap.mmap(-1, size)
    except (OSError, OverflowError, MemoryError) as error:
        raise RuntimeFailureError(
            f"no memory for a cache of {shape[3]} slots ({2 * size >> 20} MiB): load with a smaller "
            "cache_slots"
        ) from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype, count=math.prod(shape)).reshape(shape)
