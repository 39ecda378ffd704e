"""Options and checks of commands that train or distribute their work."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hamburger_edge.cli.command import option
from hamburger_edge.errors import InputError, require

if TYPE_CHECKING:
    from hamburger_edge.models.distillation.cluster import Cluster

CLUSTER = (
    option(
        "--ray",
        metavar="ADDRESS",
        help="spread the work over a Ray cluster's workers; local: of one that is started for this",
    ),
    option("--workers", type=int, metavar="N", help="with --ray: how many (default 1)"),
    option(
        "--gpus-per-worker",
        type=float,
        metavar="G",
        help="with --ray: GPUs of each worker, or a share of one (default 1 where the cluster has any)",
    ),
)


def require_training() -> None:
    """Raise an error for missing packages of the extra `train` before hours of work, not after them."""
    for module in ("torch", "accelerate", "matplotlib"):
        require(module, "train")


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[Cluster | None]:
    """Yield the cluster of --ray and its options, or None for this process alone."""
    if options.ray is None:
        for flag in ("workers", "gpus_per_worker"):
            if getattr(options, flag) is not None:
                name = flag.replace("_", "-")
                raise InputError(f"--{name} is for --ray: add that, or leave it out")
        yield None
        return
    from hamburger_edge.models.distillation.cluster import Cluster

    workers = 1 if options.workers is None else options.workers
    with Cluster(options.ray, workers, gpus=options.gpus_per_worker, threads=options.threads) as there:
        yield there
