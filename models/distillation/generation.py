"""Batched generation by the plain base: many conversations together, for training data.

Each row of the batch is a conversation of any length. Given tokens (templates, prompts) and chosen tokens go
through the same one-token steps. Rows start from a shared prefix and leave when done, so the batch stays full
without prefills.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hamburger_edge.models.architecture.llama import (
    Base,
    Rotary,
    WholeSequence,
    rotary_tables,
    split_heads,
    without_cudnn_attention,
)


class BatchCache:
    """Keys and values, [B, K, capacity, D] per layer, and the used entries of each row."""

    def __init__(self, base: Base, rows: int, capacity: int, dtype: torch.dtype, device: torch.device):
        config = base.config
        shape = (rows, config.num_kv_heads, capacity, config.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in base.layers]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in base.layers]
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)

    def keep_rows(self, rows: list[int]) -> None:
        """Drop all other rows."""
        index = torch.tensor(rows, dtype=torch.long, device=self.lengths.device)
        for layer in range(len(self.keys)):  # one after another, to hold little twice
            self.keys[layer] = self.keys[layer][index]
            self.values[layer] = self.values[layer][index]
        self.lengths = self.lengths[index]


class BatchStep:
    """Attention of one new token per row over that row's entries (see `llama.Attend`)."""

    def __init__(self, base: Base, rotary: Rotary, cache: BatchCache):
        self.cache, self.config, self.head_dim = cache, base.config, base.config.head_dim
        self.kv_heads = base.config.num_kv_heads
        device = cache.lengths.device
        self.rows = torch.arange(cache.lengths.shape[0], device=device)
        self.rotary = rotary[cache.lengths][:, None, None]
        self.longest = int(cache.lengths.max()) + 1
        columns, newest = torch.arange(self.longest, device=device), cache.lengths[:, None]
        self.mask = (columns <= newest)[:, None, None]  # [B, 1, 1, longest]
        window = base.config.window or self.longest
        self.windowed = self.mask & (columns > newest - window)[:, None, None]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        cache = self.cache
        q = self.rotary.rotate(layer, split_heads(query, self.head_dim))  # [B, H, 1, D]
        k = self.rotary.rotate(layer, split_heads(key, self.head_dim))[:, :, 0]
        cache.keys[layer][self.rows, :, cache.lengths] = k
        cache.values[layer][self.rows, :, cache.lengths] = split_heads(value, self.head_dim)[:, :, 0]
        # query heads that share a key head become its query rows: no copies of the cache
        q = q.reshape(q.shape[0], self.kv_heads, -1, self.head_dim)
        keys, values = cache.keys[layer][:, :, : self.longest], cache.values[layer][:, :, : self.longest]
        mask = self.mask if self.config.window_of(layer) is None else self.windowed
        scale = self.config.score_scale
        return F.scaled_dot_product_attention(q, keys, values, mask, scale=scale).reshape(query.shape)


class BatchGenerator:
    """One token per row and call. Weights in `dtype`; final norm and head in float32 for exact logits."""

    def __init__(self, base: Base, capacity: int, dtype: torch.dtype = torch.bfloat16):
        without_cudnn_attention()
        self.base = base.eval()
        device = base.embed_tokens.weight.device
        self.head = base.head_weight.detach().float()
        self.norm = base.norm.weight.detach().float()
        self.layers = base.layers.to(dtype)
        self.dtype = dtype
        self.capacity = min(capacity, base.config.context_length)
        self.rotary = rotary_tables(base.config, self.capacity).to(device)

    def reset(self, rows: int) -> None:
        """Restart with this many rows, none of them open."""
        vars(self).pop("cache", None)  # before the new one: each may be most of a GPU's memory
        self.cache = BatchCache(self.base, rows, self.capacity, self.dtype, self.base.norm.weight.device)

    @torch.inference_mode()
    def set_prefix(self, tokens: list[int]) -> None:
        """Compute the prefix of every row once; it may be empty."""
        self.prefix: list[tuple[Tensor, Tensor]] = []
        if not tokens:
            return
        ids = torch.tensor([tokens], dtype=torch.long, device=self.head.device)
        keep = _Recording(self.base.config, self.rotary[None, None, : len(tokens)])
        x = self.base.embed(ids).to(self.dtype)
        for layer in self.layers:
            x = layer(x, keep)
        self.prefix = keep.entries

    @torch.inference_mode()
    def open_row(self, row: int) -> None:
        """Begin a new conversation in this row, at the prefix."""
        for layer, (key, value) in enumerate(self.prefix):
            self.cache.keys[layer][row, :, : key.shape[1]] = key
            self.cache.values[layer][row, :, : value.shape[1]] = value
        self.cache.lengths[row] = self.prefix[0][0].shape[1] if self.prefix else 0

    @torch.inference_mode()
    def keep_rows(self, rows: list[int]) -> None:
        """Drop all other rows, if no more conversation will start."""
        self.cache.keep_rows(rows)

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """Feed one token per row [B] -> float32 logits [B, vocab] of the next."""
        self.cache.lengths.clamp_(max=self.capacity - 1)  # finished rows stay at their end
        attend = BatchStep(self.base, self.rotary, self.cache)
        x = self.base.embed(tokens[:, None].to(self.head.device)).to(self.dtype)
        for layer in self.layers:
            x = layer(x, attend)
        self.cache.lengths += 1
        hidden = F.rms_norm(x[:, 0].float(), self.norm.shape, self.norm, self.base.config.rms_norm_eps)
        return F.linear(self.base.scored(hidden), self.head)


class _Recording(WholeSequence):
    """Whole-sequence attention that keeps every layer's keys and values, [K, S, D] each."""

    entries: list[tuple[Tensor, Tensor]]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if layer == 0:
            self.entries = []
        rotated = self.rotary.rotate(layer, split_heads(key, self.head_dim))
        self.entries.append((rotated[0], split_heads(value, self.head_dim)[0]))
        return super().__call__(layer, query, key, value)
