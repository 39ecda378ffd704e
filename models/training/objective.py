"""The loss and the metrics of one batch.

    loss = first tokens: soft cross entropy of the base's logits against the plain base's
         + micro tokens: the same for the micro decoder's
         + stop: binary cross entropy; the group should end where the micro decoder's next choice
           differs from the plain base's, also where the latter is outside the draft vocabulary
         + features: squared distance of the base's features of merged slots to the plain base's features
           of the same text, one token per slot

Soft targets are the plain base's top-k probabilities at the same position of the un-merged text, so this is
the KL to the plain base; `hard` mixes in the written token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamburger_edge.models.architecture.hamburger import GroupBatch, GroupOutput, Hamburger
from hamburger_edge.models.training.cross_entropy import (
    HeadCrossEntropy,
    SoftCrossEntropy,
    chooses,
    divergence,
    soft_targets,
)
from hamburger_edge.models.training.data.batches import TrainingBatch
from hamburger_edge.models.training.updates.lora import before_training

CONFIDENCES = 0.8, 0.9  # at which groups are measured


@dataclass(frozen=True)
class LossWeights:
    first: float = 1.0  # a group's first token; 0 skips the head over the whole vocabulary
    micro: float = 1.0  # its further tokens; 0 leaves the micro decoder and the stop head out
    stop: float = 0.5
    features: float = 0.0  # taps and final state of every slot; needs a base that learns by LoRA
    features_every: int = 1  # compare every n-th row's features: a second forward pass is expensive
    hard: float = 0.1  # share of the written token against the base's distribution
    first_every: int = 1  # score every n-th group's first token: the whole head is expensive
    micro_every: int = 1  # score every n-th group's further tokens


class Objective(nn.Module):
    """The model with its loss: one `forward` is one training step, as data-parallel wrappers need."""

    micro_index: Tensor  # [vocab] token id -> micro logit, or -1

    def __init__(self, model: Hamburger, weights: LossWeights):
        super().__init__()
        self.model, self.weights = model, weights
        vocab = model.config.base.vocab_size
        micro_index = torch.full((vocab,), -1, dtype=torch.long)
        micro_index[model.draft_vocab.cpu()] = torch.arange(len(model.draft_vocab))
        self.register_buffer("micro_index", micro_index, persistent=False)

    @contextmanager
    def weighing(self, weights: LossWeights) -> Iterator[None]:
        """Use these weights of the loss inside the block."""
        own, self.weights = self.weights, weights
        try:
            yield
        finally:
            self.weights = own

    def forward(self, batch: TrainingBatch) -> dict[str, Tensor]:
        """Return sums and counts: {"loss", and name: [sum, count] for each metric}."""
        groups, weights = batch.groups, self.weights
        features = self.model.features(groups)  # [B, S, F, d]
        at = groups.target_sizes.nonzero(as_tuple=True)  # the G predicting slots
        read, targets = features[at], groups.targets[at]
        loss: Tensor | float = 0.0
        metrics: dict[str, Tensor] = {}
        if weights.features:
            rows = slice(None, None, weights.features_every)
            distances = self.distances(features[rows], groups.rows(rows))
            metrics["features"] = summary(distances)
            loss = loss + weights.features * average(distances)
        if weights.first:
            picked = slice(None, None, weights.first_every)
            first, figures = self.first(read[picked, -1], targets[picked, 0], batch, picked)
            loss, metrics = loss + first, metrics | figures
        if weights.micro:
            some = slice(None, None, weights.micro_every)
            sizes = groups.target_sizes[at]
            out = self.model.score_groups(read[some], targets[some], sizes[some])
            micro, figures = self.micro(out, batch.groups_of(some))
            loss, metrics = loss + micro, metrics | figures
        return {"loss": torch.as_tensor(loss), **metrics}

    def distances(self, features: Tensor, groups: GroupBatch) -> Tensor:
        """[N, F] mean squared distance of every slot's features to the plain base's, relative to the plain
        base's spread"""
        real = groups.sizes > 0
        plain = self.plain_features(groups)[real].float()
        spread = plain.std(0).clamp(min=1e-3)
        return ((features[real] - plain) / spread).square().mean(-1)

    @torch.no_grad()
    def plain_features(self, groups: GroupBatch) -> Tensor:
        """[B, S, F, d] features of the base before training, one token per slot, at each slot's last token"""
        sizes = groups.sizes
        members = torch.arange(groups.groups.shape[2], device=sizes.device) < sizes[..., None]
        lengths = sizes.sum(1)  # [B] tokens
        real = torch.arange(int(lengths.max()), device=sizes.device) < lengths[:, None]  # [B, T]
        ids = torch.zeros_like(real, dtype=torch.long)
        ids[real] = groups.groups[members]  # both go row by row
        documents = None
        if groups.documents is not None:
            documents = torch.full_like(ids, -1)
            documents[real] = groups.documents.flatten().repeat_interleave(sizes.flatten())
        plain = GroupBatch(
            groups=ids[..., None],
            sizes=real.long(),
            targets=ids[..., None],
            target_sizes=torch.zeros_like(ids),
            documents=documents,
        )
        with before_training(self.model.base):
            features = self.model.features(plain)  # [B, T, F, d]
        last = (sizes.cumsum(1) - 1).clamp(min=0)  # [B, S] a slot's last token
        return features[torch.arange(len(last), device=last.device)[:, None], last]

    def first(
        self, final: Tensor, targets: Tensor, batch: TrainingBatch, picked: slice
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """final [n, d], targets [n] of the picked groups"""
        base = self.model.base
        top_ids, top = batch.top_ids[picked, 0], batch.top_log_probabilities[picked, 0]
        ids, mixed = soft_targets(top_ids, top, targets, self.weights.hard)
        hidden = base.scored(final)
        learning = torch.is_grad_enabled() and hidden.requires_grad
        losses, scores, highest = HeadCrossEntropy.apply(hidden, base.head_weight, ids, mixed, learning)
        likeliest = torch.where(top_ids[:, 0] >= 0, scores[:, 0], -torch.inf)
        metrics = {
            "first_loss": summary(losses),
            "first_kl": summary(divergence(scores, losses.detach(), mixed, top)),
            "first_agree": summary(likeliest >= highest),
        }
        return self.weights.first * average(losses), metrics

    def micro(self, out: GroupOutput, batch: TrainingBatch) -> tuple[Tensor, dict[str, Tensor]]:
        valid, judged = out.valid[:, 1:], batch.judged  # [G, m-1] token i+1 can be chosen; is judged
        scores = self.model.micro_logits(out.micro_hidden[judged])  # [J, K]
        logits = scores[valid[judged]]  # [N, K]
        top_ids = self.micro_index[batch.top_ids[:, 1:][valid]]  # [N, k] indices of micro logits
        top = batch.top_log_probabilities[:, 1:][valid]
        written = self.micro_index[out.targets[:, 1:][valid]]
        losses = SoftCrossEntropy.apply(logits, *soft_targets(top_ids, top, written, self.weights.hard))
        agree = self.right(scores.detach(), batch.top_ids[..., 0], judged)
        stops = self.stops(out, scores, judged)
        stop_losses = wrongness(stops[judged], agree[judged])
        if self.model.config.stop_rule == "after":  # the base's row decides whether to try a micro step
            attempt, known = self.model.stop_logits(out.final.detach()).float(), judged[:, 0]
            stop_losses = stop_losses + wrongness(attempt[known], agree[known, 0])
        metrics = {"micro_loss": summary(losses), "stop_loss": summary(stop_losses)}
        for i in range(judged.shape[1]):
            metrics[f"micro_agree_{i + 1}"] = summary(agree[judged[:, i], i])
        for c in CONFIDENCES:
            metrics |= accepted(stops, agree, judged, c)
        return self.weights.micro * average(losses) + self.weights.stop * stop_losses, metrics

    def stops(self, out: GroupOutput, logits: Tensor, judged: Tensor) -> Tensor:
        """[G, m-1] logits of "the group ends before token i+1"; `logits` [J, K] are those of the judged ones.

        By rule "before" they come from the state that scored token i, by "after" from token i+1's. Gradients
        stop at the head's input.
        """
        if self.model.config.stop_rule == "before":
            states = torch.cat([out.final[:, None], out.micro_hidden], dim=1)[:, :-1].detach()
            return self.model.stop_logits(states).float()
        stop_logits = self.model.stop_logits(out.micro_hidden[judged].detach(), logits.detach())
        return torch.zeros(judged.shape, device=stop_logits.device).masked_scatter(
            judged, stop_logits.float()
        )

    def stops_and_rights(self, batch: TrainingBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return stop logits, whether the next micro token is the plain base's choice, and whether it is
        judged; each [G, m-1]"""
        out, judged = self.model(batch.groups), batch.judged
        logits = self.model.micro_logits(out.micro_hidden[judged])
        return self.stops(out, logits, judged), self.right(logits, batch.top_ids[..., 0], judged), judged

    def right(self, logits: Tensor, tokens: Tensor, positions: Tensor) -> Tensor:
        """[G, m-1] bool: the judged micro `logits` [N, K] choose these tokens [G, m]; False for tokens
        outside the draft vocabulary"""
        right = torch.zeros_like(positions)
        right[positions] = chooses(logits, self.micro_index[tokens[:, 1:][positions]])
        return right


def accepted(stops: Tensor, agree: Tensor, judged: Tensor, confidence: float) -> dict[str, Tensor]:
    """Return the mean length and agreement at this confidence if every position began a group."""
    goes_on = ((1 - stops.sigmoid() >= confidence) & judged).long().cumprod(1).bool()  # [G, m-1]
    return {
        f"group_length@{confidence}": summary(1 + goes_on.sum(1)),
        f"agree@{confidence}": summary(agree[goes_on]),
    }


def wrongness(stops: Tensor, agree: Tensor) -> Tensor:
    """Return the mean binary cross entropy of stop logits [n] against "that choice is wrong" [n]."""
    wrong = 1 - agree.float()
    return F.binary_cross_entropy_with_logits(stops, wrong, reduction="sum") / max(len(stops), 1)


def average(values: Tensor) -> Tensor:
    """Return the mean; 0 of nothing: a batch of long prompts may hold no answer."""
    return values.sum() / max(values.numel(), 1)


def summary(values: Tensor) -> Tensor:
    """Return [sum, count], which adds up over batches and processes."""
    values = values.detach().float()
    return torch.stack([values.sum(), torch.tensor(float(values.numel()), device=values.device)])
