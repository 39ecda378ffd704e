"""8-bit weights of fused graphs: int8, one scale an output (`int8_columns.py`).

    ColumnForm   linear layers and heads, whose inputs are rounded to 8 bits too
    TiedForm     heads whose columns are the token embeddings, too
    TableForm    token embeddings of their own: rows are picked, and multiplied by their scales

Each remembers which weights it was made of, so that it can be made again without PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from hamburger_edge.export.quantization.int8_columns import (
    WeightOrigin,
    quantize_columns,
    quantize_table,
    tile_widths,
)
from hamburger_edge.export.quantization.weight_forms import Form, symbolic

# How a product's inputs are rounded to 8 bits:
#
#     a number   the largest magnitude of all inputs; larger ones are clipped
#     "row"      each row is divided by its own largest magnitude
#     "call"     one scale for all rows of a call: fastest, but a row's result depends on the other rows
#
# The base reads a token alone or with others, and must give it the same scores. So "call" is for graphs whose
# calls always hold the same rows.
InputScale = float | Literal["row", "call"]
TileTensors = tuple[Tensor, Tensor]  # values int8 [K, n], scales float32 [n]
STEPS = 127  # of the rounded inputs, up and down from `zero`


class ColumnForm(Form):
    """A linear layer or head; `tile_widths` cuts a wide one into several products."""

    looks_up = False
    unit: Tensor  # float32, of the rounded inputs
    zero: Tensor  # uint8, the rounded input that stands for 0

    def __init__(
        self,
        tiles: Sequence[TileTensors],
        origins: tuple[WeightOrigin, ...],
        inputs: InputScale,
        *,
        in_rows: bool = False,  # stored as [n, K]: ONNX Runtime transposes each tile once, while loading
    ):
        super().__init__()
        self.count, self.origins, self.inputs, self.in_rows = len(tiles), origins, inputs, in_rows
        self.register_buffer("unit", torch.tensor((1.0 if isinstance(inputs, str) else inputs) / STEPS))
        self.register_buffer("zero", torch.tensor(STEPS + 1, dtype=torch.uint8))
        for number, (values, scales) in enumerate(tiles):
            self.register_buffer(f"values_{number}", values.T.contiguous() if in_rows else values)
            self.register_buffer(f"scales_{number}", scales)
        self.shape = sum(len(scales) for _, scales in tiles), len(tiles[0][0])

    @classmethod
    def of(cls, weight: Tensor, origin: WeightOrigin, inputs: InputScale) -> ColumnForm:
        values, scales = map(torch.from_numpy, quantize_columns(weight.detach().float().numpy()))
        return cls(_cut(values, scales), (origin,), inputs)

    @property
    def stored(self) -> list[TileTensors]:
        return [(getattr(self, f"values_{n}"), getattr(self, f"scales_{n}")) for n in range(self.count)]

    @property
    def tiles(self) -> list[TileTensors]:
        return [(values.t() if self.in_rows else values, scales) for values, scales in self.stored]

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.inputs == "call":
            return _joined([_dynamic_product(x, *tile) for tile in self.tiles], bias)
        largest = x.abs().amax(-1, keepdim=True) if self.inputs == "row" else None
        # a row of zeros becomes NaN, then some integers, and zeros again
        rounded = symbolic(
            "QuantizeLinear",
            [x if largest is None else x / largest, self.unit, self.zero],
            {},
            dtype=torch.uint8,
            shape=x.shape,
        )
        out = [_integer_product(rounded, self.unit, self.zero, *tile) for tile in self.tiles]
        return _joined(out, bias) if largest is None else _joined([_joined(out) * largest], bias)

    def dense(self) -> Tensor:
        return torch.cat([(values.float() * scales).T for values, scales in self.tiles])

    def first(self, count: int) -> Form:
        chosen: list[TileTensors] = []
        for tile in self.tiles:
            if sum(len(scales) for _, scales in chosen) < count:
                chosen.append(tile)
        # the micro decoder's head, with other inputs
        part = ColumnForm(chosen, self.origins, "call", in_rows=self.in_rows)
        if part.shape[0] != count:
            raise ValueError(f"{count} columns are no whole tiles")
        return part

    def joins(self, other: Form) -> bool:
        alike = isinstance(other, ColumnForm) and other.shape[1] == self.shape[1]
        return alike and other.inputs == self.inputs

    def joined(self, others: Sequence[Form]) -> Form:
        """Cut anew."""
        forms = [self, *(form for form in others if isinstance(form, ColumnForm))]
        tiles = [tile for form in forms for tile in form.tiles]
        values, scales = (torch.cat(parts, dim=-1) for parts in zip(*tiles, strict=True))
        origins = tuple(origin for form in forms for origin in form.origins)
        return ColumnForm(_cut(values, scales), origins, self.inputs)

    def followed_by(self, other: ColumnForm) -> ColumnForm:
        """The same, with tiles that stay apart: `first` finds these again."""
        return ColumnForm([*self.tiles, *other.tiles], (*self.origins, *other.origins), self.inputs)


def _joined(products: list[Tensor], bias: Tensor | None = None) -> Tensor:
    out = products[0] if len(products) == 1 else torch.cat(products, dim=-1)
    return out if bias is None else out + bias


def _dynamic_product(x: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """x [..., K] is rounded by the operator."""
    return symbolic(
        "com.microsoft::DynamicQuantizeMatMul",
        [x, values, scales],
        {},
        dtype=x.dtype,
        shape=(*x.shape[:-1], values.shape[1]),
        version=1,
    )


def _integer_product(rounded: Tensor, unit: Tensor, zero: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """rounded uint8 [..., K] -> float32 [..., n]; sums of integers are exact, whatever rows are beside"""
    return symbolic(
        "com.microsoft::MatMulIntegerToFloat",
        [rounded, values, unit, scales, zero],
        {},
        dtype=torch.float32,
        shape=(*rounded.shape[:-1], values.shape[1]),
        version=1,
    )


def _cut(values: Tensor, scales: Tensor) -> list[TileTensors]:
    widths = tile_widths(len(scales))
    parts = zip(values.split(widths, dim=1), scales.split(widths), strict=True)
    return [(columns.contiguous(), column_scales.contiguous()) for columns, column_scales in parts]


class TiedForm(ColumnForm):
    """A head that is the token embeddings, too: both read the same bytes."""

    looks_up = True
    table: Tensor  # int8 [N, K], all tiles as they are stored
    scales: Tensor  # float32 [N]

    def __init__(self, head: ColumnForm):
        super().__init__(head.tiles, head.origins, head.inputs, in_rows=True)
        values, scales = zip(*self.stored, strict=True)
        self.register_buffer("table", torch.cat(values))
        self.register_buffer("scales", torch.cat(scales))
        for number, tokens in enumerate(self.table.split([len(tile) for tile in values])):
            setattr(self, f"values_{number}", tokens)  # the same memory

    def rows(self, ids: Tensor) -> Tensor:
        return _rows(self.table, self.scales, ids)

    @property
    def wholes(self) -> list[tuple[Tensor, list[Tensor]]]:
        """Tensors, and those of the tiles that they consist of."""
        values, scales = zip(*self.stored, strict=True)
        return [(self.table, list(values)), (self.scales, list(scales))]


class TableForm(Form):
    values: Tensor  # int8 [N, K]
    scales: Tensor  # float32 [N]

    def __init__(self, weight: Tensor, origin: WeightOrigin):
        super().__init__()
        values, scales = map(torch.from_numpy, quantize_table(weight.detach().float().numpy()))
        self.register_buffer("values", values.T.contiguous())
        self.register_buffer("scales", scales)
        self.origins, self.shape = (origin,), (weight.shape[0], weight.shape[1])

    def rows(self, ids: Tensor) -> Tensor:
        return _rows(self.values, self.scales, ids)

    def dense(self) -> Tensor:
        return self.values.float() * self.scales[:, None]


def _rows(values: Tensor, scales: Tensor, ids: Tensor) -> Tensor:
    """values int8 [N, K], scales [N], ids [...] -> float32 [..., K]"""
    flat = ids.flatten()
    picked = values.index_select(0, flat).float() * scales.index_select(0, flat)[:, None]
    return picked.reshape(*ids.shape, values.shape[1])
