"""The graphs of a bundle: plan, quantize, trace, describe.

plan       how each weight is stored, the cache's type and length, the graphs' inputs and outputs
quantize   a model around the checkpoint's weights in the plan's forms, ranges of its activations
trace      base.onnx, embedder.onnx, micro_decoder.onnx, and weights.bin for all three
describe   the manifest
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from hamburger_edge.bundle.manifest import KV_TYPES, Manifest, PrecisionPlan
from hamburger_edge.errors import ConfigError
from hamburger_edge.export.assembly.parts import recipe_of
from hamburger_edge.export.assembly.recipe import WEIGHTS, AssemblyRecipe
from hamburger_edge.export.description import manifest_of, write_shared_files
from hamburger_edge.export.graphs.modules import GRAPHS, FusedAttention, Vocabulary
from hamburger_edge.export.graphs.portable import OPSET as PORTABLE_OPSET
from hamburger_edge.export.graphs.portable import PortableAttention, pack_nibbles
from hamburger_edge.export.graphs.signatures import GraphIO, graph_ios
from hamburger_edge.export.graphs.tracing import OPSET, trace
from hamburger_edge.export.graphs.weight_file import WeightFile, bytes_of
from hamburger_edge.export.options import ExportOptions, cache_slots_of
from hamburger_edge.export.precision_plan import apply_plan, fit_plan, make_plan, needs_covariance
from hamburger_edge.export.quantization.activation_ranges import (
    ActivationRanges,
    measure_ranges,
    read_other_text,
)
from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.column_forms import TiedForm
from hamburger_edge.export.quantization.covariances import covariances_by_stage
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.progress import Progress


@dataclass(frozen=True)
class GraphPlan:
    portable: bool  # standard operators only
    precision: PrecisionPlan
    cache: str  # type of the KV cache
    cache_slots: int  # 0: chosen when the bundle is loaded
    ios: Mapping[str, GraphIO]


@dataclass(frozen=True)
class QuantizedModel:
    model: Hamburger  # without vocabulary
    vocabulary: Vocabulary
    ranges: ActivationRanges


def write_graphs(
    checkpoint: Checkpoint, folder: Path, options: ExportOptions, progress: Progress
) -> tuple[Manifest, AssemblyRecipe | None]:
    """Write graphs and weights. Return the manifest, and the weights' recipe with `options.assembly`."""
    plan = plan_graphs(checkpoint, options)
    quantized = quantize_model(checkpoint, plan, progress)
    with contextlib.closing(WeightFile(folder / WEIGHTS)) as weights:
        trace_graphs(quantized, plan, folder, weights, progress)
        recipe = None
        if options.assembly:
            forms = [*quantized.model.modules(), *quantized.vocabulary.modules()]
            recipe = recipe_of(forms, checkpoint.model, quantized.ranges.folds, weights)
    write_shared_files(checkpoint, folder)
    progress("hashing", 0, 0)
    manifest = manifest_of(
        checkpoint,
        folder,
        plan.ios,
        flavor=options.flavor,
        plan=plan.precision,
        kv=KV_TYPES[plan.cache],
        cache_slots=plan.cache_slots,
    )
    return manifest, recipe


def plan_graphs(checkpoint: Checkpoint, options: ExportOptions) -> GraphPlan:
    model, portable = checkpoint.model, options.flavor == "portable"
    config = model.config
    precision = make_plan(options.precision, packed=not portable)
    if not portable:
        precision = fit_plan(precision, model)
        if config.base.head_dim % 16:
            raise ConfigError(
                f"heads of {config.base.head_dim} do not fit ONNX Runtime's fused attention (multiples of "
                "16): export with --flavor portable"
            )
    cache = options.kv_cache_dtype or _cache_type(checkpoint, precision, portable)
    if cache == "int8" and checkpoint.tokenizer is None:
        raise ConfigError(
            "an int8 cache is calibrated on text: give the checkpoint a tokenizer, or --kv-cache-dtype fp32"
        )
    slots = cache_slots_of(config.base.context_length, options.cache_slots) if portable else 0
    return GraphPlan(
        portable, precision, cache, slots, graph_ios(config, cache_slots=slots, kv=KV_TYPES[cache])
    )


def _cache_type(checkpoint: Checkpoint, plan: PrecisionPlan, portable: bool) -> str:
    """Choose the cache's type: 8 bits take a quarter of the memory and are faster, but need text for
    ranges."""
    fits = not portable and plan.base in ("int8", "int4") and checkpoint.tokenizer is not None
    return "int8" if fits else "fp32"


def quantize_model(checkpoint: Checkpoint, plan: GraphPlan, progress: Progress) -> QuantizedModel:
    """Give all weights the forms of the plan.

    8-bit weights depend on ranges, which are measured before. 4-bit weights depend on covariances, which one
    reading of the text brings layer by layer, and the ranges of the cache with them.
    """
    model, packed, cache = checkpoint.model, not plan.portable, plan.cache == "int8"
    readable = checkpoint.tokenizer is not None
    layers = needs_covariance(model, plan.precision) if readable else []
    if not layers:
        inputs = readable and packed and plan.precision.base == "int8"
        ranges = measure_ranges(checkpoint, inputs=inputs, cache=cache, progress=progress)
        return QuantizedModel(
            *apply_plan(model, plan.precision, ranges=ranges, progress=progress, packed=packed), ranges
        )
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(CacheRanges(model))) if cache else None
        covariances = stack.enter_context(contextlib.closing(covariances_by_stage(checkpoint, layers)))
        own, vocabulary = apply_plan(model, plan.precision, covariances, progress=progress, packed=packed)
        if listener is None:
            return QuantizedModel(own, vocabulary, ActivationRanges())
        progress("calibrating", 0, 0)
        read_other_text(checkpoint)
        return QuantizedModel(own, vocabulary, ActivationRanges(cache=listener.scales()))


def trace_graphs(
    quantized: QuantizedModel, plan: GraphPlan, folder: Path, weights: WeightFile, progress: Progress
) -> None:
    """Write each graph's file, and its weights into the file that all graphs share."""
    attention = PortableAttention if plan.portable else FusedAttention
    for form in quantized.vocabulary.modules():
        if isinstance(form, TiedForm):
            for whole, parts in form.wholes:
                weights.place_parts(bytes_of(whole), [part.nbytes for part in parts])
    for name, graph in GRAPHS.items():
        if name not in plan.ios:
            continue
        progress(f"tracing {name}", 0, 0)
        scales = quantized.ranges.cache if name == "base" else None
        module = graph(quantized.model, quantized.vocabulary, plan.ios[name], attention, scales)
        traced = trace(module, PORTABLE_OPSET if plan.portable else OPSET)
        pack_nibbles(traced)
        weights.take(traced)
        ir.save(traced, folder / plan.ios[name].spec.file)
