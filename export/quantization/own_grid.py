"""A base that arrives in llama.cpp's Q4_1, as SmolLM2 does, goes back to the grid of blocks it comes from.

Such weights are  scale * q + minimum  with a minimum of any value a block, and an integer zero point,
scale * (q - zero),  loses much of them. What rounding a minimum to a zero point leaves over becomes one more
column a block, behind the K others, which meets the mean of the block's inputs:

    [x, block means of x]  @  [weights | rest of each minimum]^T        one MatMulNBits [N, K + blocks]

Only `export/precision_plan.py` asks for this: `grid_of` when it is fitted to a model, `grid_form` for each
layer.
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
    """The block size of the grid that all linear layers of a decoder layer come from; 0: of none."""
    weights = [module.weight for module in layer.modules() if isinstance(module, nn.Linear)]
    return SIZE if all(has_minima(weight, SIZE) for weight in weights) else 0


def grid_form(
    path: str, weight: Tensor, grid: int, block_size: int, covariance: InputCovariance | None
) -> Form:
    """How a base's layer is stored on its own grid; `block_size` is of those that do without minima."""
    if any(fnmatchcase(path, pattern) for pattern in WITHOUT_MINIMA):
        return GridForm(quantize(weight, 4, block_size, covariance=covariance), means=False)
    return GridForm(quantize_with_means(weight, grid, covariance=covariance))


def has_minima(weight: Tensor, size: int) -> bool:
    """Whether these weights come from 4 bits with a minimum a block: then that grid is much nearer."""
    if weight.shape[1] % size:
        return False
    sample = weight[:: max(1, len(weight) // 64)].detach().float()
    without = (dequantize(quantize(sample, 4, size)) - sample).square().sum()
    q, scales, minima = quantize_with_minimum(sample, size)
    grid = (q.unflatten(1, (-1, size)) * scales[..., None] + minima[..., None]).flatten(1)
    return bool((grid - sample).square().sum() < without / 2)


def quantize_with_means(weight: Tensor, size: int, *, covariance: InputCovariance | None = None) -> Blocks:
    """A grid with minima in integer zero points: what is left of each minimum is one more column a block.

    The columns [N, blocks] behind the K others meet the mean input of each block, and are themselves stored
    in blocks of 4 bits, so that all of it [N, K + blocks] is one matrix for MatMulNBits.
    """
    q, scales, minima = quantize_with_minimum(weight, size, covariance=covariance)
    zeros = (-minima / scales).round().clamp(0, 15)
    rest = quantize(size * (minima + zeros * scales), 4, size)
    if covariance is not None:  # the weights make up for how the minima were rounded, too
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
    """The weights [N, K] that a matrix [N, K + blocks] of `quantize_with_means` stands for."""
    each = dequantize(blocks)
    count = each.shape[1] // (blocks.size + 1)
    return each[:, :-count] + each[:, -count:].repeat_interleave(blocks.size, 1) / blocks.size


class GridForm(BlockForm):
    """A layer on a grid of scales and minima, see `quantize_with_means`: its inputs [B, S, K] are followed by
    the mean of each block of them. Without `means`, minima are integer zero points.

    Scales are float16, which is what such a base has; unless their cast is folded while loading, it runs
    with every step.
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
    """[..., count * size] -> [..., count]. SmolLM2's step takes 0.97 of what it took with pooling."""
    averages = torch.eye(count).repeat_interleave(size, 1) / size
    return BlockForm(quantize(averages, 4, size))
