"""8-bit weights of one scale an output."""

from __future__ import annotations

import numpy as np
import torch

from hamburger_edge.export.quantization.column_forms import ColumnForm, TableForm
from hamburger_edge.export.quantization.int8_columns import (
    Origin,
    quantize_columns,
    quantize_table,
    tile_widths,
)

RANDOM = np.random.default_rng(0)


def test_columns_are_near_and_two_products_fit_16_bits() -> None:
    """Guards against saturation: x86 without VNNI adds the products of two neighbours in 16 bits."""
    for width in (64, 63):
        weight = RANDOM.standard_normal((300, width)).astype(np.float32)
        weight[5, 2:4] = 9, -9
        weight[7] = 0
        values, scales = quantize_columns(weight)
        assert values.shape == (width, 300)
        pairs = np.abs(np.pad(values, ((0, width % 2), (0, 0))).astype(int)).reshape(-1, 2, 300).sum(1)
        assert 255 * pairs.max() < 1 << 15
        assert 126 <= pairs[1, 5] <= 128
        assert (np.abs((values * scales).T - weight).max(1) <= scales * 0.5001).all()
        assert not values[:, 7].any()


def test_rows_of_a_table_use_all_8_bits() -> None:
    weight = RANDOM.standard_normal((50, 64)).astype(np.float32)
    values, _ = quantize_table(weight)
    assert (np.abs(values).max(0) == 127).all()


def test_wide_matrices_are_cut() -> None:
    assert tile_widths(576) == [576]
    assert tile_widths(8192) == [4160, 4032]
    assert sum(tile_widths(49152)) == 49152


def test_forms_hold_what_was_quantized() -> None:
    weight = torch.from_numpy(RANDOM.standard_normal((9000, 16)).astype(np.float32))
    values, scales = quantize_columns(weight.numpy())
    wanted = torch.from_numpy((values * scales).T)
    whole = ColumnForm.of(weight, Origin("w"))
    assert [len(each) for _, each in whole.tiles] == [4160, 4160, 680]
    assert torch.equal(whole.dense(), wanted)
    parts = [ColumnForm.of(part, Origin(name)) for name, part in zip("ab", weight.split(4500), strict=True)]
    assert torch.equal(parts[0].joined(parts[1:]).dense(), wanted)
    ahead = parts[0].followed_by(parts[1])
    assert torch.equal(ahead.first(4500).dense(), wanted[:4500])
    assert [origin.weight for origin in ahead.origins] == ["a", "b"]
    ids = torch.tensor([[5, 8999]])
    values, scales = quantize_table(weight.numpy())
    assert torch.equal(TableForm(weight, Origin("w")).rows(ids), torch.from_numpy((values * scales).T)[ids])
