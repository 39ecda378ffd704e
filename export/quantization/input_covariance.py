"""Second moments of a layer's inputs, for rounding its weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

DAMPING = 0.01  # of the mean moment, added to each: inputs absent from calibration still count


class InputCovariance:
    """M [K, K], the mean of x x^T over a layer's inputs x: weight errors e change its output by  e^T M e.

    Layers with the same inputs share one instance and everything computed from it.
    """

    def __init__(self, mean: Tensor):
        self.mean = mean
        self._orders: dict[int, tuple[Tensor, Tensor]] = {}

    def diagonal(self, width: int) -> Tensor:
        """float64 [width], a little more than the covariance's diagonal, and that little beyond its width"""
        diagonal = F.pad(self.mean.diagonal().double(), (0, width - len(self.mean)))
        return diagonal + DAMPING * diagonal.mean() + 1e-12

    def damped(self, width: int) -> Tensor:
        """float32 [width, width] with that diagonal, zero beyond the covariance's width"""
        beyond = width - len(self.mean)
        M = F.pad(self.mean, (0, beyond, 0, beyond)) if beyond else self.mean.clone()
        M.diagonal().copy_(self.diagonal(width))
        return M

    def order(self, width: int) -> tuple[Tensor, Tensor]:
        """(columns [width], the largest inputs first; float32 [width, width], row k: the shares of column k's
        error that later columns in that order take over)"""
        if width not in self._orders:
            diagonal = self.diagonal(width)
            order = diagonal.argsort(descending=True)
            # one float64 matrix from here on, in LAPACK's layout, changed in place
            M = torch.empty(width, width, dtype=torch.float64).mT
            M.copy_(self.damped(width)[order][:, order])
            M.diagonal().copy_(diagonal[order])
            torch.linalg.cholesky(M, out=M)
            torch.cholesky_inverse(M, out=M)
            torch.linalg.cholesky(M, upper=True, out=M)
            self._orders[width] = order, M.float()
        return self._orders[width]
