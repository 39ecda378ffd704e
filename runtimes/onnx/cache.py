"""A KV buffer, and how each kind of graph fills it.

in place    fused graphs write this call's entries into the buffer themselves: past and present are the
            same memory; `last_slot` and `total_slots` separate them
placed      portable graphs return this call's entries only; the host copies them behind the `used` ones
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.runtimes.onnx.buffers import Buffer, Rows
from hamburger_edge.runtimes.onnx.kv_buffer import KVBuffer


class InPlaceCache:
    def __init__(self, layout: KVLayout, cache_slots: int, device: str = "cpu", device_id: int = 0):
        self.kv = KVBuffer(layout, cache_slots, device, device_id)
        self.last_slot, self.total_slots = Buffer(np.zeros(1, np.int32)), Buffer(np.zeros(1, np.int32))

    def bind(self, binding: Any, entries: int) -> None:
        """Bind the buffers for calls that append this many entries."""
        for name, tensor in self.kv.tensors.items():
            binding.bind_ortvalue_input(f"past_{name}", tensor)
            binding.bind_ortvalue_output(f"present_{name}", tensor)
        binding.bind_ortvalue_input("last_slot", self.last_slot.value)
        binding.bind_ortvalue_input("total_slots", self.total_slots.value)

    def begin(self, entries: int, *, gaps: bool = False) -> None:
        """Prepare a call that appends entries: check that they fit. With `gaps` their positions are not
        consecutive: into the empty cache such a call names one slot more.

        The operator treats a call that appends all slots as the first of a text and counts positions from 0.
        The additional slot prevents that and is never read.
        """
        spare = gaps and not self.kv.used
        self.kv.reserve(entries + spare)
        total = self.kv.used + entries
        self.last_slot.array[0], self.total_slots.array[0] = total - 1, total + spare

    def end(self, entries: int) -> None:
        """Finish the call: the entries are in use."""
        self.kv.used += entries


class PlacedCache:
    def __init__(self, layout: KVLayout, cache_slots: int):
        self.kv = KVBuffer(layout, cache_slots)
        self.used = Buffer(np.zeros(1, np.int64))
        shape = (layout.layers, 1, layout.kv_heads, layout.head_size)
        self.new = {kind: Rows(shape, layout.dtype, axis=3) for kind in ("key", "value")}

    def bind(self, binding: Any, entries: int) -> None:
        for name, tensor in self.kv.tensors.items():
            binding.bind_ortvalue_input(f"past_{name}", tensor)
        binding.bind_ortvalue_input("used", self.used.value)
        for kind, rows in self.new.items():
            for layer, buffer in enumerate(rows[entries].parts()):
                binding.bind_ortvalue_output(f"new_{kind}.{layer}", buffer.value)

    def begin(self, entries: int, *, gaps: bool = False) -> None:
        self.kv.reserve(entries)
        self.used.array[0] = self.kv.used

    def end(self, entries: int) -> None:
        start, stop = self.kv.used, self.kv.used + entries
        self.kv.keys[:, :, :, start:stop] = self.new["key"][entries].array
        self.kv.values[:, :, :, start:stop] = self.new["value"][entries].array
        self.kv.used = stop


Cache = InPlaceCache | PlacedCache
