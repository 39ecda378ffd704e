"""Weights to be rounded."""

from __future__ import annotations

import gguf
import torch
from gguf import GGMLQuantizationType as Type


def weights(N: int, K: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed))


def q4_1(N: int, K: int, seed: int = 0) -> torch.Tensor:
    """Weights as a Q4_1 file has them."""
    packed = gguf.quants.quantize(weights(N, K, seed).numpy(), Type.Q4_1)
    return torch.from_numpy(gguf.quants.dequantize(packed, Type.Q4_1))
