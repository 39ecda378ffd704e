"""Soft cross entropy: against several weighted tokens a row, as a base's top k probabilities are.

Written out because [N, vocab] intermediates are most of training's memory traffic: one exponential forward,
in the logits' precision, and one backward, a few rows at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hamburger_edge.models.distillation.logits import parts

ROWS_AT_ONCE = 32  # of logits in 32 bits: they stay in a processor's cache


class SoftCrossEntropy(torch.autograd.Function):
    """-sum_k weights_k * log softmax(logits)[ids_k]; the weights of each row sum to 1."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """logits [N, C]; ids, weights [N, k] -> float32 [N]"""
        normaliser, _ = _normaliser(logits)
        ctx.save_for_backward(logits, ids, weights, normaliser)
        return normaliser - (weights * logits.gather(1, ids).float()).sum(-1)

    if TYPE_CHECKING:  # torch leaves it unannotated

        @classmethod
        def apply(cls, logits: Tensor, ids: Tensor, weights: Tensor) -> Tensor: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, ids, weights, normaliser = ctx.saved_tensors
        return _slope(logits, ids, weights, normaliser, gradients[0]), None, None


class HeadCrossEntropy(torch.autograd.Function):
    """The same of hidden @ weight.T, a few rows of logits at a time: memory does not grow with N * vocab.

    The gradient of `hidden` comes with the forward pass, while the logits are there. That of `weight`, which
    is frozen unless the whole base learns, computes them again.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, ids: Tensor, weights: Tensor, learning: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """hidden [N, d], weight [vocab, d]; ids, weights [N, k]

        -> losses [N]; without gradients the logits of `ids` [N, k] and the highest of each row [N]; float32
        """
        original, head = hidden, weight
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            hidden, head = hidden.to(dtype), weight.to(dtype)
        losses, highest = (torch.empty(len(hidden), device=hidden.device) for _ in range(2))
        scores = torch.empty(ids.shape, device=hidden.device)
        normalisers, slopes = torch.empty_like(losses), torch.empty_like(hidden) if learning else None
        for here in parts(len(hidden), len(head)):
            logits = F.linear(hidden[here], head)
            normalisers[here], highest[here] = _normaliser(logits)
            scores[here] = logits.gather(1, ids[here]).float()
            losses[here] = normalisers[here] - (weights[here] * scores[here]).sum(-1)
            if slopes is not None:
                ones = torch.ones_like(losses[here])
                slopes[here] = _slope(logits, ids[here], weights[here], normalisers[here], ones) @ head
        kept = (hidden, head, ids, weights, normalisers) if weight.requires_grad else ()
        ctx.types = original.dtype, weight.dtype
        ctx.save_for_backward(slopes, *kept)
        ctx.mark_non_differentiable(scores, highest)
        return losses, scores, highest

    if TYPE_CHECKING:

        @classmethod
        def apply(
            cls, hidden: Tensor, weight: Tensor, ids: Tensor, weights: Tensor, learning: bool
        ) -> tuple[Tensor, Tensor, Tensor]: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        slopes, *kept = ctx.saved_tensors
        (gradient, *_), (of_hidden, of_weight) = gradients, ctx.types
        of_input = None if slopes is None else (slopes * gradient[:, None]).to(of_hidden)
        if not kept:
            return of_input, None, None, None, None
        hidden, head, ids, weights, normalisers = kept
        total = torch.zeros(head.shape, dtype=of_weight, device=head.device)
        for here in parts(len(hidden), len(head)):
            logits = F.linear(hidden[here], head)
            slope = _slope(logits, ids[here], weights[here], normalisers[here], gradient[here])
            total += slope.T @ hidden[here]
        return of_input, total, None, None, None


def _normaliser(logits: Tensor) -> tuple[Tensor, Tensor]:
    """[N, C] -> log of the sum of exponentials, and the highest logit; float32 [N]"""
    highest = logits.amax(-1, keepdim=True)
    sums = (logits - highest).exp_().sum(-1, dtype=torch.float32)
    top = highest.squeeze(-1).float()
    return sums.log() + top, top


def _slope(logits: Tensor, ids: Tensor, weights: Tensor, normaliser: Tensor, gradient: Tensor) -> Tensor:
    """[N, C] gradient of the logits, in their type, from that of the losses [N]"""
    slope = torch.empty_like(logits)
    rows = ROWS_AT_ONCE if logits.device.type == "cpu" else max(1, len(logits))
    for start in range(0, len(logits), rows):
        here = slice(start, start + rows)
        # in 32 bits up to the difference: bfloat16 rounds a probability above 0.94 to 1, the written
        # token's weight cancels that, and the model could never become surer
        exact = (logits[here].float() - normaliser[here, None]).exp_()
        exact.scatter_add_(1, ids[here], -weights[here])
        slope[here] = exact.mul_(gradient[here, None])
    return slope


def soft_targets(
    ids: Tensor, log_probabilities: Tensor, written: Tensor, hard: float
) -> tuple[Tensor, Tensor]:
    """The base's top k [N, k] (id -1: not a choice), mixed with the written token [N]

    -> ids, weights [N, k+1]
    """
    soft = log_probabilities.exp() * (ids >= 0)
    soft = (1 - hard) * soft / soft.sum(-1, keepdim=True).clamp(min=1e-6)
    weights = torch.cat([soft, torch.full_like(soft[:, :1], hard)], dim=1)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
    return torch.cat([ids.clamp(min=0), written[:, None]], dim=1), weights


def divergence(scores: Tensor, losses: Tensor, mixed: Tensor, top: Tensor) -> Tensor:
    """[n] KL of the model from the base's top k alone, from losses [n] on `mixed` targets and the targets'
    logits [n, k+1]"""
    normaliser = losses + (mixed * scores).sum(-1)
    log_base = top.float().log_softmax(-1)
    return (log_base.exp() * (log_base - scores[:, :-1] + normaliser[:, None])).sum(-1)


def chooses(logits: Tensor, ids: Tensor) -> Tensor:
    """[N] bool: ids [N] (-1: never) has the highest logit of [N, C]; cheaper than argmax."""
    picked = logits.gather(1, ids.clamp(min=0)[:, None]).squeeze(1)
    return (picked >= logits.amax(-1)) & (ids >= 0)
