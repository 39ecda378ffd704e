"""`hamburger-edge train`: train a graft from a recipe."""

from __future__ import annotations

import argparse
from pathlib import Path

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.commands._training import require_training
from hamburger_edge.support.terminal import note


def run(options: argparse.Namespace) -> None:
    require_training()
    from hamburger_edge.models.training.runs import train
    from hamburger_edge.models.training.training_recipe import read_recipe
    from hamburger_edge.runtimes.torch.torch_backend import use_threads

    use_threads(options.threads, "--threads")
    path, output = Path(options.recipe), Path(options.output)
    written = train(
        read_recipe(path),
        output,
        minutes=options.minutes,
        finish=options.finish,
        report=note,
        divide=options.divide,
    )
    if written is not None:
        print(written)


COMMAND = Command(
    name="train",
    summary="train a graft by a recipe",
    options=(
        option("recipe", metavar="RECIPE.toml", help="see models/zoo/*/recipe.toml"),
        option("-o", "--output", required=True, metavar="CHECKPOINT", help="folder to write at the end"),
        option("--minutes", type=float, metavar="M", help="stop after M minutes; run again to go on"),
        option("--finish", action="store_true", help="write a checkpoint also where --minutes ended it"),
        option(
            "--divide",
            action="store_true",
            help="under `accelerate launch`: weights, gradients and optimizer are divided among processes",
        ),
        option("--threads", type=int, metavar="N", help="processor threads"),
    ),
    examples=(
        "hamburger-edge train recipe.toml -o my-checkpoint",
        "hamburger-edge train recipe.toml -o my-checkpoint --minutes 25 --finish",
    ),
    run=run,
    notes="A run that was stopped or killed goes on from its last save. Several processes train one model:\n"
    "accelerate launch -m hamburger_edge train ...",
    extra="train",
)
