"""The inputs and outputs of every graph, declared once.

The same data drives tracing (example tensors, dynamic axes), the check of the exported file, and the
manifest. Runtimes, also in other languages, read the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from hamburger_edge.bundle.manifest import GraphSpec, TensorSpec, micro_cache_type
from hamburger_edge.errors import ParityError
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.micro_step_decoder import micro_base_config

# Sizes used while tracing: all different, and none 0 or 1, which the tracer would treat as constants.
TRACE_SIZES = {"groups": 3, "tokens": 2, "slots": 5, "rows": 3, "capacity": 11, "features": 4}


@dataclass(frozen=True)
class GraphIO:
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def examples(self) -> tuple[torch.Tensor, ...]:
        """Return zeros of every input's type and shape; 0 is a valid token, row, position and length."""
        return tuple(
            torch.zeros(spec.resolve(**TRACE_SIZES), dtype=getattr(torch, spec.dtype)) for spec in self.inputs
        )

    @property
    def dynamic_axes(self) -> tuple[dict[int, Any], ...]:
        """Return the varying axes of each input."""
        varies = torch.export.Dim.DYNAMIC
        return tuple(
            {axis: varies for axis, dim in enumerate(spec.dims) if isinstance(dim, str)}
            for spec in self.inputs
        )

    @property
    def spec(self) -> GraphSpec:
        return GraphSpec(self.name, f"{self.name}.onnx", self.inputs, self.outputs)

    def name_axes(self, model: ir.Model) -> None:
        """Check a traced graph's inputs and outputs, then give them the declared shapes."""
        graph = model.graph
        for specs, values in ((self.inputs, graph.inputs), (self.outputs, graph.outputs)):
            names = [value.name for value in values]
            if names != [spec.name for spec in specs]:
                raise ParityError(f"{self.name}: traced {names}, declared {[spec.name for spec in specs]}")
            for spec, value in zip(specs, values, strict=True):
                if value.dtype is not None and value.dtype.numpy() != np.dtype(spec.dtype):
                    raise ParityError(f"{self.name}.{spec.name}: traced {value.dtype}, declared {spec.dtype}")
                value.dtype = ir.DataType.from_numpy(np.dtype(spec.dtype))
                value.shape = ir.Shape(spec.dims)


def embedder_io(config: HamburgerConfig) -> GraphIO:
    """Groups of the same size -> one embedding each."""
    return GraphIO(
        "embedder",
        inputs=(_spec("tokens", "int64", "groups", "tokens"),),
        outputs=(_spec("embeddings", "float32", "groups", config.base.hidden_size),),
    )


def base_io(config: HamburgerConfig, *, cache_slots: int = 0, kv: str = "float32") -> GraphIO:
    """Slots -> scores, stop probability and features of the chosen rows.

    Fused (context 0): the cache has any capacity, type `kv`, and present.N may be the same memory as past.N.
    Portable: the cache has `context` entries, and new_key.N, new_value.N hold this call's entries alone.
    """
    base, F = config.base, config.num_features
    positions = [_spec("positions", "int64", 1, "slots")]
    if config.position_rule == "slot" and not cache_slots:
        positions = []
    return GraphIO(
        "base",
        inputs=(
            _spec("embeddings", "float32", 1, "slots", base.hidden_size),
            *positions,
            _spec("rows", "int64", "rows"),
            *_lengths(cache_slots),
            *_cache("past", base, cache_slots or "capacity", kv),
        ),
        outputs=(
            _spec("logits", "float32", "rows", base.vocab_size),
            _spec("p_stop", "float32", "rows"),
            _spec("features", "float32", "rows", F, base.hidden_size),
            *(_cache("new", base, "slots") if cache_slots else _cache("present", base, "capacity", kv)),
        ),
    )


def micro_decoder_io(config: HamburgerConfig, *, cache_slots: int = 0, kv: str = "float32") -> GraphIO:
    """Features (first call of a group) or none (later ones) and the latest token -> the next one's scores."""
    decoder = micro_base_config(config)
    capacity = decoder.context_length
    return GraphIO(
        "micro_decoder",
        inputs=(
            _spec("features", "float32", "features", decoder.hidden_size),
            _spec("token", "int64", 1),
            *_lengths(cache_slots),
            *_cache("past", decoder, capacity, kv),
        ),
        outputs=(
            _spec("logits", "float32", config.micro_vocab),
            _spec("p_stop", "float32", 1),
            *(_cache("new", decoder, "entries") if cache_slots else _cache("present", decoder, capacity, kv)),
        ),
    )


def graph_ios(config: HamburgerConfig, *, cache_slots: int = 0, kv: str = "float32") -> dict[str, GraphIO]:
    ios = [embedder_io(config), base_io(config, cache_slots=cache_slots, kv=kv)]
    if config.has_graft:
        ios.append(micro_decoder_io(config, cache_slots=cache_slots, kv=micro_cache_type(kv)))
    return {io.name: io for io in ios}


def _lengths(cache_slots: int) -> tuple[TensorSpec, ...]:
    """Fused: the lengths that GroupQueryAttention needs. Portable: the number of used cache entries."""
    if cache_slots:
        return (_spec("used", "int64", 1),)
    return (_spec("last_slot", "int32", 1), _spec("total_slots", "int32", 1))


def _cache(
    prefix: str, config: BaseConfig, entries: int | str, dtype: str = "float32"
) -> Iterable[TensorSpec]:
    shape = (1, config.num_kv_heads, entries, config.head_dim)
    for layer in range(config.num_layers):
        yield _spec(f"{prefix}_key.{layer}", dtype, *shape)
        yield _spec(f"{prefix}_value.{layer}", dtype, *shape)


def _spec(name: str, dtype: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name, dtype, tuple(map(str, shape)))
