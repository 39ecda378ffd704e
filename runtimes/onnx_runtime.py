"""ONNX Runtime as a backend: three sessions, every buffer bound once and reused.

    groups --embedder--> embeddings --base, KV in place--> logits, p_stop, features
                                                        features, token --micro decoder--> logits, p_stop

A call copies a few bytes into bound buffers, runs, and hands out views of bound buffers. Nothing here grows
with the context.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from hamburger_edge.backend import MicroReadout, ModelInfo, Readout, Snapshot
from hamburger_edge.chat import ChatTemplate
from hamburger_edge.errors import BundleError, HamburgerError, InputError
from hamburger_edge.manifest import KVLayout, Manifest, check_files, load_manifest
from hamburger_edge.runtimes.kv_buffer import KVBuffer
from hamburger_edge.runtimes.onnx_sessions import Provider, choose_provider, open_graph

DEFAULT_CAPACITY = 4096


def open_bundle(
    path: Path,
    *,
    provider: str = "cpu",
    provider_options: dict[str, Any] | None = None,
    threads: int | None = None,
    context: int | None = None,
    verify: bool = False,
) -> tuple[OnnxBackend, Path, ChatTemplate]:
    """The backend of a bundle, its tokenizer and its chat template.

    `context` is how many slots the KV buffer holds; `verify` reads every file's hash first.
    """
    path = Path(path)
    if context is not None and context < 1:
        raise InputError(f"context must be at least 1 slot, got {context}")
    manifest = load_manifest(path)
    check_files(path, manifest, hashes=verify)
    if manifest.tokenizer is None:
        raise BundleError(f"{path}: holds no tokenizer: export it from a checkpoint that has one")
    chosen = choose_provider(provider, provider_options)
    backend = OnnxBackend(path, manifest, provider=chosen, threads=threads, capacity=context)
    template = ChatTemplate.from_json(manifest.chat_template) if manifest.chat_template else ChatTemplate()
    return backend, path / manifest.tokenizer, template


def choose_capacity(manifest: Manifest, wanted: int | None) -> int:
    """Slots of the cache: a portable graph's are fixed, others as wanted, up to the model's context."""
    fixed = manifest.cache_length
    if fixed and wanted not in (None, fixed):
        raise InputError(
            f"this portable bundle's cache holds {fixed} slots, not {wanted}: "
            f"export it again with --context {wanted}"
        )
    return fixed or min(wanted or DEFAULT_CAPACITY, manifest.model.context_length)


class Buffer:
    """A host array and the OrtValue on the same memory, of one shape."""

    def __init__(self, array: npt.NDArray[Any]):
        self.array = array
        self.value = ort.OrtValue.ortvalue_from_numpy(array)


class Rows:
    """Memory for up to so many rows; `[n]` is the buffer of the first n, made once."""

    def __init__(self, shape: tuple[int, ...], dtype: str, axis: int = 0):
        self.shape, self.dtype, self.axis = shape, dtype, axis
        self.memory = np.empty(0, dtype)
        self.made: dict[int, Buffer] = {}

    def __getitem__(self, count: int) -> Buffer:
        found = self.made.get(count)
        if found is not None:
            return found
        shape = (*self.shape[: self.axis], count, *self.shape[self.axis :])
        size = int(np.prod(shape))
        if size > self.memory.size:
            self.memory = np.zeros(size, self.dtype)
            self.made.clear()
        self.made[count] = Buffer(self.memory[:size].reshape(shape))
        return self.made[count]


class OnnxBackend:
    """Implements `hamburger_edge.backend.Backend`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        provider: Provider | None = None,
        threads: int | None = None,
        capacity: int | None = None,
    ):
        provider = provider or choose_provider("cpu", None)
        model = manifest.model
        self.manifest = manifest
        capacity = choose_capacity(manifest, capacity)
        plan = manifest.precision
        fold = "fp16" in (plan.base, plan.head, plan.graft)
        sessions = {
            graph.name: open_graph(folder, graph, provider, threads, fold=fold) for graph in manifest.graphs
        }
        self.embedder = Embedder(sessions["embedder"], model.hidden_size)
        self.base = Base(sessions["base"], manifest, capacity, provider)
        self.micro_decoder = MicroDecoder(sessions["micro_decoder"], manifest, provider)
        self.closed = False
        self._info = ModelInfo(
            backend="onnx",
            provider=provider.name,
            precision=manifest.precision.base,
            vocab_size=model.vocab_size,
            hidden_size=model.hidden_size,
            max_steps=model.max_steps,
            position_rule=model.position_rule,
            capacity=capacity,
            context_length=model.context_length,
            eos_ids=model.eos_ids,
            shortlist=None if model.shortlist is None else np.array(model.shortlist, np.int64),
            kv_bytes_per_slot=manifest.kv.bytes_per_slot,
            fingerprint=manifest.fingerprint,
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def slots(self) -> int:
        return self.base.kv.used

    def macro(
        self, groups: Sequence[Sequence[int]], positions: Sequence[int], rows: Sequence[int]
    ) -> Readout:
        self._check_open()
        self.base.kv.reserve(len(groups))
        buffer = self.base.embeddings[len(groups)]
        self.embedder.run(groups, buffer)
        return self.base.run(buffer, positions, rows)

    def micro_begin(self, features: npt.NDArray[np.float32]) -> None:
        self.micro_decoder.begin(features)

    def micro(self, token: int) -> MicroReadout:
        self._check_open()
        return self.micro_decoder.run(token)

    def truncate(self, slots: int) -> None:
        self.base.kv.truncate(slots)

    def snapshot(self) -> Snapshot:
        self._check_open()
        return self.base.kv.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        self._check_open()
        self.base.kv.restore(snapshot)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            del self.embedder, self.base, self.micro_decoder

    def _check_open(self) -> None:
        if self.closed:
            raise HamburgerError("this model is closed: load it again")


class Embedder:
    """tokens [N, n] -> embeddings [N, d], straight into the base's input."""

    def __init__(self, session: ort.InferenceSession, width: int):
        self.session, self.width = session, width
        self.binding = session.io_binding()
        self.tokens: dict[int, Rows] = {}  # by group size
        self.bound: tuple[Buffer, Buffer] | None = None

    def run(self, groups: Sequence[Sequence[int]], out: Buffer) -> None:
        """`out` is [1, S, d]; each stretch of groups of the same size is one run."""
        start = 0
        for size, stretch in itertools.groupby(groups, len):
            members = list(stretch)
            tokens = self.tokens.setdefault(size, Rows((size,), "int64"))[len(members)]
            tokens.array[:] = members
            target = out
            if len(members) < len(groups):
                target = Buffer(out.array[0, start : start + len(members)])
            self._bind(tokens, target, len(members))
            self.session.run_with_iobinding(self.binding)
            start += len(members)

    def _bind(self, tokens: Buffer, target: Buffer, count: int) -> None:
        if self.bound is not None and self.bound[0] is tokens and self.bound[1] is target:
            return
        self.bound = tokens, target
        self.binding.bind_ortvalue_input("tokens", tokens.value)
        self.binding.bind_output(
            "embeddings", "cpu", 0, np.float32, (count, self.width), target.array.ctypes.data
        )


class Base:
    """The base LLM over a KV buffer that it writes in place."""

    def __init__(self, session: ort.InferenceSession, manifest: Manifest, capacity: int, provider: Provider):
        model = manifest.model
        d = model.hidden_size
        self.session = session
        self.kv = KVBuffer(manifest.kv, capacity, provider.device)
        self.embeddings = Rows((1, d), "float32", axis=1)
        self.positions = Rows((1,), "int64", axis=1)
        self.rows = Rows((), "int64")
        self.logits = Rows((model.vocab_size,), "float32")
        self.p_stop = Rows((), "float32")
        self.features = Rows((model.num_features, d), "float32")
        self.last_slot, self.total_slots = Buffer(np.zeros(1, np.int32)), Buffer(np.zeros(1, np.int32))
        self.takes_positions = any(spec.name == "positions" for spec in manifest.graph("base").inputs)
        self.binding = session.io_binding()
        self.kv.bind(self.binding)
        self.binding.bind_ortvalue_input("last_slot", self.last_slot.value)
        self.binding.bind_ortvalue_input("total_slots", self.total_slots.value)
        self.bound: tuple[Buffer | None, int] = (None, -1)

    def run(self, embeddings: Buffer, positions: Sequence[int], rows: Sequence[int]) -> Readout:
        self._bind(embeddings, len(positions), len(rows))
        if self.takes_positions:
            self.positions[len(positions)].array[0] = positions
        self.rows[len(rows)].array[:] = rows
        total = self.kv.used + len(positions)
        self.last_slot.array[0], self.total_slots.array[0] = total - 1, total
        self.session.run_with_iobinding(self.binding)
        self.kv.used = total
        count = len(rows)
        return Readout(self.logits[count].array, self.p_stop[count].array, self.features[count].array)

    def _bind(self, embeddings: Buffer, slots: int, rows: int) -> None:
        """Shapes change between prompt and answer, and seldom within either."""
        if self.bound == (embeddings, rows):
            return
        self.bound = (embeddings, rows)
        inputs = {"embeddings": embeddings, "rows": self.rows[rows]}
        if self.takes_positions:
            inputs["positions"] = self.positions[slots]
        for name, buffer in inputs.items():
            self.binding.bind_ortvalue_input(name, buffer.value)
        outputs = {"logits": self.logits, "p_stop": self.p_stop, "features": self.features}
        for name, memory in outputs.items():
            self.binding.bind_ortvalue_output(name, memory[rows].value)


class MicroDecoder:
    """The micro-step decoder over its own small cache, emptied at every group."""

    def __init__(self, session: ort.InferenceSession, manifest: Manifest, provider: Provider):
        model, kv = manifest.model, manifest.kv
        self.session = session
        layout = KVLayout(model.micro_layers, kv.kv_heads, kv.head_size, kv.dtype)
        self.kv = KVBuffer(layout, model.micro_positions, provider.device)
        self.features = Rows((model.hidden_size,), "float32")
        self.token = Buffer(np.zeros(1, np.int64))
        self.last_slot, self.total_slots = Buffer(np.zeros(1, np.int32)), Buffer(np.zeros(1, np.int32))
        self.logits = Buffer(np.zeros(model.micro_vocab, np.float32))
        self.p_stop = Buffer(np.zeros(1, np.float32))
        self.first_rows = model.num_features
        self.first, self.later = (self._binding(rows) for rows in (model.num_features, 0))
        self.fresh = False

    def _binding(self, features: int) -> Any:
        binding = self.session.io_binding()
        self.kv.bind(binding)
        for name in ("token", "last_slot", "total_slots"):
            binding.bind_ortvalue_input(name, getattr(self, name).value)
        empty = Buffer(np.zeros((0, self.features.shape[0]), np.float32))
        binding.bind_ortvalue_input("features", (self.features[features] if features else empty).value)
        for name in ("logits", "p_stop"):
            binding.bind_ortvalue_output(name, getattr(self, name).value)
        return binding

    def begin(self, features: npt.NDArray[np.float32]) -> None:
        self.features[self.first_rows].array[:] = features
        self.kv.used = 0
        self.fresh = True

    def run(self, token: int) -> MicroReadout:
        rows = self.first_rows + 1 if self.fresh else 1
        self.kv.reserve(rows)
        total = self.kv.used + rows
        self.token.array[0] = token
        self.last_slot.array[0], self.total_slots.array[0] = total - 1, total
        self.session.run_with_iobinding(self.first if self.fresh else self.later)
        self.kv.used, self.fresh = total, False
        return MicroReadout(self.logits.array, float(self.p_stop.array[0]))
