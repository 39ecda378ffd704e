"""Export a checkpoint to a bundle; dependencies of the export are imported on demand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hamburger_edge.errors import MissingExtraError, needing
from hamburger_edge.support.progress import Progress, no_progress

if TYPE_CHECKING:
    from hamburger_edge.export.options import ExportOptions
    from hamburger_edge.models.checkpoints.checkpoint import Checkpoint


def export_checkpoint(
    checkpoint: str | Path | Checkpoint,
    output: str | Path,
    *,
    formats: str | Sequence[str] | None = None,
    flavor: str | None = None,
    precision: str | None = None,
    kv_cache_dtype: str | None = None,
    cache_slots: int | None = None,
    context_length: int | None = None,
    gguf_precision: str | None = None,
    verify: bool | Literal["graphs"] = True,
    assembly: bool = False,
    force: bool = False,
    progress: Progress = no_progress,
) -> Path:
    """Write the bundle of a checkpoint to `output`.

    The checkpoint is a folder, a Lightning file, a built-in name, or a loaded checkpoint. An ordinary model
    is exported too, as a plain one: a Hugging Face folder, a GGUF file, or "hf:ORG/NAME".

        export_checkpoint("smollm2-135m", "bundle")
        export_checkpoint("my-checkpoint", "phone", flavor="portable", cache_slots=1024)
        export_checkpoint("my-checkpoint", "both", formats=("onnx", "gguf"), precision="int8")

        formats         "onnx" (default), "gguf" for llama.cpp, or both
        flavor          "fused" (default): ONNX Runtime's own operators; "portable": standard operators only
        precision       "int4", "int4-fast" (coarser, fused graphs only), "int8", "fp16" or "fp32"; None: the
                        one that the checkpoint recommends, else int4
        kv_cache_dtype  "int8", "fp16" or "fp32" KV cache of fused graphs; None: int8 with int4 or int8
                        weights, else fp32
        cache_slots     slots of a portable bundle's KV cache; None: 2048
        context_length  positions of the bundle; None: as many as the base was trained for
        gguf_precision  type of the GGUF files' weights, such as "q4_0"; None: the one nearest to precision
        verify          compare the bundle with PyTorch; discard it if they differ. "graphs" takes seconds: it
                        compares no whole answers
        assembly        also write the checkpoint's folder `assembly`, from which `load` makes this
                        int8 bundle without PyTorch
        force           replace an existing bundle

    Needs the extra `export`, except for the bundle that the checkpoint's folder `assembly` describes. Returns
    the bundle's resolved path for `load`.
    """
    from hamburger_edge.export.options import ExportOptions
    from hamburger_edge.models.checkpoints.built_in import resolve
    from hamburger_edge.models.checkpoints.manifest import is_lightning
    from hamburger_edge.models.checkpoints.ordinary import is_ordinary

    if isinstance(checkpoint, str | Path) and not (is_lightning(checkpoint) or is_ordinary(checkpoint)):
        checkpoint = resolve(
            checkpoint, "name the folder of a checkpoint or of an ordinary model, or a GGUF file"
        )
    named: dict[str, Any] = {
        "formats": formats,
        "flavor": flavor,
        "precision": precision,
        "kv_cache_dtype": kv_cache_dtype,
        "cache_slots": cache_slots,
        "context_length": context_length,
        "gguf_precision": gguf_precision,
    }
    if precision is None:
        named["precision"] = _recommended_precision(checkpoint)
    given = {name: value for name, value in named.items() if value is not None}
    chosen = ExportOptions(**given, verify=verify, assembly=assembly, force=force)
    try:
        with needing("export"):
            from hamburger_edge.export.pipeline import export
    except MissingExtraError:
        if isinstance(checkpoint, str | Path) and _is_assembly(checkpoint, chosen):
            return _assemble(Path(checkpoint), Path(output).resolve(), force=force, progress=progress)
        raise
    bundle: Path = export(checkpoint, output, chosen, progress=progress)
    return bundle


def _recommended_precision(checkpoint: str | Path | Checkpoint) -> str | None:
    from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest

    if not isinstance(checkpoint, str | Path):
        precision: str | None = checkpoint.manifest.get("recommended_precision")
        return precision
    description = Path(checkpoint) / MANIFEST
    if not description.exists():
        return None  # a file of another kind: loading reports it
    return read_manifest(description).recommended_precision


def _is_assembly(checkpoint: str | Path, options: ExportOptions) -> bool:
    """Whether the checkpoint's folder `assembly` describes the bundle of these options."""
    from hamburger_edge.assembling import can_assemble
    from hamburger_edge.export.options import ExportOptions

    described = ExportOptions(precision="int8", verify=options.verify, force=options.force)
    return options == described and can_assemble(Path(checkpoint))


def _assemble(checkpoint: Path, output: Path, *, force: bool, progress: Progress) -> Path:
    from hamburger_edge.export.assembly.assemble import assemble
    from hamburger_edge.export.target import check_target
    from hamburger_edge.support.cache import lock_for
    from hamburger_edge.support.files import locked

    with locked(lock_for(output)):
        check_target(output, force=force)
        return assemble(checkpoint, output, progress=progress)
