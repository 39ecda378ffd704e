"""The preallocated KV cache: one entry a slot, in memory that the runtime binds once.

    keys, values   [layers, 1, K, capacity, D] each; layer N is the graph's past_key.N, past_value.N

Filled from the left; forgetting is moving `used` back. Pages that were never written take no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from hamburger_edge.backend import Snapshot
from hamburger_edge.errors import ContextFullError, SessionError
from hamburger_edge.manifest import KVLayout


class KVBuffer:
    def __init__(self, layout: KVLayout, capacity: int, device: str = "cpu"):
        shape = (layout.layers, 1, layout.kv_heads, capacity, layout.head_size)
        self.layout, self.capacity, self.device = layout, capacity, device
        self.used = 0
        self.keys: npt.NDArray[Any] = np.zeros(shape, layout.dtype)
        self.values: npt.NDArray[Any] = np.zeros(shape, layout.dtype)
        self.tensors = {
            f"{kind}.{layer}": ort.OrtValue.ortvalue_from_numpy(array[layer], device)
            for kind, array in (("key", self.keys), ("value", self.values))
            for layer in range(layout.layers)
        }

    def bind(self, binding: Any, inputs: str = "past", outputs: str | None = "present") -> None:
        """Hand the buffer to a graph: as its past and, where it writes in place, as its present."""
        for name, tensor in self.tensors.items():
            binding.bind_ortvalue_input(f"{inputs}_{name}", tensor)
            if outputs:
                binding.bind_ortvalue_output(f"{outputs}_{name}", tensor)

    @property
    def nbytes(self) -> int:
        """Of the slots in use."""
        return self.used * self.layout.bytes_per_slot

    def reserve(self, slots: int) -> None:
        """Make sure that so many more slots fit."""
        if self.used + slots > self.capacity:
            raise ContextFullError(
                f"{self.used + slots} slots do not fit a cache of {self.capacity}: load with a larger context"
            )

    def truncate(self, slots: int) -> None:
        self.used = max(0, min(slots, self.used))

    def snapshot(self) -> Snapshot:
        used = self.used
        return {kind: array[:, 0, :, :used].copy() for kind, array in self._host()}

    def restore(self, snapshot: Snapshot) -> None:
        layout = self.layout
        for kind, array in self._host():
            saved = snapshot.get(kind)
            used = saved.shape[2] if saved is not None and saved.ndim == 4 else 0
            expected = (layout.layers, layout.kv_heads, used, layout.head_size)
            if saved is None or saved.shape != expected or saved.dtype != array.dtype or used > self.capacity:
                raise SessionError(f"the saved {kind} do not fit this model's cache of {self.capacity} slots")
        used = snapshot["keys"].shape[2]
        if used != snapshot["values"].shape[2]:
            raise SessionError("the saved keys and values differ in length")
        for kind, array in self._host():
            array[:, 0, :, :used] = snapshot[kind]
        self.used = used

    def _host(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        yield "keys", self.keys
        yield "values", self.values
