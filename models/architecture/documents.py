"""Attention over many sequences laid end to end, as training packs them, on a CPU.

    slots       a a a b b b b c c d d d d d          S of them, in rows of a batch
    padded      a a a _ c c _ _ b b b b ...          sequences of about one length side by side

Sequences are padded to a multiple of eight slots, and those of one padded length share one product. For short
sequences, one product each took half of a training step; one masked product of all computes mostly masked
entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.llama import Rotary, in_window

MULTIPLE = 8  # slots that a padded length is a multiple of
KEPT = 256  # masks of up to so many slots are kept


class Layout:
    """Where every slot stands among the padded sequences."""

    def __init__(self, lengths: Sequence[int]):
        padded: dict[int, list[tuple[int, int]]] = {}  # padded length -> (first slot, slots) of its sequences
        first = 0
        for length in lengths:
            padded.setdefault(-(-length // MULTIPLE) * MULTIPLE, []).append((first, length))
            first += length
        self.blocks = [(len(those), length) for length, those in padded.items()]
        begins = torch.tensor([begin for those in padded.values() for begin, _ in those])
        counts = torch.tensor([count for those in padded.values() for _, count in those])
        wide = torch.tensor([length for length, those in padded.items() for _ in those])
        starts = wide.cumsum(0) - wide
        within = torch.arange(int(wide.sum())) - starts.repeat_interleave(wide)
        last = (counts - 1).repeat_interleave(wide)
        # [P] slot of every padded place; behind a sequence, its last one again
        self.slots = begins.repeat_interleave(wide) + torch.minimum(within, last)
        self.places = torch.empty(first, dtype=torch.long)  # [S] place of every slot
        real = within <= last
        self.places[self.slots[real]] = real.nonzero().squeeze(1)


class SpreadSlots(torch.autograd.Function):
    """Slots [S, w] -> padded places [P, w]. Nothing that counts looks at padding, so it has no gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return rows.index_select(0, layout.slots)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, ctx.layout.places), None

    if TYPE_CHECKING:  # torch leaves it unannotated

        @classmethod
        def apply(cls, rows: Tensor, layout: Layout) -> Tensor: ...


class Gather(torch.autograd.Function):
    """Padded places [P, w] -> slots [S, w]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return rows.index_select(0, layout.places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        [gradient] = gradients
        padded = gradient.new_zeros(len(ctx.layout.slots), gradient.shape[1])
        return padded.index_copy_(0, ctx.layout.places, gradient), None

    if TYPE_CHECKING:

        @classmethod
        def apply(cls, rows: Tensor, layout: Layout) -> Tensor: ...


def _hidden(length: int, shared: int, dtype: torch.dtype, window: int) -> Tensor:
    """[shared * L, L] minus infinity where a row may not look"""
    make = _made if length <= KEPT else _made.__wrapped__
    return make(length, shared, dtype, window)


@lru_cache(maxsize=64)
def _made(length: int, shared: int, dtype: torch.dtype, window: int) -> Tensor:
    seen = in_window(length, length, window)
    return torch.zeros(length, length, dtype=dtype).masked_fill_(~seen, -torch.inf).repeat(shared, 1)


class WholeDocuments:
    """`Attend` for sequences of these lengths, laid end to end: each attends within itself."""

    def __init__(self, config: BaseConfig, rotary: Rotary, lengths: Sequence[int]):
        self.config, self.head_dim, self.groups = config, config.head_dim, config.num_kv_heads
        pairs = (tuple(table.view(-1, 1, table.shape[-1]) for table in pair) for pair in rotary.tables)
        self.rotary = Rotary(config, tuple((cos, sin) for cos, sin in pairs))  # tables [S, 1, D/2]
        self.layout = Layout(lengths)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [1, S, H*D], key and value [1, S, K*D] -> [1, S, H*D]"""
        turned = [
            self.rotary.rotate(layer, rows[0].unflatten(-1, (-1, self.head_dim))).flatten(1)
            for rows in (query, key)
        ]
        q, k, v = (SpreadSlots.apply(rows, self.layout) for rows in (*turned, value[0]))
        mixed, begin = list[Tensor](), 0
        for count, length in self.layout.blocks:
            here = slice(begin, begin + count * length)
            window = min(self.config.window_of(layer) or length, length)
            mixed.append(self._mix(q[here], k[here], v[here], count, length, window))
            begin = here.stop
        return Gather.apply(torch.cat(mixed), self.layout)[None]

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, count: int, length: int, window: int) -> Tensor:
        """Sequences of one padded length: q [n*L, H*D], k and v [n*L, K*D] -> [n*L, H*D]; a row attends to
        the last `window` slots

        In plain products, in which query heads that share a key head are its rows: on a CPU gradients come
        through these twice as fast as through the fused kernel.
        """
        n, L, K, D, scale = count, length, self.groups, self.head_dim, self.config.score_scale
        q = q.view(n, L, K, -1, D).permute(0, 2, 3, 1, 4)  # [n, K, H/K, L, D]
        k, v = (rows.view(n, L, K, D).transpose(1, 2) for rows in (k, v))  # [n, K, L, D]
        if not q.requires_grad:
            near = None if window == L else in_window(L, L, window)
            fused = F.scaled_dot_product_attention(
                q.flatten(1, 2), k, v, near, is_causal=near is None, scale=scale, enable_gqa=True
            )
            return fused.transpose(1, 2).reshape(n * L, -1)
        shared = q.shape[2]
        scores = torch.baddbmm(
            _hidden(L, shared, q.dtype, window),
            q.reshape(n * K, shared * L, D),
            k.reshape(n * K, L, D).transpose(1, 2),
            alpha=scale,
        )
        out = torch.bmm(scores.float().softmax(-1).to(v.dtype), v.reshape(n * K, L, D))
        return out.view(n, K, shared, L, D).permute(0, 3, 1, 2, 4).reshape(n * L, -1)
