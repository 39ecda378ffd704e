"""Block quantization to the layout of MatMulNBits and GatherBlockQuantized.

A row of K weights is cut into blocks of `size`; a weight is  scale * (q - zero)  with q of 4 or 8 bits, and
scale and zero of its block. What is free is how scale and zero are chosen: here, by least squares.

    for the range [low, high] of the block, shrunk more and more, and for zero points next to the natural one:
        scale = (high - low) / top,  zero = round(-low / scale),  q = round(w / scale) + zero, clipped
        scale <- <w, q - zero> / <q - zero, q - zero>      the best scale for these q
        keep the trial with the smallest squared error

With the moments M of the layer's inputs (see calibration.py) errors are weighed by the diagonal of M, and
columns are rounded one after the other, each passing its error on to those that follow, in the proportion
that leaves the layer's output nearest to what it was (GPTQ, arXiv 2210.17323).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

AT_ONCE = 1 << 18  # weights in flight: they stay in the cache
DAMPING = 0.01  # of the mean moment, added to each: inputs that calibration never saw still count


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
    weight: Tensor, bits: int, size: int, *, moments: Tensor | None = None, ranges: int | None = None
) -> Blocks:
    """Least squares over so many `ranges` (1: plain minimum to maximum); with `moments` [K, K], GPTQ."""
    N, K = weight.shape
    blocks = -(-K // size)
    padded = F.pad(weight.detach().float(), (0, blocks * size - K))
    ranges = ranges or (8 if bits == 4 else 1)
    if moments is None:
        parts = [_fit(part, bits, ranges) for part in padded.reshape(-1, size).split(AT_ONCE // size)]
        q, scales, zeros = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    else:
        q, scales, zeros = _compensate(padded, moments, bits, size, ranges)
    return Blocks(
        bits,
        size,
        (N, K),
        packed=_pack(q.reshape(N, blocks, size), bits),
        scales=scales.reshape(N, blocks),
        zeros=_pack(zeros.reshape(N, blocks), bits),
    )


def _fit(w: Tensor, bits: int, ranges: int, weigh: Tensor | float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks w [n, size] -> q uint8 [n, size], scales [n], zeros uint8 [n]; `weigh` [size] are importances"""
    top = 2**bits - 1
    low, high = w.amin(1, keepdim=True).clamp(max=0), w.amax(1, keepdim=True).clamp(min=0)
    widest = ((high - low) / top).clamp(min=1e-30)
    natural = (-low / widest).round()
    best = torch.full_like(low, torch.inf)
    q_best, scale_best, zero_best = torch.zeros_like(w), widest, natural
    for number, shift in itertools.product(range(ranges), (0, -1, 1) if ranges > 1 else (0,)):
        scale = widest * (1 - 0.4 * number / ranges)
        zero = (natural + shift).clamp_(0, top)
        q = (w / scale).round_().add_(zero).clamp_(0, top)
        centred = q - zero
        weighed = centred * weigh
        norm = (centred * weighed).sum(1, keepdim=True)
        scale = torch.where(norm > 0, (w * weighed).sum(1, keepdim=True) / norm, scale)
        error = centred.mul_(scale).sub_(w).square_().mul_(weigh).sum(1, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        q_best = torch.where(better, q, q_best)
        scale_best = torch.where(better, scale, scale_best)
        zero_best = torch.where(better, zero, zero_best)
    return q_best.to(torch.uint8), scale_best.squeeze(1), zero_best.to(torch.uint8).squeeze(1)


def _compensate(
    w: Tensor, moments: Tensor, bits: int, size: int, ranges: int
) -> tuple[Tensor, Tensor, Tensor]:
    """w [N, K'] (padded) -> q uint8 [N, K'], scales and zeros [N, blocks]"""
    K, top = w.shape[1], 2**bits - 1
    M = torch.zeros(K, K, dtype=torch.float64)
    M[: len(moments), : len(moments)] = moments
    M.diagonal().add_(DAMPING * M.diagonal().mean() + 1e-12)
    importance = (M.diagonal() / M.diagonal().mean()).float()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(M))
    # row k: how column k's error is shared out among the columns after it, given those before are fixed
    share = torch.linalg.cholesky(inverse, upper=True).float()
    w, q = w.clone(), torch.zeros_like(w, dtype=torch.uint8)
    scales, zeros = [], []
    for start in range(0, K, size):
        stop = start + size
        block, errors = w[:, start:stop].clone(), torch.empty_like(w[:, start:stop])
        _, scale, zero = _fit(block, bits, ranges, importance[start:stop])
        for i in range(size):
            value = block[:, i]
            level = (value / scale).round_().add_(zero).clamp_(0, top)
            q[:, start + i] = level.to(torch.uint8)
            errors[:, i] = (value - (level - zero) * scale) / share[start + i, start + i]
            block[:, i + 1 :] -= errors[:, i : i + 1] * share[start + i, start + i + 1 : stop]
        w[:, stop:] -= errors @ share[start:stop, stop:]
        scales.append(scale)
        zeros.append(zero)
    return q, torch.stack(scales, dim=1), torch.stack(zeros, dim=1)


def _pack(values: Tensor, bits: int) -> Tensor:
    """uint8 [..., n] -> [..., ceil(n * bits / 8)], the earlier value in the low bits"""
    if bits == 8:
        return values
    pairs = F.pad(values, (0, values.shape[-1] % 2)).unflatten(-1, (-1, 2))
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
    """The weights that the stored bits stand for, float32 [N, K]."""
    q, zeros = unpacked(blocks)
    each = [x.float().repeat_interleave(blocks.size, 1)[:, : q.shape[1]] for x in (zeros, blocks.scales)]
    return (q.float() - each[0]) * each[1]
