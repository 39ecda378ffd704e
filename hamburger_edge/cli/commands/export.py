"""`hamburger-edge export`: make a bundle from a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any

from hamburger_edge.cli.command import Command, Option, option
from hamburger_edge.cli.options import JSON
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.support.processors import let_threads_sleep
from hamburger_edge.support.terminal import ProgressBar


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.exporting import export_checkpoint

    let_threads_sleep()
    given = {name: getattr(options, name) for name in NAMES if getattr(options, name) is not None}
    with ProgressBar() as progress:
        bundle = export_checkpoint(options.source, options.output, progress=progress, **given)
    if options.json:
        stages = {stage: round(seconds, 3) for stage, seconds in progress.seconds.items()}
        print_json({"bundle": str(bundle), "seconds": stages})
    else:
        print(bundle)


def _asked(name: str, flag: str = "", **settings: Any) -> Option:
    """Return an option of `ExportOptions`; its default is the one in that class."""
    return option(flag or f"--{name.replace('_', '-')}", dest=name, default=None, **settings)


OPTIONS = (
    _asked(
        "flavor",
        choices=["fused", "portable"],
        help="fused (default): ONNX Runtime's own operators; portable: standard operators only, for "
        "accelerators; its int4 is coarser and its cache float32",
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
        choices=["int4", "int4-fast", "int8", "fp16", "fp32"],
        help="int4 (default, if the model recommends none); int4-fast: coarser, a fifth faster, of fused "
        "graphs; int8; fp16; fp32",
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
    _asked(
        "gguf_precision",
        metavar="TYPE",
        help="type of the GGUF files' weights: f32, f16, q8_0, q4_1 or q4_0 (default: the one nearest to "
        "--precision)",
    ),
    _asked("verify", "--no-verify", action="store_false", help="skip the parity gate"),
    _asked(
        "assembly",
        action="store_true",
        help="also write the checkpoint's folder `assembly`, with which `run` and `load` make this bundle "
        "without PyTorch: at int8",
    ),
    _asked("force", action="store_true", help="replace an existing bundle"),
)
NAMES = tuple(entry.settings["dest"] for entry in OPTIONS)

COMMAND = Command(
    name="export",
    summary="turn a checkpoint, or an ordinary model, into a bundle of ONNX graphs or GGUF files",
    options=(
        option(
            "source",
            metavar="CHECKPOINT",
            help="checkpoint folder, Lightning .ckpt file, a built-in model (tiny, smollm2-135m, "
            "voice-commands, home-commands, proofread), or an ordinary model: Hugging Face folder, GGUF "
            "file, hf:ORG/NAME",
        ),
        option("-o", "--output", required=True, metavar="BUNDLE", help="folder to write"),
        *OPTIONS,
        JSON,
    ),
    examples=(
        "hamburger-edge export tiny -o tiny-bundle",
        "hamburger-edge export my-checkpoint -o bundle --precision fp32",
        "hamburger-edge export my-checkpoint -o phone --flavor portable --cache-slots 1024",
        "hamburger-edge export my-checkpoint -o gguf --format gguf --precision int8",
        "hamburger-edge export ./my-hugging-face-model -o bundle",
    ),
    run=run,
    notes="The last stage compares every graph with its PyTorch module; a bundle that disagrees is not kept.",
)
