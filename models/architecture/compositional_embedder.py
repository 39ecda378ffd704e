"""The compositional embedder: a group of tokens becomes one embedding and thus one KV slot."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CompositionalEmbedder(nn.Module):
    """Cross attention with one query, the mean of the group, over its tokens and their positions in it.

        E [m, d] -----> mean --Wq--> query ----+
        [E ; P] [m, 1.5 d] --Wk, Wv--> m keys -+-> softmax over the group --Wo--> + residual = slot

    The residual is the mean again, or the embedding of the group's last token. A group of one token keeps its
    token's embedding. If there are no longer ones, nothing here has weights.
    """

    def __init__(
        self, hidden_size: int, heads: int, max_group_tokens: int, residual: Literal["mean", "last"] = "mean"
    ):
        super().__init__()
        wide = hidden_size + hidden_size // 2
        self.heads, self.residual = heads, residual
        if max_group_tokens == 1:
            return
        self.places = nn.Parameter(
            torch.zeros(max_group_tokens, hidden_size // 2)
        )  # P; named so in checkpoints
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(wide, hidden_size)
        self.value = nn.Linear(wide, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def merge(self, embeddings: Tensor, sizes: Tensor | None = None) -> Tensor:
        """embeddings [N, m, d], of which the first sizes [N] of each row count (None: all) -> [N, d]"""
        if sizes is None:
            mask, mean, last = None, embeddings.mean(1), embeddings[:, -1]  # [N, d]
        else:
            members = torch.arange(embeddings.shape[1], device=sizes.device) < sizes[:, None]  # [N, m]
            mask = members[:, None, None]
            masked = embeddings * members[..., None].to(embeddings.dtype)
            mean = masked.sum(1) / sizes[:, None].to(embeddings.dtype)
            last = embeddings[torch.arange(len(sizes), device=sizes.device), sizes - 1]
        places = self.places[: embeddings.shape[1]].expand(embeddings.shape[0], -1, -1)
        pairs = torch.cat([embeddings, places.to(embeddings.dtype)], dim=-1)  # [N, m, 1.5 d]
        query = self.query(mean).unflatten(-1, (self.heads, 1, -1))  # [N, h, 1, d/h]
        key = self.key(pairs).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [N, h, m, d/h]
        value = self.value(pairs).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        residual = mean if self.residual == "mean" else last
        merged: Tensor = residual + self.output(mixed.flatten(1))
        return merged

    def forward(self, embeddings: Tensor, sizes: Tensor) -> Tensor:
        """embeddings [N, m, d], sizes [N] in 1..m -> [N, d]; only groups of two or more tokens are merged."""
        slots = embeddings[:, 0]
        merged = (sizes > 1).nonzero().squeeze(1)
        if merged.numel() == 0:
            return slots
        return slots.index_copy(0, merged, self.merge(embeddings[merged], sizes[merged]).to(slots.dtype))
