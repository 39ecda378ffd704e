"""The base and the micro-step decoder, each in a separate llama.cpp context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.errors import ContextFullError, SessionError
from hamburger_edge.loop.backend import Floats, Snapshot
from hamburger_edge.runtimes.llamacpp.context import Capture, Context, LlamaModel
from hamburger_edge.runtimes.llamacpp.library import view
from hamburger_edge.runtimes.llamacpp.saved_state import is_state

ROWS = 256  # of one call of llama.cpp
FEW = 8  # at most this many rows before the first read one run in its call, with unused logits


class LlamaCppBase:
    """The base LLM, its KV cache, and the outputs of the tap layers.

    llama.cpp returns the input of layer k + 1, which is the output of layer k. Where it cannot (the last
    layer, architectures other than llama, some builds), `Capture` reads the graph instead.
    """

    def __init__(
        self,
        model: LlamaModel,
        manifest: Manifest,
        *,
        cache_slots: int,
        threads: int,
        kv_cache_dtype: str,
        flash: bool | None,
    ):
        assert manifest.gguf is not None
        spec, library = manifest.model, model.library
        self.taps, self.cache_slots = spec.taps, cache_slots
        self.layout, self.kv_cache_dtype = manifest.kv, kv_cache_dtype
        self.rope_gaps = manifest.gguf.architecture == "paddleocr"
        handed_out = not self.rope_gaps and library.has_layer_inputs
        # llama.cpp ends the process if a requested layer does not exist
        self.layer_inputs = handed_out and all(0 <= tap < model.layers - 1 for tap in self.taps)
        capture = None
        if not self.layer_inputs and self.taps:
            capture = Capture(library, [f"l_out-{tap}" for tap in self.taps], model.width)
        self.context = Context(
            model,
            slots=cache_slots,
            rows=min(ROWS, cache_slots),
            threads=threads,
            kv_cache_dtype=kv_cache_dtype,
            flash=flash,
            sections=4 if self.rope_gaps else 1,
            capture=capture,
        )
        if self.layer_inputs and library.set_layer_input:
            for tap in self.taps:
                library.set_layer_input(self.context.address, tap + 1, True)
        self.positions = np.zeros(cache_slots, np.int32)
        self.slots = 0

    def run(self, rows: Floats, positions: Sequence[int], wanted: Sequence[int]) -> tuple[Floats, Floats]:
        """Embeddings [n, d] -> logits [R, vocab] and features [R, F, d] of the wanted rows."""
        if self.slots + len(rows) > self.cache_slots:
            raise ContextFullError(
                f"{self.slots + len(rows)} slots do not fit a cache of {self.cache_slots}: "
                "load with a larger cache_slots"
            )
        parts = []
        for start, stop, read in self._calls(len(rows), wanted):
            count = stop - start
            self.context.rows[:count] = rows[start:stop]
            before = self.slots
            try:
                self.context.decode(count, positions[start:stop], read=read)
                self.positions[before : before + count] = positions[start:stop]
                self.slots += count
            except BaseException:  # llama.cpp may have stored the rows nevertheless
                self.slots = before
                self.context.remove_from(int(positions[start]) if before else 0)
                raise
            if read:
                parts.append(self._read(count, sorted(row - start for row in wanted if start <= row < stop)))
        if not parts:
            return np.empty((0, self.context.model.vocab_size), np.float32), self._features(0, [])
        if len(parts) == 1 and list(wanted) == sorted(wanted):
            return parts[0]
        order = np.argsort(np.argsort(wanted, kind="stable"))
        logits, features = (np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True))
        return logits, features

    def _calls(self, count: int, wanted: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, stop, whether it is read) of the calls that cover all rows."""
        first = min(wanted, default=count)
        first = first if first >= FEW or not wanted else 0
        step = len(self.context.rows)
        yield from ((start, min(start + step, first), False) for start in range(0, first, step))
        yield from ((start, min(start + step, count), True) for start in range(first, count, step))

    def _read(self, count: int, chosen: list[int]) -> tuple[Floats, Floats]:
        logits = self.context.logits(count)[chosen]  # a copy: the next call overwrites them
        return logits, self._features(count, chosen)

    def _features(self, count: int, chosen: list[int]) -> Floats:
        context = self.context
        features = np.empty((len(chosen), len(self.taps) + 1, context.model.width), np.float32)
        if not chosen:
            return features
        if self.layer_inputs:
            layer_input = context.library.layer_input
            assert layer_input is not None
            taps = [
                view(layer_input(context.address, tap + 1), count, context.model.width) for tap in self.taps
            ]
        else:
            taps = context.capture.read() if context.capture else []
        for feature, tapped in enumerate([*taps, context.states(count)]):
            features[:, feature] = tapped[chosen]
        return features

    def truncate(self, slots: int) -> None:
        if slots < self.slots:
            self.context.remove_from(int(self.positions[slots]))
            self.slots = slots

    def snapshot(self) -> Snapshot:
        return {"state": self.context.save(), "positions": self.positions[: self.slots].copy()}

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        state, positions = snapshot.get("state"), snapshot.get("positions")
        if state is None or positions is None or state.dtype != np.uint8 or positions.dtype != np.int32:
            raise SessionError("the saved cache is not one of llama.cpp")
        if positions.shape != (slots,) or slots > self.cache_slots:
            raise SessionError(f"the saved cache does not fit this model's cache of {self.cache_slots} slots")
        fits = state.ndim == 1 and (np.diff(positions) > 0).all()
        if not fits or not is_state(state, positions, self.layout, self.kv_cache_dtype, gaps=self.rope_gaps):
            raise SessionError("the saved cache is damaged, or of another model: start a new conversation")
        self.slots = 0
        last = int(positions[-1]) if len(positions) else -1
        if not self.context.load(state) or self.context.last_position != last:
            self.context.clear()
            raise SessionError(
                "llama.cpp does not accept the saved cache: it is damaged, or of another model"
            )
        self.slots = len(positions)
        self.positions[: self.slots] = positions


class LlamaCppMicroDecoder:
    """The micro-step decoder; every group empties its cache."""

    def __init__(
        self, model: LlamaModel, manifest: Manifest, *, threads: int, kv_cache_dtype: str, flash: bool | None
    ):
        spec = manifest.model
        self.features, self.limit = spec.num_features, spec.micro_positions
        # The state is read from the graph, not through `embeddings`, so that the head runs for one row only.
        self.state = Capture(model.library, ["result_norm"], model.width)
        self.context = Context(
            model,
            slots=self.limit,
            rows=self.features + 1,
            threads=threads,
            kv_cache_dtype="f32" if kv_cache_dtype == "f32" else "f16",  # a few entries: no memory to save
            flash=flash,
            embeddings=False,
            capture=self.state,
        )
        self.used = 0
        self.fresh = False

    def begin(self, features: Floats) -> None:
        """features [F, d]"""
        self.context.rows[: self.features] = features
        self.context.clear()
        self.used, self.fresh = 0, True

    def run(self, embedding: Floats) -> tuple[Floats, Floats]:
        """embedding [d] of the group's latest token -> logits [vocab or draft vocabulary], state [1, d]"""
        count = self.features + 1 if self.fresh else 1
        if self.used + count > self.limit:
            raise ContextFullError(f"a group holds fewer than {self.limit - self.features + 1} tokens")
        self.context.rows[count - 1] = embedding
        self.fresh = False
        self.context.decode(count, range(self.used, self.used + count))
        self.used += count
        return self.context.logits(1)[0], self.state.read()[0]
