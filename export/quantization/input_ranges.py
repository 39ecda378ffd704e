"""Ranges of the inputs of a base's 8-bit products, on calibration text. Models of one task use them.

    after norms, o_proj, head    one range for all rows: the largest has 1.3 to 8 times the median row's
    down_proj                    none: rows differ by a factor of up to 2,000, so each row has its own

A product whose largest row has more than WIDEST times the median row's has none either. The head of Gemma 3
270M, tuned, reads rows of 50 and, in text without its first token, one of 1,064.

The sizes of channels decide what `folds.py` moves between a norm and its readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hamburger_edge.export.quantization.folds import READERS, Folds, exponents_of
from hamburger_edge.models.architecture.hamburger import Hamburger

HEAD = "head"  # the consumer of the base's last norm: a separate layer, or the tied embeddings
WIDEST = 10.0  # of 127 steps the median row still has a dozen
SAMPLED = 8  # rows of each call, for the median
BY_ROW = "mlp.up_proj"  # its reader, down_proj, scales each row by the row's largest magnitude


class InputRanges:
    """The largest magnitude of each channel: [K] for each name.

    The names are the sources of `READERS`, each o_proj, and `HEAD`. Channels that are scaled row by row are
    measured in units of their row's largest magnitude.
    """

    def __init__(self, model: Hamburger):
        self.model = model
        self.largest: dict[str, Tensor] = {}
        self.sampled: dict[str, list[Tensor]] = {}  # bfloat16 [SAMPLED, K], some rows; not of BY_ROW
        self.hooks = [model.base.norm.register_forward_hook(self._output_hook(HEAD))]
        for number, layer in enumerate(model.base.layers):
            listened = {source: readers[0] for source, readers in READERS.items()}
            listened["self_attn.o_proj"] = "self_attn.o_proj"
            if not model.config.base.output_norms:
                del listened[BY_ROW]
            for name, reader in listened.items():
                hook = self._input_hook(f"base.layers.{number}.{name}", by_row=name == BY_ROW)
                self.hooks.append(layer.get_submodule(reader).register_forward_pre_hook(hook))

    def _input_hook(self, name: str, *, by_row: bool) -> Callable[[nn.Module, Any], None]:
        def widen(module: nn.Module, inputs: Any) -> None:
            sizes = inputs[0].float().abs()
            if by_row:
                sizes = sizes / sizes.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
            self._widen(name, sizes)

        return widen

    def _output_hook(self, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, inputs, rows: self._widen(name, rows.float().abs())

    def _widen(self, name: str, sizes: Tensor) -> None:
        rows = sizes.flatten(0, -2)
        if not name.endswith(BY_ROW):
            evenly = ((torch.arange(SAMPLED) + 0.5) / SAMPLED * len(rows)).long()
            self.sampled.setdefault(name, []).append(rows[evenly].bfloat16())
        largest = rows.amax(0)
        before = self.largest.get(name)
        self.largest[name] = largest if before is None else torch.maximum(before, largest)

    def folds(self) -> Folds:
        """Return the scales that the channels' sizes fold into norms."""
        exponents = {}
        for name, largest in self.largest.items():
            for source, readers in READERS.items():
                if name.endswith(source):
                    layer = name.removesuffix(source)
                    weights = [self.model.get_parameter(f"{layer}{reader}.weight") for reader in readers]
                    arrays = [weight.detach().float().numpy() for weight in weights]
                    exponents[name] = exponents_of(largest.numpy(), arrays)
        return Folds(exponents)

    def by_product(self, folds: Folds) -> dict[str, float]:
        """Return the largest magnitude of each product's input after folding, by the product's path."""
        ranges: dict[str, float] = {}
        for name, largest in self.largest.items():
            if name.endswith(BY_ROW):
                continue
            top = float(folds.apply(name, largest.numpy()).max())
            if top > WIDEST * self._median(name, folds):
                continue
            if name == HEAD:
                top *= self.model.config.base.logits_scale
            source = next((source for source in READERS if name.endswith(source)), None)
            layer = name.removesuffix(source or "")
            readers = [name] if source is None else [f"{layer}{reader}" for reader in READERS[source]]
            ranges |= dict.fromkeys(readers, top)
        return ranges

    def _median(self, name: str, folds: Folds) -> float:
        """Return the largest magnitude of the median row after folding."""
        rows = torch.cat(self.sampled[name]).float().numpy()
        return float(np.median(folds.apply(name, rows).max(-1)))

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
