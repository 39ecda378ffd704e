"""Export: a checkpoint becomes a bundle, or nothing at all.

    load -> graphs and weights (graph_stages.py) -> parity gate -> manifest -> rename into place
         and/or -> GGUF files -> parity gate -^

All files go to a hidden folder beside the target, which is renamed at the end. The manifest is its last file;
nothing opens a folder without one.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import warnings
from pathlib import Path

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.manifest import Manifest
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
from hamburger_edge.export.assembly.parts import write_parts
from hamburger_edge.export.assembly.recipe import AssemblyRecipe
from hamburger_edge.export.description import manifest_of, write_shared_files
from hamburger_edge.export.gguf.tensors import make_gguf_plan
from hamburger_edge.export.gguf.writer import check_supported, write_gguf
from hamburger_edge.export.graph_stages import write_graphs
from hamburger_edge.export.graphs.modules import shortened
from hamburger_edge.export.options import GRAPHS, SHORTEST_CACHE, ExportOptions, cache_slots_of
from hamburger_edge.export.parity.gate import ParityReport, check_graphs, check_parity
from hamburger_edge.export.stages import stages_of
from hamburger_edge.export.target import check_target
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.support.cache import lock_for
from hamburger_edge.support.files import locked
from hamburger_edge.support.folders import clear_leftovers, publish
from hamburger_edge.support.progress import Progress, StagedProgress, no_progress
from hamburger_edge.support.values import whole_in


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
            if options.assembly and not (checkpoint.path / MANIFEST).exists():
                raise InputError(
                    f"{checkpoint.path}: an assembly is kept in a checkpoint's folder, and this is another "
                    "model: export without --assembly"
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
    recipe: AssemblyRecipe | None = None
    if options.has_gguf:
        check_supported(checkpoint.model.config)
    manifest = None
    if options.has_graphs:
        manifest, recipe = write_graphs(checkpoint, folder, options, progress)
        if options.verify == GRAPHS:
            check_graphs(folder, manifest, checkpoint, progress)
        elif options.verify:
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
    positions = longest = config.base.context_length
    if options.context_length is not None:
        positions = whole_in("context_length", options.context_length, min(SHORTEST_CACHE, longest), longest)
    if options.flavor == "portable" and not options.has_gguf:
        slots = cache_slots_of(positions, options.cache_slots)
        positions = min(
            positions, slots if config.position_rule == "slot" else slots * config.max_group_tokens
        )
    if positions == longest:
        return checkpoint
    return dataclasses.replace(checkpoint, model=shortened(checkpoint.model, positions))


def _check_template(checkpoint: Checkpoint) -> None:
    try:
        ChatTemplate.from_json(checkpoint.chat_template)
    except ConfigError as error:
        raise ConfigError(f"{checkpoint.path}: {error}") from error


def _add_gguf(
    checkpoint: Checkpoint,
    folder: Path,
    manifest: Manifest | None,
    options: ExportOptions,
    progress: Progress,
) -> Manifest:
    """Write the GGUF files, beside the graphs of a manifest or alone."""
    plan = make_gguf_plan(options.gguf_type)
    part = write_gguf(checkpoint, folder, plan=plan, progress=progress)
    progress("hashing", 0, 0)
    if manifest is None:
        write_shared_files(checkpoint, folder)
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
