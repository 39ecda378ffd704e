"""8-bit weights of one scale an output."""

from __future__ import annotations

import numpy as np
import torch

from hamburger_edge.export.quantization.column_forms import ColumnForm, TableForm
from hamburger_edge.export.quantization.int8_columns import LARGEST, Origin, quantize_columns, tile_widths

RANDOM = np.random.default_rng(0)


def test_columns_are_near_and_two_products_fit_16_bits() -> None:
    """Guards against saturation: x86 without VNNI adds two products of 8 bits in 16."""
    weight = RANDOM.standard_normal((300, 64)).astype(np.float32)
    weight[7] = 0
    values, scales = quantize_columns(weight)
    assert values.shape == (64, 300)
    assert 2 * 255 * int(np.abs(values).max()) < 1 << 15
    assert np.abs((values * scales).T - weight).max() <= np.abs(weight).max() / LARGEST / 2 * 1.001
    assert np.isfinite(scales).all()
    assert not values[:, 7].any()


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
    assert torch.equal(TableForm(weight, Origin("w")).rows(ids), wanted[ids])
