"""`hamburger-edge export`: a checkpoint becomes a bundle."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from hamburger_edge.cli.command import Command, Option, option
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.support.terminal import ProgressBar

FIELDS = {field.name: field for field in dataclasses.fields(ExportOptions)}


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.exporting import export_checkpoint

    given = {name: getattr(options, name) for name in FIELDS if getattr(options, name) is not None}
    with ProgressBar() as progress:
        bundle = export_checkpoint(options.source, options.output, progress=progress, **given)
    print(bundle)


def _option(name: str, flag: str = "", **settings: Any) -> Option:
    """An option of `ExportOptions`, with its help and choices; not given, it leaves the default to that."""
    facts = FIELDS[name].metadata
    choices = {"choices": list(facts["choices"])} if facts["choices"] else {}
    flag = flag or f"--{name.replace('_', '-')}"
    return option(flag, dest=name, default=None, help=facts["help"], **choices, **settings)


COMMAND = Command(
    name="export",
    summary="turn a checkpoint into a bundle of ONNX graphs or GGUF files",
    options=(
        option(
            "source",
            metavar="CHECKPOINT",
            help="checkpoint folder, or a built-in model: tiny, smollm2-135m",
        ),
        option("-o", "--output", required=True, metavar="BUNDLE", help="folder to write"),
        _option("flavor"),
        _option("formats", "--format", action="append"),
        _option("precision", metavar="P"),
        _option("gguf_precision", metavar="P"),
        _option("block_size", type=int, metavar="N"),
        _option("keep_head"),
        _option("prefer"),
        _option("kv"),
        _option("cache_length", type=int, metavar="SLOTS"),
        _option("verify", "--no-verify", action="store_false"),
        _option("force", action="store_true"),
    ),
    examples=(
        "hamburger-edge export tiny -o tiny-bundle",
        "hamburger-edge export my-checkpoint -o bundle --precision fp32",
        "hamburger-edge export my-checkpoint -o phone --flavor portable --cache-length 1024",
        "hamburger-edge export my-checkpoint -o gguf --format gguf --precision q8_0",
    ),
    run=run,
    notes="The last stage compares every graph with its PyTorch module; a bundle that disagrees is not kept.",
)
