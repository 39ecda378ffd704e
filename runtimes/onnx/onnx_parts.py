"""The graphs with their bound inputs and outputs.

A call copies a few numbers into bound buffers, runs, and returns views of bound buffers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from hamburger_edge.bundle.manifest import ModelSpec
from hamburger_edge.loop.backend import MicroReadout, Readout
from hamburger_edge.runtimes.onnx.buffers import Buffer, Rows
from hamburger_edge.runtimes.onnx.cache import Cache
from hamburger_edge.runtimes.onnx.sessions import run


class OnnxEmbedder:
    """tokens [N, n] -> embeddings [N, d], straight into the base's input."""

    def __init__(self, session: ort.InferenceSession, width: int):
        self.session, self.width = session, width
        self.binding = session.io_binding()
        self.tokens: dict[int, Rows] = {}  # by group size
        self.bound: tuple[Buffer, Buffer] | None = None

    def run(self, groups: Sequence[Sequence[int]], out: Buffer) -> None:
        """Write embeddings to `out` [1, S, d].

        A run of single tokens is one call. Each merged group has its own: the result must not depend on
        other groups.
        """
        start = 0
        for size, members in _calls(groups):
            if size not in self.tokens:
                self.tokens[size] = Rows((size,), "int64")
            tokens = self.tokens[size][len(members)]
            tokens.array[:] = members
            target = out
            if len(members) < len(groups):
                target = Buffer(out.array[0, start : start + len(members)])
            self._bind(tokens, target, len(members))
            run(self.session, self.binding, "the embedder")
            start += len(members)

    def _bind(self, tokens: Buffer, target: Buffer, count: int) -> None:
        if self.bound is not None and self.bound[0] is tokens and self.bound[1] is target:
            return
        self.bound = None  # until everything is bound: an interrupted bind is repeated
        self.binding.bind_ortvalue_input("tokens", tokens.value)
        address = target.array.ctypes.data
        self.binding.bind_output("embeddings", "cpu", 0, np.float32, (count, self.width), address)
        self.bound = tokens, target  # kept alive: the binding holds an address only


def _calls(groups: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[Sequence[int]]]]:
    """Yield the size and the groups of each call, in order."""
    for size, stretch in itertools.groupby(groups, len):
        if size == 1:
            yield size, list(stretch)
        else:
            yield from ((size, [group]) for group in stretch)


class OnnxBase:
    """The base LLM over its KV buffer."""

    def __init__(self, session: ort.InferenceSession, model: ModelSpec, cache: Cache):
        d = model.hidden_size
        self.session, self.cache = session, cache
        self.embeddings = Rows((1, d), "float32", axis=1)
        self.positions = Rows((1,), "int64", axis=1)
        self.rows = Rows((), "int64")
        self.logits = Rows((model.vocab_size,), "float32")
        self.p_stop = Rows((), "float32")
        self.features = Rows((model.num_features, d), "float32")
        self.takes_positions = any(given.name == "positions" for given in session.get_inputs())
        self.binding = session.io_binding()
        self.bound: tuple[Buffer, int] | None = None

    def run(
        self, embeddings: Buffer, positions: Sequence[int], rows: Sequence[int], appended: int
    ) -> Readout:
        """Run the base; of its slots, the first `appended` stay in the cache."""
        slots, count = len(positions), len(rows)
        self._bind(embeddings, slots, count)
        if self.takes_positions:
            self.positions[slots].array[0] = positions
        self.rows[count].array[:] = rows
        gaps = self.takes_positions and positions[-1] != self.cache.kv.used + slots - 1
        self.cache.begin(slots, gaps=gaps)
        run(self.session, self.binding, "the base")
        self.cache.end(appended)
        return Readout(self.logits[count].array, self.p_stop[count].array, self.features[count].array)

    def _bind(self, embeddings: Buffer, slots: int, rows: int) -> None:
        """Bind for new shapes, which change between prompt and answer and rarely within either."""
        if self.bound == (embeddings, rows):
            return
        self.bound = None  # until everything is bound: an interrupted bind is repeated
        self.cache.bind(self.binding, slots)
        inputs = {"embeddings": embeddings, "rows": self.rows[rows]}
        if self.takes_positions:
            inputs["positions"] = self.positions[slots]
        for name, buffer in inputs.items():
            self.binding.bind_ortvalue_input(name, buffer.value)
        outputs = {"logits": self.logits, "p_stop": self.p_stop, "features": self.features}
        for name, memory in outputs.items():
            self.binding.bind_ortvalue_output(name, memory[rows].value)
        self.bound = (embeddings, rows)


class OnnxMicroDecoder:
    """The micro-step decoder over its small cache, which every group empties."""

    def __init__(self, session: ort.InferenceSession, model: ModelSpec, cache: Cache):
        self.session, self.cache = session, cache
        self.features = Buffer(np.zeros((model.num_features, model.hidden_size), np.float32))
        self.nothing = Buffer(np.zeros((0, model.hidden_size), np.float32))
        self.token = Buffer(np.zeros(1, np.int64))
        self.logits = Buffer(np.zeros(model.micro_vocab, np.float32))
        self.p_stop = Buffer(np.zeros(1, np.float32))
        self.first_rows = model.num_features + 1
        self.first = self._binding(self.features, self.first_rows)
        self.later = self._binding(self.nothing, 1)
        self.fresh = False

    def _binding(self, features: Buffer, rows: int) -> Any:
        binding = self.session.io_binding()
        self.cache.bind(binding, rows)
        binding.bind_ortvalue_input("features", features.value)
        binding.bind_ortvalue_input("token", self.token.value)
        binding.bind_ortvalue_output("logits", self.logits.value)
        binding.bind_ortvalue_output("p_stop", self.p_stop.value)
        return binding

    def begin(self, features: npt.NDArray[np.float32]) -> None:
        self.features.array[:] = features
        self.cache.kv.used = 0
        self.fresh = True

    def run(self, token: int) -> MicroReadout:
        rows = self.first_rows if self.fresh else 1
        self.token.array[0] = token
        self.cache.begin(rows)
        run(self.session, self.first if self.fresh else self.later, "the micro decoder")
        self.cache.end(rows)
        self.fresh = False
        return MicroReadout(self.logits.array, float(self.p_stop.array[0]))
