"""Ranges of activations on calibration text and on other text: of the cache, and of inputs of products."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.calibration_batches import other_batches
from hamburger_edge.export.quantization.covariances import covariances_by_stage, stage_paths
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.export.quantization.input_ranges import InputRanges
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.progress import Progress, no_progress


@dataclass(frozen=True)
class ActivationRanges:
    folds: Folds = field(default_factory=lambda: Folds({}))  # scales to move out of the base's norms
    # largest magnitude of a product's input after folding, by the product's path; others scale each row
    inputs: Mapping[str, float] = field(default_factory=dict)
    # "key_scale.N", "value_scale.N" -> the unit [K * D] of each channel of an 8-bit cache
    cache: Mapping[str, Tensor] = field(default_factory=dict)


def measure_ranges(
    checkpoint: Checkpoint, *, inputs: bool, cache: bool, progress: Progress = no_progress
) -> ActivationRanges:
    """Measure the ranges of the products' inputs, of the cache, or both. The checkpoint has a tokenizer.

    Only models of one task have ranges of inputs. They are sure of their answers, and a call has many rows.
    Chat loses less than half without, and its calls have few rows (docs/research/quantization.md).
    """
    model = checkpoint.model
    with contextlib.ExitStack() as listeners:
        of_inputs = listeners.enter_context(contextlib.closing(InputRanges(model))) if inputs else None
        of_cache = listeners.enter_context(contextlib.closing(CacheRanges(model))) if cache else None
        if inputs or cache:
            read_other_text(checkpoint)
            count = len(stage_paths(model))
            for done, _ in enumerate(covariances_by_stage(checkpoint)):
                progress("calibrating", done, count)
    folds = Folds({}) if of_inputs is None else of_inputs.folds()
    return ActivationRanges(
        folds,
        of_inputs.by_product(folds) if of_inputs is not None and checkpoint.is_task else {},
        {} if of_cache is None else of_cache.scales(),
    )


@torch.no_grad()
def read_other_text(checkpoint: Checkpoint) -> None:
    """Read other languages, code and tables, for the ranges that listen to the model."""
    for batch in other_batches(checkpoint):
        checkpoint.model.features(batch)
