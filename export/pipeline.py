"""Export: a checkpoint becomes a bundle, or nothing at all.

    load -> quantize -> trace three graphs -> weights.bin -> parity gate -> manifest -> rename into place
         and/or -> three GGUF files -> parity gate -^

All files go to a hidden folder beside the target, which is renamed at the end. The manifest is its last file;
nothing opens a folder without one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shutil
import warnings
from pathlib import Path

import onnx_ir as ir

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.manifest import KV_TYPES, Manifest, PrecisionPlan
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import (
    BundleError,
    ConfigError,
    HamburgerWarning,
    InputError,
    MissingExtraError,
    RuntimeUnavailableError,
)
from hamburger_edge.export.assembly.assemble import compact_tokenizer
from hamburger_edge.export.assembly.parts import recipe_of, write_parts
from hamburger_edge.export.assembly.recipe import WEIGHTS, Recipe
from hamburger_edge.export.description import TOKENIZER, manifest_of
from hamburger_edge.export.gguf.tensors import make_gguf_plan
from hamburger_edge.export.gguf.writer import calibrated_layers, check_supported, write_gguf
from hamburger_edge.export.graphs.modules import GRAPHS, FusedAttention, shortened
from hamburger_edge.export.graphs.portable import OPSET as PORTABLE_OPSET
from hamburger_edge.export.graphs.portable import PortableAttention, pack_nibbles
from hamburger_edge.export.graphs.signatures import graph_ios
from hamburger_edge.export.graphs.tracing import OPSET, trace
from hamburger_edge.export.graphs.weight_file import WeightFile
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.export.parity.gate import ParityReport, check_parity
from hamburger_edge.export.precision_plan import apply_plan, fit_plan, make_plan, needs_moments
from hamburger_edge.export.quantization.activations import Calibration
from hamburger_edge.export.stages import stages_of
from hamburger_edge.export.target import check_target
from hamburger_edge.loop.draft_index import read_draft_index
from hamburger_edge.models.bases.terms import copy_terms
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.support.cache import lock_for
from hamburger_edge.support.files import DRAFT_INDEX, locked
from hamburger_edge.support.folders import clear_leftovers, publish
from hamburger_edge.support.progress import Progress, StagedProgress, no_progress
from hamburger_edge.support.values import whole_in

CACHE_LENGTH, SHORTEST_CACHE = 2048, 64  # slots of a portable cache; the parity gate needs some room


def export(
    source: str | Path | Checkpoint,
    out: str | Path,
    options: ExportOptions,
    *,
    progress: Progress = no_progress,
) -> Path:
    """Write the bundle of a checkpoint (a folder, a Lightning file, a built-in name, or one already loaded)
    to `out`."""
    out = Path(out).resolve()  # a link to a bundle stands for that bundle
    progress = StagedProgress(progress, stages_of(options))
    try:
        with locked(lock_for(out)):
            check_target(out, force=options.force)
            clear_leftovers(out)
            progress("loading", 0, 0)
            if not isinstance(source, Checkpoint):  # at float32, every weight is wanted whole
                source = load_checkpoint(source, half=options.precision not in ("fp32", "f32"))
            checkpoint = source
            if options.assembly and checkpoint.path.is_file():
                raise InputError(
                    f"{checkpoint.path}: an assembly is kept in a checkpoint's folder, and this is a file: "
                    "export without --assembly"
                )
            _check_template(checkpoint)
            partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
            partial.mkdir(parents=True)
            try:
                manifest = _write(checkpoint, partial, options, progress)
                progress("finishing", 0, 0)
                manifest.save(partial)
                load_manifest(partial)  # fail before the rename if this program cannot read it
                if out.exists() and not options.force:
                    raise InputError(f"{out} appeared while this export ran: use --force to replace it")
                publish(partial, out)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise BundleError(
            f"{error.filename or out}: {error.strerror or error}: check space and permissions"
        ) from error
    return out


def _write(checkpoint: Checkpoint, folder: Path, options: ExportOptions, progress: Progress) -> Manifest:
    """Write all files except the manifest, which is returned; each kind passes the parity gate."""
    checkpoint = _for_context(checkpoint, options)
    recipe: Recipe | None = None
    if options.has_gguf:
        check_supported(checkpoint.model.config)
    manifest = None
    if options.has_graphs:
        manifest, recipe = _write_graphs(checkpoint, folder, options, progress)
        if options.verify:
            _tell(check_parity(folder, manifest, checkpoint, progress=progress))
    if options.has_gguf:
        manifest = _add_gguf(checkpoint, folder, manifest, options, progress)
        if options.verify:
            _check_gguf_parity(folder, manifest, checkpoint, progress)
    assert manifest is not None
    if recipe is not None:
        write_parts(folder, manifest, recipe, checkpoint.path)
    return manifest


def _for_context(checkpoint: Checkpoint, options: ExportOptions) -> Checkpoint:
    """Limit the checkpoint to the positions that the bundle can use."""
    config = checkpoint.model.config
    positions = most = config.base.context_length
    if options.context_length is not None:
        positions = whole_in("context_length", options.context_length, min(SHORTEST_CACHE, most), most)
    if options.flavor == "portable" and not options.has_gguf:
        slots = _cache_slots(positions, options.cache_slots)
        positions = min(
            positions, slots if config.position_rule == "slot" else slots * config.max_group_tokens
        )
    if positions == most:
        return checkpoint
    return dataclasses.replace(checkpoint, model=shortened(checkpoint.model, positions))


def _check_template(checkpoint: Checkpoint) -> None:
    try:
        ChatTemplate.from_json(checkpoint.chat_template)
    except ConfigError as error:
        raise ConfigError(f"{checkpoint.path}: {error}") from error


def _write_graphs(
    checkpoint: Checkpoint, folder: Path, options: ExportOptions, progress: Progress
) -> tuple[Manifest, Recipe | None]:
    """The recipe is made where it is asked for."""
    model = checkpoint.model
    config, portable, packed = model.config, options.flavor == "portable", options.flavor == "fused"
    plan = make_plan(
        options.precision,
        block_size=options.block_size,
        keep_head=options.keep_head,
        prefer=options.prefer,
        packed=packed,
    )
    if packed:
        plan = fit_plan(plan, model, tiers=options.keep_head is None)
    if not portable and config.base.head_dim % 16:
        raise ConfigError(
            f"heads of {config.base.head_dim} do not fit ONNX Runtime's fused attention (multiples of "
            "16): export with --flavor portable"
        )
    cache_slots = _cache_slots(config.base.context_length, options.cache_slots) if portable else 0
    cache = options.kv_cache_dtype or _cache_type(checkpoint, plan, options)
    if cache == "int8" and checkpoint.tokenizer is None:
        raise ConfigError(
            "an int8 cache is calibrated on text: give the checkpoint a tokenizer, or --kv-cache-dtype fp32"
        )
    ios = graph_ios(config, cache_slots=cache_slots, kv=KV_TYPES[cache])
    calibration = Calibration(
        checkpoint,
        needs_moments(model, plan),
        cache=cache == "int8",
        inputs=packed and plan.base == "int8",
    )
    with contextlib.closing(calibration):
        own, vocabulary = apply_plan(model, plan, calibration, progress, packed=packed)
        scales = calibration.scales(progress)
    with contextlib.closing(WeightFile(folder / WEIGHTS)) as weights:
        for name in GRAPHS:
            progress(f"tracing {name}", 0, 0)
            attention = PortableAttention if portable else FusedAttention
            graph = GRAPHS[name](own, vocabulary, ios[name], attention, scales if name == "base" else None)
            traced = trace(graph, OPSET if packed else PORTABLE_OPSET)
            pack_nibbles(traced)
            weights.take(traced)
            ir.save(traced, folder / ios[name].spec.file)
        recipe = None
        if options.assembly:
            forms = [*own.modules(), *vocabulary.modules()]
            recipe = recipe_of(forms, model, calibration.folds(), weights)
    if checkpoint.tokenizer is not None:
        compact_tokenizer(checkpoint.tokenizer, folder / TOKENIZER)
    _copy_parts(checkpoint, folder)
    progress("hashing", 0, 0)
    manifest = manifest_of(
        checkpoint,
        folder,
        ios,
        flavor=options.flavor,
        plan=plan,
        kv=KV_TYPES[cache],
        cache_slots=cache_slots,
    )
    return manifest, recipe


def _cache_slots(most: int, asked: int | None) -> int:
    """Return the slots of a portable cache for a model of this many positions."""
    if asked is None:
        return min(CACHE_LENGTH, most)
    return whole_in("cache_slots", asked, min(SHORTEST_CACHE, most), most)


def _cache_type(checkpoint: Checkpoint, plan: PrecisionPlan, options: ExportOptions) -> str:
    """Choose the cache's type: 8 bits take a quarter of the memory and are faster, but need text for
    ranges."""
    fits = options.flavor == "fused" and plan.base in ("int8", "int4") and checkpoint.tokenizer is not None
    return "int8" if fits else "fp32"


def _copy_parts(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy what a bundle takes from its checkpoint as it is: the base's terms, the draft index."""
    copy_terms(checkpoint.folder, folder)
    index = checkpoint.file(DRAFT_INDEX)
    if index and read_draft_index(index, checkpoint.model.config.base.vocab_size):
        shutil.copyfile(index, folder / DRAFT_INDEX)


