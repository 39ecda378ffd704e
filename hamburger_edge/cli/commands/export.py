"""`hamburger-edge export`: a checkpoint becomes a bundle."""

from __future__ import annotations

import argparse

from hamburger_edge.cli.command import Command, option
from hamburger_edge.support.terminal import Progress


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.export.pipeline import export

    with Progress() as progress:
        bundle = export(
            options.source,
            options.output,
            formats=options.format or ["onnx"],
            flavor=options.flavor,
            precision=options.precision,
            gguf_precision=options.gguf_precision,
            block_size=options.block_size,
            keep_head=options.keep_head,
            prefer=options.prefer,
            kv=options.kv,
            context=options.context,
            verify=not options.no_verify,
            force=options.force,
            progress=progress,
        )
    print(bundle)


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
        option(
            "--flavor",
            default="fused",
            choices=["fused", "portable"],
            help="fused (default): ONNX Runtime's own operators; portable: standard operators only, for "
            "accelerators; its int4 is coarser and its cache float32",
        ),
        option(
            "--format",
            action="append",
            choices=["onnx", "gguf"],
            help="onnx (default), gguf for llama.cpp, or both: give it twice",
        ),
        option(
            "--precision",
            default="int4",
            metavar="P",
            help="fp32, fp16, int8, int4 (default); of GGUF files f32, f16, q8_0, q4_0, q4_1",
        ),
        option("--gguf-precision", metavar="P", help="of the GGUF files, where both are written"),
        option(
            "--block-size",
            type=int,
            metavar="N",
            help="weights that share a scale (power of two); default 64, in fused graphs for a base in "
            "Q4_1 its own blocks of 32, which int4 keeps wherever they matter: slower, far nearer to "
            "float32",
        ),
        option(
            "--keep-head",
            choices=["int8", "fp32"],
            help="precision of all embeddings and heads (default at int4: int8, in fused graphs int4 for "
            "the head's rows of rare tokens)",
        ),
        option(
            "--prefer",
            default="accuracy",
            choices=["accuracy", "speed"],
            help="of fused graphs at int4: near to float32 (default), or coarser and faster (SmolLM2, "
            "whose base is in Q4_1, by a fifth)",
        ),
        option(
            "--kv",
            choices=["fp32", "fp16", "int8"],
            help="KV cache of fused graphs: int8 (default where weights are int8 or int4), fp32 (default "
            "otherwise), or fp16, which CUDA needs",
        ),
        option(
            "--context",
            type=int,
            metavar="SLOTS",
            help="slots a portable bundle's KV buffer holds (default 2048)",
        ),
        option("--no-verify", action="store_true", help="skip the parity gate"),
        option("--force", action="store_true", help="replace an existing bundle"),
    ),
    examples=(
        "hamburger-edge export tiny -o tiny-bundle",
        "hamburger-edge export my-checkpoint -o bundle --precision fp32",
        "hamburger-edge export my-checkpoint -o phone --flavor portable --context 1024",
        "hamburger-edge export my-checkpoint -o gguf --format gguf --precision q8_0",
    ),
    run=run,
    notes="The last stage compares every graph with its PyTorch module; a bundle that disagrees is not kept.",
)
