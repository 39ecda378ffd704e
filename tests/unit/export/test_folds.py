"""Scales folded into a base's norms and the products that read them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_models import toy_model

from hamburger_edge.errors import CheckpointError
from hamburger_edge.export.quantization.folds import READERS, Folds, exponents_of
from hamburger_edge.export.quantization.int8_columns import quantize_columns
from hamburger_edge.export.quantization.norm_ranges import NormRanges
from hamburger_edge.models.architecture.llama import WholeSequence

RANDOM = np.random.default_rng(0)
WIDTH = 64


def outlying(rows: int) -> np.ndarray:
    """Inputs with a channel as large as the base's largest."""
    inputs = RANDOM.standard_normal((rows, WIDTH)).astype(np.float32)
    inputs[:, 5] *= 25
    return inputs


def rounded(inputs: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What DynamicQuantizeMatMul computes: inputs of 8 bits with one scale, int8 weights."""
    low, high = min(inputs.min(), 0), max(inputs.max(), 0)
    step = (high - low) / 255
    values, scales = quantize_columns(weight)
    product: np.ndarray = (np.rint(inputs / step) * step) @ (values * scales)
    return product


def test_a_folded_product_keeps_its_result_and_rounds_less() -> None:
    inputs, weight = outlying(200), RANDOM.standard_normal((32, WIDTH)).astype(np.float32)
    exponents = exponents_of(np.abs(inputs).max(0), [weight])
    assert exponents[5] > 1 >= np.abs(np.delete(exponents, 5)).max()
    folds = Folds({"base.layers.0.input_layernorm": exponents})
    ours = folds.apply("base.layers.0.self_attn.k_proj.weight", weight)
    fed = inputs * folds.apply("base.layers.0.input_layernorm.weight", np.ones(WIDTH, np.float32))
    assert np.array_equal(fed * ours[0], inputs * weight[0])  # powers of two round nothing
    wanted = inputs @ weight.T
    errors = [np.abs(found - wanted).mean() for found in (rounded(fed, ours), rounded(inputs, weight))]
    assert errors[0] < 0.6 * errors[1]


def test_only_what_reads_a_norm_is_folded() -> None:
    model = toy_model()
    names = [name for name, _ in model.named_parameters() if name.endswith(".weight")]
    width = model.config.base.hidden_size
    norm = "base.layers.0.post_attention_layernorm"
    folds = Folds({norm: np.ones(width, np.int8)})
    ones = np.ones((2, width), np.float32)
    changed = [name for name in names if not np.array_equal(folds.apply(name, ones), ones)]
    readers = [f"base.layers.0.{reader}.weight" for reader in READERS["post_attention_layernorm"]]
    assert sorted(changed) == sorted([f"{norm}.weight", *readers])


@pytest.mark.parametrize("output_norms", [False, True])
@torch.no_grad()
def test_a_folded_model_computes_the_same(output_norms: bool) -> None:
    """Of bases with norms of what layers add, up_proj's outputs are folded too."""
    model = toy_model(output_norms=output_norms)
    tokens = torch.tensor([[5, 9, 11, 3, 80, 33]])

    def features() -> torch.Tensor:
        attend = WholeSequence(model.config.base, model.base_rotary(torch.arange(6)[None]))
        return model.base(model.base.embed(tokens), attend, model.config.taps)

    ranges = NormRanges(model)
    wanted = features()
    folds = ranges.folds()
    sources = {norm.removeprefix(f"base.layers.{norm[12]}.") for norm in folds.exponents}
    assert sources == {source for source in READERS if output_norms or source != "mlp.up_proj"}
    assert all(found.any() for found in folds.exponents.values())
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(folds.apply(name, parameter.numpy())))
    torch.testing.assert_close(features(), wanted, rtol=0, atol=1e-5)
    if output_norms:
        up = model.base.layers[0].mlp.up_proj.weight.numpy()
        assert not np.allclose(up, folds.apply("base.layers.0.mlp.up_proj.weight", up))


def test_folds_are_stored_as_text() -> None:
    folds = Folds({"a": np.array([-8, 0, 8], np.int8)})
    found = Folds.from_json(folds.to_json())
    assert np.array_equal(found.exponents["a"], folds.exponents["a"])
    for broken in ({"a": "*"}, {"a": 5}):
        with pytest.raises(CheckpointError, match="make the assembly again"):
            Folds.from_json(broken)
