"""`hamburger-edge export`: a checkpoint becomes a bundle."""

from __future__ import annotations

import argparse
from typing import Any

from hamburger_edge.cli.command import Command, Option, option
from hamburger_edge.support.terminal import ProgressBar


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.exporting import export_checkpoint

    given = {name: getattr(options, name) for name in NAMES if getattr(options, name) is not None}
    with ProgressBar() as progress:
        bundle = export_checkpoint(options.source, options.output, progress=progress, **given)
    print(bundle)


def _asked(name: str, flag: str = "", **settings: Any) -> Option:
    """An option of `ExportOptions`: not given, it has the default that it has there."""
    return option(flag or f"--{name.replace('_', '-')}", dest=name, default=None, **settings)


OPTIONS = (
    _asked(
        "flavor",
        choices=["fused", "portable", "web"],
        help="fused (default): ONNX Runtime's own operators; portable: standard operators only, for "
        "accelerators; its int4 is coarser and its cache float32; web: for browsers, which unpack its "
        "weights while loading",
    ),
    _asked(
        "formats",
        "--format",
        action="append",
        choices=["onnx", "gguf"],
        help="onnx (default), gguf for llama.cpp, or both: give it twice",
    ),
    _asked(
        "precision",
        metavar="P",
        help="fp32, fp16, int8, int4 (default); of GGUF files f32, f16, q8_0, q4_0, q4_1",
    ),
    _asked("gguf_precision", metavar="P", help="of the GGUF files, where both are written"),
    _asked(
        "block_size",
        type=int,
        metavar="N",
        help="weights that share a scale (power of two); default 64, in fused graphs for a base in "
        "Q4_1 its own blocks of 32, which int4 keeps wherever they matter: slower, far nearer to "
        "float32",
    ),
    _asked(
        "keep_head",
        choices=["fp32", "fp16", "int8", "int4"],
        help="precision of all embeddings and heads (default at int4: int8, in fused graphs int4 for "
        "the head's rows of rare tokens)",
    ),
    _asked(
        "prefer",
        choices=["accuracy", "speed"],
        help="of fused graphs at int4: near to float32 (default), or coarser and faster (SmolLM2, "
        "whose base is in Q4_1, by a fifth)",
    ),
    _asked(
        "kv_cache_dtype",
        choices=["fp32", "fp16", "int8"],
        help="KV cache of fused graphs: int8 (default where weights are int8 or int4), fp32 (default "
        "otherwise), or fp16, which CUDA needs",
    ),
    _asked(
        "cache_slots",
        type=int,
        metavar="SLOTS",
        help="slots of a portable bundle's KV cache (default 2048); others choose when loaded: --cache-slots",
    ),
    _asked(
        "context_length",
        type=int,
        metavar="POSITIONS",
        help="longest text that the bundle is for, in tokens (default: as the base was trained for); graphs "
        "store a rotation for each: 33 MB of 131,072",
    ),
    _asked("verify", "--no-verify", action="store_false", help="skip the parity gate"),
    _asked("force", action="store_true", help="replace an existing bundle"),
)
NAMES = tuple(each.settings["dest"] for each in OPTIONS)

COMMAND = Command(
    name="export",
    summary="turn a checkpoint into a bundle of ONNX graphs or GGUF files",
    options=(
        option(
            "source",
            metavar="CHECKPOINT",
            help="checkpoint folder, or a built-in model: tiny, smollm2-135m, voice-commands, proofread",
        ),
        option("-o", "--output", required=True, metavar="BUNDLE", help="folder to write"),
        *OPTIONS,
    ),
    examples=(
        "hamburger-edge export tiny -o tiny-bundle",
        "hamburger-edge export my-checkpoint -o bundle --precision fp32",
        "hamburger-edge export my-checkpoint -o phone --flavor portable --cache-slots 1024",
        "hamburger-edge export my-checkpoint -o gguf --format gguf --precision q8_0",
    ),
    run=run,
    notes="The last stage compares every graph with its PyTorch module; a bundle that disagrees is not kept.",
)
