"""Keep the grid of a base that arrives in llama.cpp's Q4_1, like SmolLM2.

Such weights are  scale * q + minimum  with any minimum per block. An integer zero point,  scale * (q - zero),
loses much of them. The rest of each minimum becomes one more column per block, behind the K others, which is
multiplied by the mean of the block's inputs:

    [x, block means of x]  @  [weights | rest of each minimum]^T        one MatMulNBits [N, K + blocks]

`export/precision_plan.py` uses this: `grid_of` for a model, `grid_form` for each layer.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from hamburger_edge.export.quantization.block_quantizer import (
    Blocks,
    dequantize,
    pack,
    quantize,
    quantize_with_minimum,
    round_to_grid,
    unpacked,
)
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.weight_forms import BlockForm, Form, to_float

SIZE = 32  # weights that share a scale and a minimum in Q4_1
WITHOUT_MINIMA = ("*.self_attn.o_proj",)  # the layers that lose nothing with integer zero points


def grid_of(layer: nn.Module) -> int:
    """Return the block size of the grid that all linear layers of a decoder layer lie on; 0: none."""
    weights = [module.weight for module in layer.modules() if isinstance(module, nn.Linear)]
    return SIZE if all(has_minima(weight, SIZE) for weight in weights) else 0


def grid_form(
    path: str, weight: Tensor, grid: int, block_size: int, covariance: InputCovariance | None
) -> Form:
    """Store a base's layer on its own grid; `block_size` is for layers without minima."""
    if any(fnmatchcase(path, pattern) for pattern in WITHOUT_MINIMA):
        return GridForm(quantize(weight, 4, block_size, covariance=covariance), means=False)
    return GridForm(quantize_with_means(weight, grid, covariance=covariance))


def has_minima(weight: Tensor, size: int) -> bool:
    """Whether these weights come from 4 bits with a minimum per block: then that grid fits much better."""
    if weight.shape[1] % size:
        return False
    sample = weight[:: max(1, len(weight) // 64)].detach().float()
    without = (dequantize(quantize(sample, 4, size)) - sample).square().sum()
    q, scales, minima = quantize_with_minimum(sample, size)
    grid = (q.unflatten(1, (-1, size)) * scales[..., None] + minima[..., None]).flatten(1)
    return bool((grid - sample).square().sum() < without / 2)


def quantize_with_means(weight: Tensor, size: int, *, covariance: InputCovariance | None = None) -> Blocks:
    """Store a grid with minima as integer zero points and one more column per block.

    The columns [N, blocks] behind the K others hold the rest of each minimum and are multiplied by each
    block's mean input. They have 4 bits too, so [N, K + blocks] is one matrix for MatMulNBits.
    """
    q, scales, minima = quantize_with_minimum(weight, size, covariance=covariance)
    zeros = (-minima / scales).round().clamp(0, 15)
    rest = quantize(size * (minima + zeros * scales), 4, size)
    if covariance is not None:  # the weights compensate the rounding of the minima too
        q = round_to_grid(
            weight.detach().float(), scales, dequantize(rest) / size - zeros * scales, covariance
        )
    packed = pack(q.unflatten(1, (-1, size)), 4)
    _, rest_zeros = unpacked(rest)
    return Blocks(
        4,
        size,
        (q.shape[0], q.shape[1] + scales.shape[1]),
        torch.cat([packed, rest.packed], dim=1),
        torch.cat([scales, rest.scales], dim=1),
        pack(torch.cat([zeros.to(torch.uint8), rest_zeros], dim=1), 4),
    )


def without_means(blocks: Blocks) -> Tensor:
    """Return the weights [N, K] of a matrix [N, K + blocks] from `quantize_with_means`."""
    columns = dequantize(blocks)
    count = columns.shape[1] // (blocks.size + 1)
    return columns[:, :-count] + columns[:, -count:].repeat_interleave(blocks.size, 1) / blocks.size


class GridForm(BlockForm):
    """A layer on a grid of scales and minima (`quantize_with_means`): each block's mean is appended to its
    inputs [B, S, K]. Without `means`, minima are integer zero points.

    Scales are float16, like the base's. Their cast must be folded while loading, or it runs at every step.
    """

    def __init__(self, blocks: Blocks, *, means: bool = True):
        super().__init__(blocks)
        self.scales = blocks.scales.half()
        self.means = _block_means(self.shape[1] // (self.size + 1), self.size) if means else None

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.means is not None:
            x = torch.cat([x, self.means.linear(x)], dim=-1)
        return self.product(x, to_float(self.scales), bias)

    def dense(self) -> Tensor:
        return super().dense() if self.means is None else without_means(self.blocks())

    def joins(self, other: Form) -> bool:
        return super().joins(other) and (other.means is None) == (self.means is None)


def _block_means(count: int, size: int) -> BlockForm:
    """[..., count * size] -> [..., count]. With this SmolLM2's step takes 0.97 of its time with pooling."""
    averages = torch.eye(count).repeat_interleave(size, 1) / size
    return BlockForm(quantize(averages, 4, size))
