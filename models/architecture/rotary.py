"""Rotary position tables in numpy, for PyTorch's modules and for bundles that are made without them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hamburger_edge.models.architecture.config import BaseConfig

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


def frequencies(config: BaseConfig, number: int = 0) -> Doubles:
    """[D/2] rotations per position, in radians; with Llama 3 scaling where configured.

    `number` is the index of the rope base in `config.rope_thetas`; scaling is of the first.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    frequency: Doubles = config.rope_thetas[number] ** -exponents
    if config.rope_scaling is None or number > 0:
        return frequency
    scaling = config.rope_scaling
    turns = scaling.original_context * frequency / (2 * math.pi)  # turns inside the original context
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clip(0, 1)  # 0: few turns, fully scaled; 1: many turns, untouched
    scaled: Doubles = frequency * ((1 - blend) / scaling.factor + blend)
    return scaled


def rotary_arrays(config: BaseConfig, positions: int, number: int = 0) -> tuple[Floats, Floats]:
    """Cosines and sines of one rope base, each [positions, D/2]."""
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies(config, number)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
