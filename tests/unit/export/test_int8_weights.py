"""8-bit weights of one scale an output, and scales folded into the norms before them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.toys.quantizing import weights
from helpers.toys.toy_models import toy_model

from hamburger_edge.errors import CheckpointError
from hamburger_edge.export.quantization.column_forms import ColumnForm, TableForm, TiedForm
from hamburger_edge.export.quantization.folds import READERS, Folds, exponents_of
from hamburger_edge.export.quantization.input_ranges import HEAD, InputRanges
from hamburger_edge.export.quantization.int8_columns import WeightOrigin, quantize_columns, quantize_table
from hamburger_edge.models.architecture.llama import WholeSequence


def test_columns_are_close_and_two_products_fit_16_bits() -> None:
    """Guards against saturation: x86 without VNNI adds the products of two neighbours in 16 bits."""
    for width in (64, 63):
        weight = weights(300, width).numpy()
        weight[5, 2:4] = 9, -9
        weight[7] = 0
        values, scales = quantize_columns(weight)
        assert values.shape == (width, 300)
        pairs = np.abs(np.pad(values, ((0, width % 2), (0, 0))).astype(int)).reshape(-1, 2, 300).sum(1)
        assert 255 * pairs.max() < 1 << 15
        assert 126 <= pairs[1, 5] <= 128
        assert (np.abs((values * scales).T - weight).max(1) <= scales * 0.5001).all()
        assert not values[:, 7].any()
    rows_of_a_table, _ = quantize_table(weights(50, 64).numpy())
    assert (np.abs(rows_of_a_table).max(0) == 127).all()  # all 8 bits: no product adds them


def test_stored_forms_equal_the_quantized_weights() -> None:
    weight = weights(9000, 16)
    values, scales = quantize_columns(weight.numpy())
    wanted = torch.from_numpy((values * scales).T)
    whole = ColumnForm.of(weight, WeightOrigin("w"), 2.0)
    assert [len(each) for _, each in whole.tiles] == [4160, 4160, 680]
    assert torch.equal(whole.dense(), wanted)
    parts = [
        ColumnForm.of(part, WeightOrigin(name), 2.0)
        for name, part in zip("ab", weight.split(4500), strict=True)
    ]
    ahead = parts[0].followed_by(parts[1])
    assert torch.equal(ahead.first(4500).dense(), wanted[:4500])
    for both in (ahead, parts[0].joined(parts[1:])):
        assert torch.equal(both.dense(), wanted)
        assert [origin.weight for origin in both.origins] == ["a", "b"]
    assert not parts[0].joins(ColumnForm.of(weight[:9], WeightOrigin("c"), "row"))  # rounded otherwise
    ids = torch.tensor([[5, 8999]])
    table = TableForm(weight, WeightOrigin("w"))
    assert torch.equal(table.rows(ids), table.dense()[ids])


def test_a_tied_head_looks_up_its_own_columns() -> None:
    weight = weights(9000, 16)
    drafts, others = (ColumnForm.of(part, WeightOrigin("w"), 2.0) for part in weight.split([70, 8930]))
    tied = TiedForm(drafts.followed_by(others))
    ids = torch.tensor([[0, 69, 70], [4229, 4230, 8999]])  # at the borders of tiles of 70, 4160, 4160, 610
    assert torch.equal(tied.rows(ids), tied.dense()[ids])
    assert torch.equal(tied.first(70).dense(), drafts.dense())
    assert torch.equal(tied.dense()[70:], others.dense())


def test_fold_scales_large_channels_without_rounding() -> None:
    inputs, weight = weights(200, 64).numpy(), weights(32, 64, seed=1).numpy()
    inputs[:, 5] *= 25
    exponents = exponents_of(np.abs(inputs).max(0), [weight])
    assert exponents[5] == 3  # 25 ** 0.6 is 6.9
    assert np.abs(np.delete(exponents, 5)).max() <= 1
    folds = Folds({"base.layers.0.input_layernorm": exponents})
    ours = folds.apply("base.layers.0.self_attn.k_proj.weight", weight)
    fed = inputs * folds.apply("base.layers.0.input_layernorm.weight", np.ones(64, np.float32))
    assert np.array_equal(fed * ours[0], inputs * weight[0])


@pytest.mark.parametrize("output_norms", [False, True])
@torch.no_grad()
def test_folded_model_computes_the_same(output_norms: bool) -> None:
    """With output norms, the outputs of up_proj are folded too."""
    model = toy_model(output_norms=output_norms)
    tokens = torch.tensor([[5, 9, 11, 3, 80, 33]])

    def features() -> torch.Tensor:
        attend = WholeSequence(model.config.base, model.base_rotary(torch.arange(6)[None]))
        return model.base(model.base.embed(tokens), attend, model.config.taps)

    ranges = InputRanges(model)
    wanted = features()
    ranges.close()
    folds = ranges.folds()
    sources = {norm.removeprefix(f"base.layers.{norm[12]}.") for norm in folds.exponents}
    assert sources == {source for source in READERS if output_norms or source != "mlp.up_proj"}
    assert all(found.any() for found in folds.exponents.values())
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(folds.apply(name, parameter.numpy())))
    torch.testing.assert_close(features(), wanted, rtol=0, atol=1e-5)
    largest = ranges.by_product(folds)
    ranges = InputRanges(model)  # of the folded model
    features()
    assert largest == pytest.approx(ranges.by_product(Folds({})))
    assert HEAD in largest
    assert not any(path.endswith("down_proj") for path in largest)  # its rows have their own


@pytest.mark.parametrize(("largest", "one_range"), [(5.0, True), (20.0, False)])
def test_a_product_with_few_far_larger_rows_has_no_common_range(largest: float, one_range: bool) -> None:
    """The other rows would keep a few of 127 steps: Gemma's head lost nine answers of ten."""
    ranges = InputRanges(toy_model())
    rows = torch.ones(64, 32)
    for first in (1.0, largest, 1.0):
        rows[0, 3] = first
        ranges._widen(HEAD, rows)
    found = ranges.by_product(Folds({}))
    assert found == ({HEAD: largest} if one_range else {})


def test_folds_are_stored_as_text() -> None:
    folds = Folds({"a": np.array([-8, 0, 8], np.int8)})
    found = Folds.from_json(folds.to_json())
    assert np.array_equal(found.exponents["a"], folds.exponents["a"])
    for broken in ({"a": "*"}, {"a": 5}):
        with pytest.raises(CheckpointError, match="make the assembly again"):
            Folds.from_json(broken)
