"""Ranges of the inputs of a base's products, for `folds.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hamburger_edge.export.quantization.folds import READERS, Folds, exponents_of
from hamburger_edge.models.architecture.hamburger import Hamburger


class NormRanges:
    """The largest magnitude of each channel. A text's first token is left out: it has a call of its own."""

    def __init__(self, model: Hamburger):
        self.model = model
        self.largest: dict[str, Tensor] = {}
        self.hooks = []
        for number, layer in enumerate(model.base.layers):
            for source, (reader, *_) in READERS.items():
                if source != "mlp.up_proj" or model.config.base.output_norms:
                    listen = self._hook(f"base.layers.{number}.{source}")
                    self.hooks.append(layer.get_submodule(reader).register_forward_pre_hook(listen))

    def _hook(self, norm: str) -> Callable[[nn.Module, Any], None]:
        def widen(module: nn.Module, inputs: Any) -> None:
            rows: Tensor = inputs[0]
            if rows.shape[1] > 1:
                found = rows[:, 1:].float().abs().amax((0, 1))
                before = self.largest.get(norm)
                self.largest[norm] = found if before is None else torch.maximum(before, found)

        return widen

    def folds(self) -> Folds:
        """End listening: a copy of the model would take the hooks along."""
        self.close()
        found = {}
        for norm, largest in self.largest.items():
            kind = next(source for source in READERS if norm.endswith(source))
            layer = norm.removesuffix(f".{kind}")
            weights = [self.model.get_parameter(f"{layer}.{reader}.weight") for reader in READERS[kind]]
            arrays = [weight.detach().float().numpy() for weight in weights]
            found[norm] = exponents_of(largest.numpy(), arrays)
        return Folds(found)

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
