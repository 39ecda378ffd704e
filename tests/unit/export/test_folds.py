"""Scales folded into a base's norms and the products that read them."""

from __future__ import annotations

import numpy as np
import pytest
from toy_models import toy_model

from hamburger_edge.errors import CheckpointError
from hamburger_edge.export.quantization.folds import READERS, Folds, exponents_of
from hamburger_edge.export.quantization.int8_columns import quantize_columns

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


def test_folds_are_stored_as_text() -> None:
    folds = Folds({"a": np.array([-8, 0, 8], np.int8)})
    found = Folds.from_json(folds.to_json())
    assert np.array_equal(found.exponents["a"], folds.exponents["a"])
    for broken in ({"a": "*"}, {"a": 5}):
        with pytest.raises(CheckpointError, match="make the assembly again"):
            Folds.from_json(broken)
