"""HAMburger: a base LLM between a compositional embedder and a micro-step decoder.

    groups --embedder--> slot embeddings --base--> features --micro decoder--> next groups

`forward` is the training pass over whole sequences; `runtimes/torch/torch_backend.py` runs the same modules
step by step with a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamburger_edge.models.architecture.compositional_embedder import CompositionalEmbedder
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.documents import WholeDocuments
from hamburger_edge.models.architecture.llama import Base, Rotary, WholeSequence, rotary_tables
from hamburger_edge.models.architecture.micro_step_decoder import (
    MicroStepDecoder,
    micro_base_config,
    stop_head,
)

ROTARY = "", "_window"  # in names of rotary tables: of the usual rope base, and of windowed layers


@dataclass
class GroupBatch:
    """Sequences cut into groups: B rows of S slots, m = max_group_tokens.

    Merging and prediction are separate: a slot may predict more tokens than the next slot holds.
    """

    groups: Tensor  # [B, S, m] token ids each slot holds; positions beyond its size hold any valid id
    sizes: Tensor  # [B, S] tokens in each slot; 0 marks padding
    targets: Tensor  # [B, S, m] tokens that follow the slot
    target_sizes: Tensor  # [B, S] number of them to predict; 0: none
    documents: Tensor | None = None  # [B, S] number of the packed sequence that a slot belongs to

    def to(self, device: torch.device | str) -> GroupBatch:
        return self._each(lambda tensor: tensor.to(device))

    def rows(self, picked: slice) -> GroupBatch:
        return self._each(lambda tensor: tensor[picked])

    def _each(self, change: Callable[[Tensor], Tensor]) -> GroupBatch:
        return GroupBatch(
            groups=change(self.groups),
            sizes=change(self.sizes),
            targets=change(self.targets),
            target_sizes=change(self.target_sizes),
            documents=None if self.documents is None else change(self.documents),
        )


@dataclass
class GroupOutput:
    """Scores of the G groups that the predicting slots emit, under teacher forcing."""

    targets: Tensor  # [G, m] token ids
    sizes: Tensor  # [G]
    final: Tensor  # [G, d] final-normed base state, which scores token 0 (see `Base.logits`)
    micro_hidden: Tensor  # [G, m-1, d] states that score tokens 1..m-1 (see `Hamburger.micro_logits`)

    @property
    def valid(self) -> Tensor:
        """[G, m] bool: token i exists."""
        return torch.arange(self.targets.shape[1], device=self.sizes.device) < self.sizes[:, None]


def log_odds(logits: Tensor) -> Tensor:
    """[..., C] -> [...]: log of p / (1 - p) for the most probable class, at most about 14"""
    below = logits - logits.amax(-1, keepdim=True)
    others = below.exp().sum(-1, dtype=torch.float32) - 1  # (1 - p) / p
    return -others.clamp(min=1e-6).log()


def block_diagonal(documents: Tensor | None) -> Tensor | None:
    """[B, S] document numbers -> [B, 1, S, S], True where a slot may attend; None: all is one document"""
    if documents is None:
        return None
    causal = torch.ones(2 * documents.shape[1:], dtype=torch.bool, device=documents.device).tril()
    return (causal & (documents[:, :, None] == documents[:, None, :]))[:, None]


def lengths(documents: Tensor) -> list[int]:
    """[B, S] document numbers, row by row -> lengths of runs of slots of one document"""
    rows = torch.arange(documents.shape[0], device=documents.device)[:, None].expand_as(documents)
    pairs = torch.stack([rows, documents], dim=-1).flatten(0, 1)
    counts: Tensor = torch.unique_consecutive(pairs, dim=0, return_counts=True)[1]
    return counts.tolist()


class Hamburger(nn.Module):
    draft_vocab: Tensor  # [C] token id of each micro logit

    def __init__(self, config: HamburgerConfig):
        super().__init__()
        self.config = config
        base = config.base
        self.base = Base(base)
        self.embedder = CompositionalEmbedder(
            base.hidden_size, config.merger_heads, config.max_group_tokens, config.merge_residual
        )
        self.micro = MicroStepDecoder(config)
        self.stop_head = stop_head(config.stop_widths)
        # weight of the scores' evidence, by rule "after"
        evident = config.stop_rule == "after" and config.has_graft
        self.stop_evidence = nn.Parameter(torch.ones(1)) if evident else None
        self.register_buffer("draft_vocab", torch.arange(config.micro_vocab))
        self.register_rotary()

    def register_rotary(self) -> None:
        """Register the rotary constants, which are never saved; call again after building on the meta
        device."""
        decoders = {"base": self.config.base}
        if self.config.has_graft:
            decoders["micro"] = self.micro_config
        for name, decoder in decoders.items():
            for kind, pair in zip(
                ROTARY, rotary_tables(decoder, decoder.context_length).tables, strict=False
            ):
                for part, table in zip(("cos", "sin"), pair, strict=True):
                    self.register_buffer(f"{name}{kind}_{part}", table, persistent=False)

    @cached_property  # each micro step reads it
    def micro_config(self) -> BaseConfig:
        return micro_base_config(self.config)

    # -- parts that training, inference and export share ------------------------------------------

    def embed(self, groups: Tensor, sizes: Tensor) -> Tensor:
        """Token ids [N, m] with sizes [N] -> slot embeddings [N, d]"""
        slots: Tensor = self.embedder(self.base.embed(groups), sizes)
        return slots

    def rotary(self, decoder: Literal["base", "micro"]) -> Rotary:
        """Tables of every position of the base or of the micro decoder, each [positions, D/2]"""
        config = self.config.base if decoder == "base" else self.micro_config
        kinds = ROTARY[: len(config.rope_thetas)]
        pairs = ((getattr(self, f"{decoder}{k}_cos"), getattr(self, f"{decoder}{k}_sin")) for k in kinds)
        return Rotary(config, tuple(pairs))

    def base_rotary(self, positions: Tensor) -> Rotary:
        """Positions [B, S] -> tables [B, 1, S, D/2]"""
        return self.rotary("base")[positions][:, None]

    def micro_rotary(self, start: int, stop: int) -> Rotary:
        return self.rotary("micro")[None, None, start:stop]

    def micro_logits(self, hidden: Tensor) -> Tensor:
        """Micro hidden states [..., d] -> [..., micro_vocab]"""
        weight = self.base.head_weight
        if self.config.draft_vocab_size:
            weight = weight[self.draft_vocab]
        return F.linear(self.base.scored(hidden), weight)

    def stop_logits(self, hidden: Tensor, logits: Tensor | None = None) -> Tensor:
        """Hidden states [..., d] (final-normed base state, or micro state) -> [...]

        By rule "after" a micro state comes with its logits [..., C]. The log odds of their best token are
        evidence that the head need not learn to compute. Without a graft every group ends at once.
        """
        if not self.config.has_graft:
            return hidden.new_full(hidden.shape[:-1], torch.inf)
        stops: Tensor = self.stop_head(hidden).squeeze(-1)
        if self.stop_evidence is None or logits is None:
            return stops
        return stops - self.stop_evidence * log_odds(logits)

    # -- training --------------------------------------------------------------------------------------

    def positions(self, batch: GroupBatch) -> Tensor:
        """[B, S] position of every slot by the configured rule, restarting at every packed document."""
        if self.config.position_rule == "token":
            advance = batch.sizes
        else:
            advance = torch.ones_like(batch.sizes)
        ends = advance.cumsum(1)  # tokens (or slots) up to and including this one
        if batch.documents is not None:
            opens = torch.ones_like(batch.documents, dtype=torch.bool)
            opens[:, 1:] = batch.documents[:, 1:] != batch.documents[:, :-1]
            before = torch.where(opens, ends - advance, 0).cummax(1).values
            ends = ends - before
        return (ends - 1).clamp(0, self.config.base.context_length - 1)

    def teacher_forced(self, features: Tensor, tokens: Tensor) -> Tensor:
        """features [G, F, d] and each group's tokens [G, n] -> [G, n, d] states scoring tokens 1..n"""
        rows = torch.cat([features, self.base.embed(tokens).to(features.dtype)], dim=1)
        attend = WholeSequence(self.micro_config, self.micro_rotary(0, rows.shape[1]))
        states: Tensor = self.micro(rows, attend)
        return states[:, features.shape[1] :]

    def features(self, batch: GroupBatch) -> Tensor:
        """[B, S, F, d] features of every slot"""
        B, S, m = batch.groups.shape
        sizes = batch.sizes.clamp(min=1).reshape(B * S)
        slots = self.embed(batch.groups.reshape(B * S, m), sizes).unflatten(0, (B, S))
        rotary = self.base_rotary(self.positions(batch))  # [B, 1, S, D/2]
        if batch.documents is None or slots.device.type != "cpu":
            masked = WholeSequence(self.config.base, rotary, block_diagonal(batch.documents))
            read: Tensor = self.base(slots, masked, self.config.taps)
            return read
        # a CPU computes masked entries at full cost, so documents are taken out of one long row
        attend = WholeDocuments(self.config.base, rotary, lengths(batch.documents))
        read = self.base(slots.flatten(0, 1)[None], attend, self.config.taps)
        return read[0].view(B, S, *read.shape[2:])

    def score_groups(self, read: Tensor, targets: Tensor, sizes: Tensor) -> GroupOutput:
        """Features [G, F, d] and the tokens that follow [G, m] -> the scores of those tokens"""
        return GroupOutput(targets, sizes, read[:, -1], self.teacher_forced(read, targets[:, :-1]))

    def forward(self, batch: GroupBatch) -> GroupOutput:
        """Compute the training pass. Padding follows a sequence's last slot, so causal attention never sees
        it."""
        at = batch.target_sizes.nonzero(as_tuple=True)  # the G predicting slots, in row-major order
        return self.score_groups(self.features(batch)[at], batch.targets[at], batch.target_sizes[at])
