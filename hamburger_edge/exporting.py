"""From a checkpoint to a bundle: the one call of an app; what exporting needs is imported only then."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamburger_edge.errors import InputError, needing
from hamburger_edge.support.progress import Progress, no_progress

if TYPE_CHECKING:
    from hamburger_edge.models.checkpoints.checkpoint import Checkpoint


def export_checkpoint(
    checkpoint: str | Path | Checkpoint,
    output: str | Path,
    *,
    progress: Progress = no_progress,
    **options: Any,
) -> Path:
    """Write the bundle of a checkpoint (a folder, a built-in name, or one already loaded) to `output`.

        export_checkpoint("smollm2-135m", "bundle")
        export_checkpoint("my-checkpoint", "phone", flavor="portable", cache_slots=1024)
        export_checkpoint("my-checkpoint", "both", formats=("onnx", "gguf"), precision="int8")

    Options are the fields of `hamburger_edge.export.options.ExportOptions`, and their defaults those of
    `hamburger-edge export`:

        formats         "onnx" (default), "gguf" for llama.cpp, or both
        flavor          "fused" (default): ONNX Runtime's own operators; "portable": standard ones only;
                        "web": for browsers, which unpack its weights
        precision       "int4" (default), "int8", "fp16", "fp32"; of GGUF files also "q4_0", "q8_0", ...
        gguf_precision  of the GGUF files where both are written; None (default): the nearest to `precision`
        block_size      16, 32, 64, 128 or 256 weights share a scale; None (default): as the precision is best
        keep_head       precision of embeddings and heads; None (default): as the precision is best
        prefer          "accuracy" (default), or "speed" at the price of it: of fused graphs at int4
        kv_cache_dtype  "int8", "fp16" or "fp32" KV cache of fused graphs; None (default): as weights are best
        cache_slots     slots of a portable bundle's KV cache; None (default): 2048
        context_length  positions that the bundle is for; None (default): as many as the base was trained for
        verify          True (default): a bundle that disagrees with PyTorch is not kept
        force           False (default): a bundle that is there is not replaced

    Needs the extra `export`. Returns the bundle's resolved path, which `load` opens.
    """
    from hamburger_edge.export.options import ExportOptions

    known = [field.name for field in dataclasses.fields(ExportOptions)]
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"unknown option {unknown[0]!r} of an export (known: {', '.join(known)})")
    chosen = ExportOptions(**options)
    with needing("export"):
        from hamburger_edge.export.pipeline import export
    bundle: Path = export(checkpoint, output, chosen, progress=progress)
    return bundle
