"""ONNX Runtime as a backend: three sessions, of a plain model two, with reused, bound buffers.

    groups --embedder--> embeddings --base, KV in place--> logits, p_stop, features
                                                        features, token --micro decoder--> logits, p_stop

A call copies a few bytes into bound buffers, runs, and returns views of bound buffers. Nothing here grows
with the context.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.bundle.files import check_files, model_info
from hamburger_edge.bundle.manifest import KV_TYPES, KVLayout, Manifest
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import (
    BundleError,
    ClosedError,
    HamburgerWarning,
    InputError,
    RuntimeUnavailableError,
)
from hamburger_edge.loop.backend import MicroReadout, Readout, Snapshot
from hamburger_edge.runtimes.onnx.cache import Cache, InPlaceCache, PlacedCache
from hamburger_edge.runtimes.onnx.machine_costs import machine_costs
from hamburger_edge.runtimes.onnx.onnx_parts import OnnxBase, OnnxEmbedder, OnnxMicroDecoder
from hamburger_edge.runtimes.onnx.sessions import Provider, choose_provider, open_graph
from hamburger_edge.support.background import Background
from hamburger_edge.support.processors import usable_processors
from hamburger_edge.support.values import among, flag, safe_repr, whole_in

DEFAULT_CAPACITY = 4096


def open_bundle(
    path: Path,
    *,
    provider: str = "cpu",
    provider_options: dict[str, Any] | None = None,
    threads: int | None = None,
    cache_slots: int | None = None,
    kv_cache_dtype: str | None = None,
    verify: bool = False,
) -> tuple[OnnxBackend, Background[Tokenizer], ChatTemplate]:
    """Open a bundle -> backend, tokenizer, chat template. The options are those of `load`.

    The tokenizer is read beside the weights: ONNX Runtime opens a graph without Python's lock.
    """
    if cache_slots is not None:
        whole_in("cache_slots", cache_slots, 1, 1 << 31)
    manifest = load_manifest(path)
    check_files(path, manifest, hashes=flag("verify", verify))
    if not manifest.graphs:
        raise BundleError(f"{path}: holds no graphs: export it again with  --format onnx")
    if kv_cache_dtype is not None and not (
        among(kv_cache_dtype, KV_TYPES) and KV_TYPES[kv_cache_dtype] == manifest.kv.dtype
    ):
        raise InputError(
            f"kv_cache_dtype={safe_repr(kv_cache_dtype)}: the cache of these graphs is {manifest.kv.dtype}, "
            f"as exported: export again with --kv-cache-dtype {', '.join(KV_TYPES)}, or run GGUF files with "
            "backend llamacpp"
        )
    tokenizer_path = manifest.tokenizer_in(path)
    chosen = choose_provider(provider, provider_options, manifest.flavor)
    common: dict[str, Any] = {"threads": threads, "cache_slots": cache_slots}
    tokenizer = Background(lambda: Tokenizer(tokenizer_path), delay=_GRAPH_SECONDS)
    try:
        backend = OnnxBackend(path, manifest, provider=chosen, **common)
    except RuntimeUnavailableError as error:
        if provider != "auto" or chosen.name == "cpu":
            raise
        warnings.warn(f"provider 'auto' takes the CPU: {error}", HamburgerWarning, stacklevel=3)
        backend = OnnxBackend(path, manifest, provider=choose_provider("cpu", None), **common)
    if backend.rows_are_exact:
        tokenizer.wait()  # it would disturb the measurement
        costs = machine_costs(backend, threads or usable_processors())
        backend.info = replace(backend.info, machine_costs=costs)
    return backend, tokenizer, ChatTemplate.from_json(manifest.chat_template)


# ONNX Runtime reads a graph with Python's lock, then prepares it without: the tokenizer is read meanwhile
_GRAPH_SECONDS = 0.03


def _check_cache(folder: Path, manifest: Manifest, provider: Provider) -> None:
    """Refuse a cache type without CUDA attention: that part would run on the CPU, very slowly."""
    if provider.name == "cuda" and not manifest.cache_slots and manifest.kv.dtype != "float16":
        raise RuntimeUnavailableError(
            f"{folder}: on CUDA ONNX Runtime attends in 16 bits, and this bundle's cache is "
            f"{manifest.kv.dtype}: export it again with --kv-cache-dtype fp16, or with --flavor portable"
        )


def choose_cache_slots(manifest: Manifest, wanted: int | None) -> int:
    """Return the slots of the cache; a portable graph's number is fixed."""
    fixed = manifest.cache_slots
    if fixed and wanted not in (None, fixed):
        raise InputError(
            f"this portable bundle's cache holds {fixed} slots, not {wanted}: "
            f"export it again with --cache-slots {wanted}"
        )
    return manifest.slots(wanted or DEFAULT_CAPACITY)


