"""Round weights so that a layer's output changes little, given the covariance of its inputs.

rounded   columns one after the other, the largest inputs first; later columns take over each one's error
refitted  all scales and minima of a row together, by least squares
"""

from __future__ import annotations

import torch
from torch import Tensor

from hamburger_edge.export.quantization.input_covariance import DAMPING, InputCovariance

COLUMNS = 16  # columns that a column's error changes immediately
COLUMNS_AT_ONCE = 128  # columns that the errors of COLUMNS change together; later columns follow
FACTORS_AT_ONCE = 1 << 20  # entries of the matrices in the fit of scales and minima


def rounded(w: Tensor, scales: Tensor, minima: Tensor, bits: int, covariance: InputCovariance) -> Tensor:
    """w [N, K'] (padded to whole blocks) -> q uint8 [N, K'] of  scales * q + minima  [N, blocks]"""
    order, share = covariance.order(w.shape[1])
    K, top = w.shape[1], 2**bits - 1
    block_of = (order // (K // scales.shape[1])).tolist()
    own_share = share.diagonal().tolist()
    columns, scales, minima = w.T[order], scales.T.contiguous(), minima.T.contiguous()  # [K', N], [blocks, N]
    q = torch.empty(columns.shape, dtype=torch.uint8)
    for start in range(0, K, COLUMNS_AT_ONCE):
        stop = min(start + COLUMNS_AT_ONCE, K)
        errors = torch.empty_like(columns[start:stop])
        for first in range(start, stop, COLUMNS):
            last = min(first + COLUMNS, stop)
            for k in range(first, last):
                scale, above = scales[block_of[k]], columns[k] - minima[block_of[k]]
                level = (above / scale).round_().clamp_(0, top)
                q[k] = level
                error = errors[k - start]
                torch.addcmul(above, level, scale, value=-1, out=error).div_(own_share[k])
                columns[k + 1 : last].addr_(share[k, k + 1 : last], error, alpha=-1)
            own = errors[first - start : last - start]
            columns[last:stop].addmm_(share[first:last, last:stop].T, own, alpha=-1)
        columns[stop:].addmm_(share[start:stop, stop:].T, errors, alpha=-1)
    return q[order.argsort()].T.contiguous()


def refitted(
    w: Tensor,
    levels: Tensor,
    scales: Tensor,
    covariance: InputCovariance,
    minima: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Fit the factors of  scales * levels  or  scales * levels + minima  to the layer's output, row by row.

    w [N, K'] (padded to whole blocks); levels [N, blocks, size]; factors so far, each [N, blocks].
    Directions that the covariance does not determine keep their factors.
    """
    N, blocks, size = levels.shape
    M = covariance.damped(blocks * size)
    summed = M.unflatten(1, (blocks, size)).sum(-1)  # [K', blocks]
    kinds = 1 if minima is None else 2
    at_once = max(1, FACTORS_AT_ONCE // (kinds * blocks) ** 2)
    fitted = []
    for start in range(0, N, at_once):
        part = slice(start, start + at_once)
        rounded = levels[part].float()
        wanted = (w[part] @ M).unflatten(1, (blocks, size))
        normal = torch.zeros(len(rounded), kinds * blocks, kinds * blocks, dtype=torch.float64)
        for b in range(blocks):
            rows = slice(b * size, (b + 1) * size)  # the lower triangle is all that the solution reads
            moved = (rounded[:, b] @ M[rows, : (b + 1) * size]).unflatten(1, (b + 1, size))
            normal[:, b, : b + 1] = moved.mul_(rounded[:, : b + 1]).sum(-1)
            if kinds == 2:
                normal[:, blocks:, b] = rounded[:, b] @ summed[rows]
        targets, before = [(wanted * rounded).sum(-1)], [scales[part]]
        if minima is not None:
            normal[:, blocks:, blocks:] = summed.unflatten(0, (blocks, size)).sum(1)
            targets.append(wanted.sum(-1))
            before.append(minima[part])
        kept = torch.cat(before, dim=1).double()
        held = DAMPING * normal.diagonal(dim1=1, dim2=2) + 1e-12
        target = torch.cat(targets, dim=1).double() + held * kept
        normal.diagonal(dim1=1, dim2=2).add_(held)
        factor, failed = torch.linalg.cholesky_ex(normal)
        solved = torch.cholesky_solve(target[..., None], factor)[..., 0]
        fitted.append(torch.where(failed[:, None] == 0, solved, kept).float())
    whole = torch.cat(fitted)
    return whole[:, :blocks], None if minima is None else whole[:, blocks:]