def _add_gguf(
    checkpoint: Checkpoint,
    folder: Path,
    manifest: Manifest | None,
    options: ExportOptions,
    progress: Progress,
) -> Manifest:
    """Write the GGUF files, beside the graphs of a manifest or alone."""
    plan = make_gguf_plan(options.gguf_precision or options.precision)
    layers = calibrated_layers(checkpoint.model, plan)
    with contextlib.closing(Calibration(checkpoint, layers)) as calibration:
        part = write_gguf(checkpoint, folder, plan=plan, calibration=calibration, progress=progress)
    progress("hashing", 0, 0)
    if manifest is None:
        if checkpoint.tokenizer is not None:
            compact_tokenizer(checkpoint.tokenizer, folder / TOKENIZER)
        _copy_parts(checkpoint, folder)
        manifest = manifest_of(checkpoint, folder, {}, flavor="gguf", plan=plan, cache_slots=0)
    return dataclasses.replace(manifest, gguf=part, files=tuple(file_entries(folder)))


def _check_gguf_parity(folder: Path, manifest: Manifest, checkpoint: Checkpoint, progress: Progress) -> None:
    """Run the parity gate, or warn: files may be written on a machine that cannot run them."""
    try:
        _tell(check_parity(folder, manifest, checkpoint, backend="llamacpp", progress=progress))
    except (MissingExtraError, RuntimeUnavailableError) as error:
        warnings.warn(f"the GGUF files were not compared: {error}", HamburgerWarning, stacklevel=2)


def _tell(report: ParityReport) -> None:
    """Warn about quality; a quality warning does not stop the export."""
    for warning in report.warnings:
        warnings.warn(warning, HamburgerWarning, stacklevel=2)
    if report.quality is not None and not report.quality.as_known:
        warnings.warn(f"quality: {report.quality.verdict}", HamburgerWarning, stacklevel=2)