class OnnxBackend:
    """Implements `hamburger_edge.loop.backend.Backend`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        provider: Provider | None = None,
        threads: int | None = None,
        cache_slots: int | None = None,
    ):
        provider = provider or choose_provider("cpu", None)
        model = manifest.model
        _check_cache(folder, manifest, provider)
        self.manifest, self.provider = manifest, provider
        cache_slots = choose_cache_slots(manifest, cache_slots)
        plan = manifest.precision
        half = "fp16" in (plan.base, plan.head, plan.graft)
        folded = {"base"} if plan.block_size else {"base", "micro_decoder"}
        sessions = {
            graph.name: open_graph(folder, graph, provider, threads, fold=half or graph.name in folded)
            # the base first: it takes longest, and the tokenizer is read meanwhile
            for graph in sorted(manifest.graphs, key=lambda graph: graph.name != "base")
        }
        self.embedder = OnnxEmbedder(sessions["embedder"], model.hidden_size)
        entries = cache_slots + manifest.pairs_rows  # the last call may have a slot more than it appends
        self.base = OnnxBase(sessions["base"], model, self._cache(manifest.kv, entries))
        self.micro_decoder: OnnxMicroDecoder | None = None
        if model.has_graft:
            micro = manifest.kv.micro(model.micro_layers)
            cache = self._cache(micro, model.micro_positions)
            self.micro_decoder = OnnxMicroDecoder(sessions["micro_decoder"], model, cache)
        self.closed = False
        self.info = model_info(
            folder,
            manifest,
            backend="onnx",
            provider=provider.name,
            precision=manifest.precision.base,
            cache_slots=cache_slots,
            kv_bytes_per_slot=manifest.kv.bytes_per_slot,
            fingerprint=manifest.fingerprint,
            pairs_rows=manifest.pairs_rows,
            draft_costs=manifest.draft_costs,
        )

    def _cache(self, layout: KVLayout, entries: int) -> Cache:
        if self.manifest.cache_slots:
            return PlacedCache(layout, entries)
        return InPlaceCache(layout, entries, self.provider.device, self.provider.device_id)

    @property
    def rows_are_exact(self) -> bool:
        """Whether a row's scores depend on no other row of its call: see docs/research/quantization.md."""
        exact = self.manifest.flavor == "fused" and self.manifest.precision.base in ("int8", "int4")
        return exact and self.provider.name == "cpu"

    @property
    def slots(self) -> int:
        return self.base.cache.kv.used

    def macro(
        self, groups: Sequence[Sequence[int]], positions: Sequence[int], output_indices: Sequence[int]
    ) -> Readout:
        self._check_open()
        appended, read = len(groups), len(output_indices)
        if self.info.pairs_rows:
            if appended % 2:  # the next call overwrites this slot
                groups = [*groups, groups[-1][:1]]
                positions = [*positions, min(positions[-1] + 1, self.info.context_length - 1)]
            if read % 2:
                output_indices = [*output_indices, output_indices[-1]]
        buffer = self.base.embeddings[len(groups)]
        self.embedder.run(groups, buffer)
        return Readout(*(rows[:read] for rows in self.base.run(buffer, positions, output_indices, appended)))

    def micro_begin(self, features: npt.NDArray[np.float32]) -> None:
        assert self.micro_decoder is not None  # a plain model makes no micro steps
        self.micro_decoder.begin(features)

    def micro(self, token: int) -> MicroReadout:
        self._check_open()
        assert self.micro_decoder is not None
        return self.micro_decoder.run(token)

    def truncate(self, slots: int) -> None:
        self.base.cache.kv.truncate(slots)

    def snapshot(self) -> Snapshot:
        self._check_open()
        return self.base.cache.kv.snapshot()

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        self._check_open()
        self.base.cache.kv.restore(snapshot, slots)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            del self.embedder, self.base, self.micro_decoder

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError
