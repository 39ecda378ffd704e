"""8-bit weights of fused graphs: int8, one scale an output (`int8_columns.py`).

    ColumnForm   linear layers and heads: DynamicQuantizeMatMul, which rounds what it is fed to 8 bits itself
    TableForm    token embeddings: rows are picked, and multiplied by their scales

Each remembers which weights it was made of, so that it can be made again without PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hamburger_edge.export.quantization.int8_columns import (
    Origin,
    quantize_columns,
    quantize_table,
    tile_widths,
)
from hamburger_edge.export.quantization.weight_forms import Form, symbolic


class ColumnForm(Form):
    """A linear layer or head; `tile_widths` cuts a wide one into several products."""

    looks_up = False

    def __init__(self, tiles: Sequence[tuple[Tensor, Tensor]], origins: tuple[Origin, ...]):
        """Tiles of values int8 [K, n] and scales float32 [n]."""
        super().__init__()
        self.count, self.origins = len(tiles), origins
        for number, (values, scales) in enumerate(tiles):
            self.register_buffer(f"values_{number}", values)
            self.register_buffer(f"scales_{number}", scales)
        self.shape = sum(len(scales) for _, scales in tiles), len(tiles[0][0])

    @classmethod
    def of(cls, weight: Tensor, origin: Origin) -> ColumnForm:
        values, scales = map(torch.from_numpy, quantize_columns(weight.detach().float().numpy()))
        return cls(_cut(values, scales), (origin,))

    @property
    def tiles(self) -> list[tuple[Tensor, Tensor]]:
        return [(getattr(self, f"values_{n}"), getattr(self, f"scales_{n}")) for n in range(self.count)]

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.count == 1:
            return _product(x, *self.tiles[0], bias)
        out = torch.cat([_product(x, *tile) for tile in self.tiles], dim=-1)
        return out if bias is None else out + bias

    def dense(self) -> Tensor:
        return torch.cat([(values.float() * scales).T for values, scales in self.tiles])

    def first(self, count: int) -> Form:
        chosen: list[tuple[Tensor, Tensor]] = []
        for tile in self.tiles:
            if sum(len(scales) for _, scales in chosen) < count:
                chosen.append(tile)
        part = ColumnForm(chosen, self.origins)
        if part.shape[0] != count:
            raise ValueError(f"{count} columns are no whole tiles")
        return part

    def joins(self, other: Form) -> bool:
        return isinstance(other, ColumnForm) and other.shape[1] == self.shape[1]

    def joined(self, others: Sequence[Form]) -> Form:
        """Cut anew."""
        forms = [self, *(form for form in others if isinstance(form, ColumnForm))]
        tiles = [tile for form in forms for tile in form.tiles]
        values, scales = (torch.cat(parts, dim=-1) for parts in zip(*tiles, strict=True))
        return ColumnForm(_cut(values, scales), tuple(origin for form in forms for origin in form.origins))

    def followed_by(self, other: ColumnForm) -> ColumnForm:
        """The same, with tiles that stay apart: `first` finds these again."""
        return ColumnForm([*self.tiles, *other.tiles], (*self.origins, *other.origins))


def _product(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    return symbolic(
        "com.microsoft::DynamicQuantizeMatMul",
        [x, values, scales] if bias is None else [x, values, scales, None, bias],
        {},
        dtype=x.dtype,
        shape=(*x.shape[:-1], values.shape[1]),
        version=1,
    )


def _cut(values: Tensor, scales: Tensor) -> list[tuple[Tensor, Tensor]]:
    widths = tile_widths(len(scales))
    parts = zip(values.split(widths, dim=1), scales.split(widths), strict=True)
    return [(columns.contiguous(), each.contiguous()) for columns, each in parts]


class TableForm(Form):
    values: Tensor  # int8 [N, K]
    scales: Tensor  # float32 [N]

    def __init__(self, weight: Tensor, origin: Origin):
        super().__init__()
        values, scales = map(torch.from_numpy, quantize_table(weight.detach().float().numpy()))
        self.register_buffer("values", values.T.contiguous())
        self.register_buffer("scales", scales)
        self.origins, self.shape = (origin,), (weight.shape[0], weight.shape[1])

    def rows(self, ids: Tensor) -> Tensor:
        flat = ids.flatten()
        picked = self.values.index_select(0, flat).float() * self.scales.index_select(0, flat)[:, None]
        return picked.reshape(*ids.shape, self.shape[1])

    def dense(self) -> Tensor:
        return self.values.float() * self.scales[:, None]
