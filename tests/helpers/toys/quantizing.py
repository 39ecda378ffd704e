"""Weights to be rounded, and plans for it."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from gguf import GGMLQuantizationType as Type

from hamburger_edge.bundle.manifest import PrecisionPlan
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.export.precision_plan import make_plan


def plan_for(precision: str, **options: Any) -> PrecisionPlan:
    asked = ExportOptions(precision=precision, **options)
    return make_plan(
        asked.precision, block_size=asked.block_size, keep_head=asked.keep_head, prefer=asked.prefer
    )


def weights(N: int, K: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed))


def q4_1(N: int, K: int, seed: int = 0) -> torch.Tensor:
    """Weights as a Q4_1 file has them."""
    packed = gguf.quants.quantize(weights(N, K, seed).numpy(), Type.Q4_1)
    return torch.from_numpy(gguf.quants.dequantize(packed, Type.Q4_1))
