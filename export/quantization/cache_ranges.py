"""Ranges of an 8-bit cache, one per channel; values beyond are clipped.

They have no headroom: a coarser step costs more on usual text than it saves elsewhere
(docs/research/quantization.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import DecoderLayer


class CacheRanges:
    """The largest magnitude of each channel of the base's keys and values.

    A rotation turns a pair of key channels (i, i + D/2) by an angle that depends on the position. The pair's
    length is constant, so it is both channels' magnitude at every position.
    """

    def __init__(self, model: Hamburger):
        self.largest: dict[str, Tensor] = {}
        self.head_dim = model.config.base.head_dim
        self.hooks = []
        for number, layer in enumerate(model.base.layers):
            assert isinstance(layer, DecoderLayer)
            attention = layer.self_attn
            keys = attention.k_proj if attention.k_norm is None else attention.k_norm
            self.hooks.append(keys.register_forward_hook(self._hook(f"key_scale.{number}", pairs=True)))
            values = self._hook(f"value_scale.{number}", pairs=False)
            self.hooks.append(attention.v_proj.register_forward_hook(values))

    def _hook(self, name: str, *, pairs: bool) -> Callable[[nn.Module, Any, Tensor], None]:
        def widen(module: nn.Module, inputs: Any, rows: Tensor) -> None:
            heads = rows.float().flatten(2).unflatten(-1, (-1, self.head_dim))  # [B, S, K, D]
            if pairs:
                lengths = heads.unflatten(-1, (2, -1)).square().sum(-2).sqrt()
                heads = torch.cat([lengths, lengths], dim=-1)
            largest = heads.abs().amax((0, 1)).flatten()
            before = self.largest.get(name)
            self.largest[name] = largest if before is None else torch.maximum(before, largest)

        return widen

    def scales(self) -> dict[str, Tensor]:
        return {name: largest.clamp(min=1e-6) / 127 for name, largest in self.largest.items()}

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
