"""A decoder of the Llama family for training, inference and export.

`forward` takes the attention as a function. So training (whole sequences), inference (a preallocated cache)
and export (fused or portable ONNX operators) run the same layers with the same weights. Parameter names
follow Hugging Face's.

Shapes: B batch, S rows of this call, d hidden_size, H heads, K key/value heads, D head_dim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.rotary import frequencies, rotary_arrays

# (layer, query [B, S, H*D], key [B, S, K*D], value [B, S, K*D]), unrotated -> [B, S, H*D]
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def inverse_frequencies(config: BaseConfig) -> Tensor:
    """float64 [D/2] rotations per position, in radians"""
    return torch.from_numpy(frequencies(config))


def rotary_tables(config: BaseConfig, positions: int) -> Rotary:
    """Cosines and sines of every rope base, each [positions, D/2], float32."""
    numbers = range(len(config.rope_thetas))
    arrays = [rotary_arrays(config, positions, number) for number in numbers]
    return Rotary(config, tuple((torch.from_numpy(cos), torch.from_numpy(sin)) for cos, sin in arrays))


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines of each of a base's rope bases. Indexing indexes every table."""

    config: BaseConfig
    tables: tuple[tuple[Tensor, Tensor], ...]  # in the order of `config.rope_thetas`

    def __getitem__(self, index: Any) -> Rotary:
        return Rotary(self.config, tuple((cos[index], sin[index]) for cos, sin in self.tables))

    def to(self, device: torch.device) -> Rotary:
        return Rotary(self.config, tuple((cos.to(device), sin.to(device)) for cos, sin in self.tables))

    def of(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Return a layer's cosines and sines; None: it does not rotate."""
        number = self.config.rotation_of(layer)
        return None if number is None else self.tables[number]

    def rotate(self, layer: int, x: Tensor) -> Tensor:
        """Rotate x [B, n, S, D] by tables [B or 1, 1, S, D/2], as this layer does."""
        tables = self.of(layer)
        return x if tables is None else rotate(x, *tables)


def in_window(rows: int, total: int, window: int, device: torch.device | None = None) -> Tensor:
    """[rows, total] bool: the last `rows` of `total` slots attend to themselves and the window before."""
    row = torch.arange(total - rows, total, device=device)[:, None]
    column = torch.arange(total, device=device)
    return (column <= row) & (column > row - window)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the half-split pairs of x [B, n, S, D] by cos, sin [B or 1, 1, S, D/2]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, S, n*D] -> [B, n, S, D]"""
    heads: Tensor = x.unflatten(-1, (-1, head_dim))
    return heads.transpose(1, 2)


def without_cudnn_attention() -> None:
    """Disable cuDNN's attention: it plans every new shape, and our shapes rarely repeat."""
    torch.backends.cuda.enable_cudnn_sdp(False)


