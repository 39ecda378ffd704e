"""Block quantization: a few bits per weight, and a scale and an offset for every `size` weights.

There are two grids. MatMulNBits and GatherBlockQuantized have integer zero points,  scale * (q - zero).
llama.cpp's Q4_1 has a minimum of any value,  scale * q + minimum.  A block's two numbers are chosen by least
squares, weighted by the size of each column's inputs.

    zero point   try shrunken ranges of the block and zero points near the natural one; take the best scale
                 for the resulting q, and keep the trial with the smallest error
    minimum      start from the block's minimum and maximum; round, fit both numbers to q, and repeat

With the covariance of the layer's inputs, columns are rounded one after the other, the largest inputs first.
Each column's error is passed on to later columns, in the proportion that changes the layer's output least
(GPTQ, arXiv 2210.17323). At the end all scales and minima of a row are fitted together for the same output.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hamburger_edge.export.quantization.error_compensation import refitted, rounded
from hamburger_edge.export.quantization.input_covariance import InputCovariance

AT_ONCE = 1 << 18  # weights per batch: they stay in the processor's cache
ROWS_AT_ONCE = 1 << 14  # of a matrix: every step over a large vocabulary needs its memory again
SMALLEST = 1e-7  # scale: the smallest that float16 holds


@dataclass(frozen=True)
class Blocks:
    """A quantized matrix [N, K]."""

    bits: int
    size: int
    shape: tuple[int, int]
    packed: Tensor  # uint8 [N, blocks, size * bits / 8], low bits first
    scales: Tensor  # float32 [N, blocks]
    zeros: Tensor  # uint8 [N, ceil(blocks * bits / 8)], low bits first


def quantize(
    weight: Tensor,
    bits: int,
    size: int,
    *,
    rows: Tensor | None = None,
    covariance: InputCovariance | None = None,
    ranges: int | None = None,
) -> Blocks:
    """Quantize `rows` (default: all) with integer zero points, by least squares over `ranges` trials (1:
    minimum to maximum); with `covariance`, by GPTQ."""
    if rows is not None or len(weight) > ROWS_AT_ONCE:
        parts = (torch.arange(len(weight)) if rows is None else rows).split(ROWS_AT_ONCE)
        return _stacked(
            [quantize(weight[part], bits, size, covariance=covariance, ranges=ranges) for part in parts]
        )
    N, K = weight.shape
    blocks = -(-K // size)
    padded = F.pad(weight.detach().float(), (0, blocks * size - K))
    importance = _importance(covariance, blocks * size).reshape(1, blocks, size)
    at_once = max(1, AT_ONCE // (blocks * size))
    fits = [
        _fit(rows.reshape(-1, blocks, size), bits, ranges or (8 if bits == 4 else 1), importance)
        for rows in padded.split(at_once)
    ]
    q, scales, zeros = (torch.cat(tensors) for tensors in zip(*fits, strict=True))
    if covariance is not None:
        q = rounded(padded, scales, -scales * zeros, bits, covariance)
        centred = q.reshape(N, blocks, size) - zeros[..., None].float()
        scales = _larger(refitted(padded, centred, scales, covariance)[0], scales)
    return Blocks(bits, size, (N, K), pack(q.reshape(N, blocks, size), bits), scales, pack(zeros, bits))


def _stacked(parts: list[Blocks]) -> Blocks:
    """Stack blocks of rows."""
    packed, scales, zeros = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("packed", "scales", "zeros")
    )
    shape = (len(packed), parts[0].shape[1])
    return Blocks(parts[0].bits, parts[0].size, shape, packed, scales, zeros)


def quantize_with_minimum(
    weight: Tensor, size: int, *, covariance: InputCovariance | None = None, rounds: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """4 bits: q uint8 [N, K]; scales, minima [N, K / size], numbers that float16 can hold"""
    weight = weight.detach().float()
    w = weight.unflatten(1, (-1, size))
    weigh = _importance(covariance, weight.shape[1]).unflatten(0, (-1, size))
    weigh = weigh / weigh.sum(-1, keepdim=True)
    minima = w.amin(-1, keepdim=True)
    scales = ((w.amax(-1, keepdim=True) - minima) / 15).clamp(min=SMALLEST)
    for _ in range(rounds):
        q = ((w - minima) / scales).round_().clamp_(0, 15)
        mean_q, mean_w = ((weigh * x).sum(-1, keepdim=True) for x in (q, w))
        q -= mean_q
        spread = (weigh * q.square()).sum(-1, keepdim=True)
        slope = (weigh * q * w).sum(-1, keepdim=True) / spread.clamp(min=1e-12)
        scales = torch.where(slope > 0, slope, scales).clamp_(min=SMALLEST).half().float()
        minima = (mean_w - scales * mean_q).half().float()
    scales, minima = scales.squeeze(-1), minima.squeeze(-1)
    q = round_to_grid(weight, scales, minima, covariance)
    if covariance is not None:
        fitted, least = refitted(weight, q.unflatten(1, (-1, size)), scales, covariance, minima)
        assert least is not None
        scales, minima = _larger(fitted, scales).half().float(), least.half().float()
    return q, scales, minima


def round_to_grid(
    weight: Tensor, scales: Tensor, minima: Tensor, covariance: InputCovariance | None
) -> Tensor:
    """4 bits: q uint8 [N, K] of  scales * q + minima  [N, blocks]"""
    if covariance is not None:
        return rounded(weight, scales, minima, 4, covariance)
    w = weight.unflatten(1, (scales.shape[1], -1))
    q: Tensor = ((w - minima[..., None]) / scales[..., None]).round_().clamp_(0, 15)
    return q.flatten(1).to(torch.uint8)


def _importance(covariance: InputCovariance | None, width: int) -> Tensor:
    """[width] the weight of an error in each column, 1 on average"""
    if covariance is None:
        return torch.ones(width)
    diagonal = covariance.diagonal(width).float()
    return diagonal / diagonal.mean()


def _fit(w: Tensor, bits: int, ranges: int, weigh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """w [n, blocks, size] -> q uint8 as w, scales and zeros (uint8) [n, blocks]; `weigh` [1, blocks, size]"""
    top = 2**bits - 1
    low, high = w.amin(-1, keepdim=True).clamp(max=0), w.amax(-1, keepdim=True).clamp(min=0)
    widest = ((high - low) / top).clamp(min=SMALLEST)
    natural = (-low / widest).round()
    best = torch.full_like(low, torch.inf)
    q_best, scale_best, zero_best = torch.zeros_like(w), widest, natural
    for number, shift in itertools.product(range(ranges), (0, -1, 1) if ranges > 1 else (0,)):
        scale = widest * (1 - 0.4 * number / ranges)
        zero = (natural + shift).clamp_(0, top)
        q = (w / scale).round_().add_(zero).clamp_(0, top)
        centred = q - zero
        weighed = centred * weigh
        norm = (centred * weighed).sum(-1, keepdim=True)
        scale = torch.where(norm > 0, (w * weighed).sum(-1, keepdim=True) / norm, scale)
        error = centred.mul_(scale).sub_(w).square_().mul_(weigh).sum(-1, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        q_best = torch.where(better, q, q_best)
        scale_best = torch.where(better, scale, scale_best)
        zero_best = torch.where(better, zero, zero_best)
    return q_best.to(torch.uint8), scale_best.squeeze(-1), zero_best.to(torch.uint8).squeeze(-1)


def _larger(scales: Tensor, before: Tensor) -> Tensor:
    """Reject a fit that made a block's scale negative or zero."""
    return torch.where(scales > 0.25 * before, scales, before)


def pack(values: Tensor, bits: int) -> Tensor:
    """uint8 [..., n] -> [..., ceil(n * bits / 8)], the earlier value in the low bits"""
    if bits == 8:
        return values
    pairs: Tensor = F.pad(values, (0, values.shape[-1] % 2)).unflatten(-1, (-1, 2))
    return pairs[..., 0] | pairs[..., 1] << 4


def _unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    if bits == 8:
        return packed
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)[..., :count]


def unpacked(blocks: Blocks) -> tuple[Tensor, Tensor]:
    """One value a byte: the weights uint8 [N, K], the zero points uint8 [N, blocks]"""
    q = _unpack(blocks.packed, blocks.bits, blocks.size).flatten(1)[:, : blocks.shape[1]]
    return q.contiguous(), _unpack(blocks.zeros, blocks.bits, blocks.scales.shape[1])


def dequantize(blocks: Blocks) -> Tensor:
    """Return the stored weights as float32 [N, K]."""
    q, zeros = unpacked(blocks)
    spread = [x.float().repeat_interleave(blocks.size, 1)[:, : q.shape[1]] for x in (zeros, blocks.scales)]
    return (q.float() - spread[0]) * spread[1]