class WholeSequence:
    """Attention over the rows of this call only: training, and the uncached reference.

    `rotary` has tables [B or 1, 1, S, D/2]. `mask` is boolean, broadcastable to [B, 1, S, S], True where row
    may look at column; None is causal. Layers with a window attend to its slots only.
    """

    def __init__(self, config: BaseConfig, rotary: Rotary, mask: Tensor | None = None):
        self.config, self.head_dim = config, config.head_dim
        self.shared = config.num_heads // config.num_kv_heads
        self.rotary, self.mask = rotary, mask
        self.windowed: Tensor | None = None  # the mask of layers with a window, once one has run

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = self.rotary.rotate(layer, split_heads(query, self.head_dim))
        k = self.rotary.rotate(layer, split_heads(key, self.head_dim))
        v = split_heads(value, self.head_dim)
        return self.attend(layer, q, k, v)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [B, H, S, D], k and v [B, K, total, D] -> [B, S, H*D]"""
        mask, scale = self.mask_of(layer, q.shape[2], k.shape[2], q.device), self.config.score_scale
        if q.requires_grad and q.device.type == "cpu" and mask is None:
            return spelled_out(q, k, v, scale).transpose(1, 2).flatten(2)
        k = k.repeat_interleave(self.shared, dim=1)
        v = v.repeat_interleave(self.shared, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
        return out.transpose(1, 2).flatten(2)

    def mask_of(self, layer: int, rows: int, total: int, device: torch.device) -> Tensor | None:
        window = self.config.window_of(layer)
        if window is None or total <= window:
            return self.mask
        if self.windowed is None:
            near = in_window(rows, total, window, device)
            self.windowed = near if self.mask is None else self.mask & near
        return self.windowed


def spelled_out(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Causal attention in plain products [B, H, S, D], whose gradients are twice as fast on a CPU as the
    fused kernel's. Query heads that share a key head become its rows.
    """
    B, H, S, D = q.shape
    rows = q.reshape(B * k.shape[1], -1, D)  # [B*K, H/K*S, D]
    scores = torch.bmm(rows, k.flatten(0, 1).transpose(1, 2)).float().mul_(scale)
    hidden = torch.ones(S, S, dtype=torch.bool).triu(1).repeat(H // k.shape[1], 1)
    shares = scores.masked_fill_(hidden, -torch.inf).softmax(-1).to(v.dtype)
    return torch.bmm(shares, v.flatten(0, 1)).view(B, H, S, D)


class KVCache:
    """Preallocated keys and values, each [layers, K, capacity, D]; one entry is one slot. Batch 1."""

    def __init__(self, config: BaseConfig, layers: int, capacity: int):
        shape = (layers, config.num_kv_heads, capacity, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.used = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]


class Cached(WholeSequence):
    """Attention over the cache and the rows of this call, which it appends to the cache.

    The caller advances `cache.used` once all layers have run.
    """

    def __init__(self, config: BaseConfig, rotary: Rotary, cache: KVCache, rows: int):
        total = cache.used + rows
        super().__init__(config, rotary, in_window(rows, total, total))  # [S, total]
        self.cache, self.start, self.stop = cache, cache.used, total

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = self.rotary.rotate(layer, split_heads(query, self.head_dim))
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[:, self.start : self.stop] = self.rotary.rotate(layer, split_heads(key, self.head_dim))[0]
        values[:, self.start : self.stop] = split_heads(value, self.head_dim)[0]
        return self.attend(layer, q, keys[None, :, : self.stop], values[None, :, : self.stop])


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Projection(nn.Linear):
    """A linear layer whose weight may have fewer bits than its input: each product widens it."""

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.element_size() < x.element_size():
            return F.linear(x, self.weight.to(x.dtype), self.bias)
        return super().forward(x)


class SelfAttention(nn.Module):
    def __init__(self, config: BaseConfig, layer: int):
        super().__init__()
        d, D, bias = config.hidden_size, config.head_dim, config.qkv_bias
        self.layer, self.head_dim = layer, D
        self.q_proj = Projection(d, config.num_heads * D, bias=bias)
        self.k_proj = Projection(d, config.num_kv_heads * D, bias=bias)
        self.v_proj = Projection(d, config.num_kv_heads * D, bias=bias)
        self.o_proj = Projection(config.num_heads * D, d, bias=False)
        self.packed: nn.Module | None = None  # for an export: one product instead of the first three
        self.q_norm = RMSNorm(D, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(D, config.rms_norm_eps) if config.qk_norm else None

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        if self.packed is None:
            query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        else:
            query, key, value = self.packed(x)
        if self.q_norm is not None and self.k_norm is not None:
            query = self.q_norm(query.unflatten(-1, (-1, self.head_dim))).flatten(-2)
            key = self.k_norm(key.unflatten(-1, (-1, self.head_dim))).flatten(-2)
        out: Tensor = self.o_proj(attend(self.layer, query, key, value))
        return out


class FeedForward(nn.Module):
    def __init__(self, config: BaseConfig):
        super().__init__()
        d, wide = config.hidden_size, config.intermediate_size
        self.gate_proj = Projection(d, wide, bias=False)
        self.up_proj = Projection(d, wide, bias=False)
        self.down_proj = Projection(wide, d, bias=False)
        self.gelu = config.activation == "gelu_tanh"
        self.packed: nn.Module | None = None  # for an export: one product instead of the first two

    def forward(self, x: Tensor) -> Tensor:
        gate, up = (self.gate_proj(x), self.up_proj(x)) if self.packed is None else self.packed(x)
        opened = F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)
        out: Tensor = self.down_proj(opened * up)
        return out


class DecoderLayer(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)). `layer` is its number in `attend`'s cache.

    The output of a block may have a norm and a scale.
    """

    def __init__(self, config: BaseConfig, layer: int):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)
        self.scale = config.residual_scale
        self.attention_output_norm = self.feed_forward_output_norm = None
        if config.output_norms:
            self.attention_output_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.feed_forward_output_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        return self.after_attention(x, self.self_attn(self.input_layernorm(x), attend))

    def after_attention(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The layer's input and its attention's output, both [B, R, d] -> the layer's output"""
        x = self._add(x, mixed, self.attention_output_norm)
        return self._add(x, self.mlp(self.post_attention_layernorm(x)), self.feed_forward_output_norm)

    def _add(self, x: Tensor, change: Tensor, norm: nn.Module | None) -> Tensor:
        change = change if norm is None else norm(change)
        return x + (change if self.scale == 1 else change * self.scale)


class Base(nn.Module):
    """The base LLM, run on embeddings."""

    def __init__(self, config: BaseConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = (
            None if config.tied_head else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )

    @property
    def head_weight(self) -> Tensor:
        """[vocab, d] rows that turn a hidden state into logits."""
        return self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [...] -> embeddings [..., d]"""
        rows: Tensor = self.embed_tokens(tokens)
        return rows if self.config.embedding_scale == 1 else rows * self.config.embedding_scale

    def scored(self, hidden: Tensor) -> Tensor:
        """Return states [..., d] as the head takes them: with the logits' scale."""
        return hidden if self.config.logits_scale == 1 else hidden * self.config.logits_scale

    def logits(self, hidden: Tensor) -> Tensor:
        """Final-normed states [..., d] -> [..., vocab]"""
        return F.linear(self.scored(hidden), self.head_weight)

    def forward(
        self, embeddings: Tensor, attend: Attend, taps: tuple[int, ...] = (), rows: Tensor | None = None
    ) -> Tensor:
        """Embeddings [B, S, d] -> features [B, R, F, d]: the taps' outputs, then the final-normed state.

        `rows` [R] picks the positions to read out; None reads all of them.
        """
        x = embeddings
        tapped = []
        for number, layer in enumerate(self.layers):
            x = layer(x, attend)
            if number in taps:
                tapped.append(x if rows is None else x.index_select(1, rows))
        x = self.norm(x if rows is None else x.index_select(1, rows))
        return torch.stack([*tapped, x], dim=2)
