"""Block quantization: the stored bits stand for what they should, and closely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from quantizing import plan_for, q4_1, weights
from toy_models import toy_model

from hamburger_edge.bundle.manifest import PrecisionPlan
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.export.gguf.tensors import four_bits
from hamburger_edge.export.precision_plan import Former, apply_plan, fit_plan
from hamburger_edge.export.quantization import block_quantizer
from hamburger_edge.export.quantization.activations import Calibration
from hamburger_edge.export.quantization.block_quantizer import (
    dequantize,
    quantize,
    quantize_with_minimum,
    unpacked,
)
from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.own_grid import (
    GridForm,
    has_minima,
    quantize_with_means,
    without_means,
)
from hamburger_edge.export.quantization.weight_forms import BlockForm, FloatForm, FormedLinear, TieredForm
from hamburger_edge.models.architecture.hamburger import Hamburger


def fitted(model: Hamburger, precision: str = "int4", **options: Any) -> PrecisionPlan:
    return fit_plan(plan_for(precision, **options), model, tiers=True)


@pytest.mark.parametrize(
    ("bits", "size", "most"), [(8, 32, 0.01), (4, 16, 0.08), (4, 32, 0.1), (4, 128, 0.13)]
)
@pytest.mark.parametrize("K", [128, 144, 72])
def test_error_is_that_of_its_bits(bits: int, size: int, most: float, K: int) -> None:
    weight = weights(24, K)
    blocks = quantize(weight, bits, size)
    count = -(-K // size)
    assert blocks.packed.shape == (24, count, size * bits // 8)
    assert blocks.scales.shape == (24, count)
    assert blocks.zeros.shape == (24, -(-count * bits // 8))
    back = dequantize(blocks)
    assert back.shape == weight.shape
    assert (back - weight).norm() / weight.norm() < most


def test_a_block_takes_the_better_of_neighbouring_zero_points() -> None:
    weight = weights(64, 32)
    low, high = weight.amin(1).clamp(max=0), weight.amax(1).clamp(min=0)
    natural = (-low / ((high - low) / 15)).round()
    zeros = unpacked(quantize(weight, 4, 32))[1][:, 0]
    assert {int(shift) for shift in zeros - natural} == {-1, 0, 1}


def test_a_matrix_is_quantized_in_parts() -> None:
    weight = weights(3, block_quantizer.AT_ONCE // 2)
    assert (dequantize(quantize(weight, 8, 128)) - weight).norm() < 0.01 * weight.norm()


def test_minima_and_scales_are_fitted_to_the_rounded_weights() -> None:
    weight = weights(64, 256)
    q, scales, minima = quantize_with_minimum(weight, 32)
    fitted = q.unflatten(1, (-1, 32)) * scales[..., None] + minima[..., None]
    blocks = weight.unflatten(1, (-1, 32))
    step = (blocks.amax(-1, keepdim=True) - blocks.amin(-1, keepdim=True)) / 15
    plain = ((blocks - blocks.amin(-1, keepdim=True)) / step).round() * step + blocks.amin(-1, keepdim=True)
    assert (fitted - blocks).norm() < 0.94 * (plain - blocks).norm()


def test_errors_are_passed_on_beyond_the_columns_that_are_rounded_together() -> None:
    generator = torch.Generator().manual_seed(0)
    mixed = torch.eye(256) + 0.075 * torch.randn(256, 256, generator=generator)
    x, weight = torch.randn(2000, 256, generator=generator) @ mixed, weights(64, 256)
    compensated = dequantize(quantize(weight, 4, 32, covariance=InputCovariance(x.T @ x / len(x))))
    nearest = dequantize(quantize(weight, 4, 32))
    assert (x @ (compensated - weight).T).norm() < 0.85 * (x @ (nearest - weight).T).norm()


def test_a_pair_of_key_channels_has_the_range_of_its_length() -> None:
    """A rotation turns the pair, so either channel may hold all of it."""
    model = toy_model()
    ranges = CacheRanges(model)
    inputs = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    keys = model.base.layers[0].self_attn.k_proj(inputs)
    ranges.close()
    lengths = keys.unflatten(-1, (2, 2, -1)).norm(dim=-2).amax((0, 1))  # [K, D / 2] of [B, S, K, 2, D / 2]
    expected = torch.cat([lengths, lengths], dim=-1).flatten() / 127
    assert torch.allclose(ranges.scales()["key_scale.0"], expected)


def test_least_squares_beats_plain_rounding() -> None:
    weight = weights(64, 256)
    plain, best = (dequantize(quantize(weight, 4, 32, ranges=n)) for n in (1, 8))
    assert (best - weight).norm() < 0.98 * (plain - weight).norm()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several divide a product among them, and on some processors the last bit of a sum follows from how."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("informed", [False, True])
@pytest.mark.usefixtures("one_thread")
def test_rows_are_quantized_apart_from_each_other(informed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many at a time, in whatever order they are asked for."""
    weight, order = weights(48, 80), torch.randperm(48)[:37]
    covariance = correlated_inputs(80)[1] if informed else None
    at_once = quantize(weight[order], 4, 16, covariance=covariance)
    monkeypatch.setattr(block_quantizer, "ROWS_AT_ONCE", 10)
    in_parts = quantize(weight, 4, 16, rows=order, covariance=covariance)
    assert in_parts.shape == at_once.shape == (37, 80)
    for name in ("packed", "scales", "zeros"):
        assert torch.equal(getattr(in_parts, name), getattr(at_once, name))
    assert torch.equal(quantize(weight[order], 4, 16, covariance=covariance).packed, at_once.packed)


@pytest.mark.parametrize("K", [128, 80])
def test_knowing_the_inputs_helps(K: int) -> None:
    """Inputs of which a few directions are large: rounding errors there are made up for elsewhere."""
    (inputs, covariance), weight = correlated_inputs(K), weights(48, K)
    backs = [dequantize(quantize(weight, 4, 32, covariance=known)) for known in (None, covariance)]
    error = [(inputs @ (back - weight).T).norm() for back in backs]
    assert error[1] < 0.5 * error[0]
    unused = InputCovariance(torch.zeros(K, K))
    assert torch.isfinite(dequantize(quantize(weight, 4, 32, covariance=unused))).all()


@pytest.mark.parametrize("minimum", [False, True])
def test_scales_and_minima_are_the_best_for_their_bits(minimum: bool) -> None:
    """Each of them, moved by itself, leaves the outputs no nearer to what they were."""
    (inputs, covariance), weight = correlated_inputs(96), weights(24, 96)
    if minimum:
        q, scales, minima = quantize_with_minimum(weight, 32, covariance=covariance)
        levels, offset = q.float(), minima.repeat_interleave(32, 1)
    else:
        blocks = quantize(weight, 4, 32, covariance=covariance)
        q, zeros = unpacked(blocks)
        scales, offset = blocks.scales, 0.0
        levels = q.float() - zeros.float().repeat_interleave(32, 1)

    def errors(scales: torch.Tensor, offset: torch.Tensor | float) -> torch.Tensor:
        back = levels * scales.repeat_interleave(32, 1) + offset
        return (inputs @ (back - weight).T).square().sum(0)  # of each output

    best = errors(scales, offset)
    for block in range(3):
        for change in (0.97, 1.03):
            moved = scales.clone()
            moved[:, block] *= change
            assert (errors(moved, offset) > best).all()
            if minimum:
                moved = minima.clone()
                moved[:, block] *= change
                assert (errors(scales, moved.repeat_interleave(32, 1)) > best).float().mean() > 0.9


def test_knowing_the_inputs_helps_on_a_grid_with_minima() -> None:
    """Also against what the columns of means lose to their own 4 bits."""
    inputs, covariance = correlated_inputs(128)
    weight = q4_1(48, 128) + 0.03 * weights(48, 128, seed=1)
    error = [
        (inputs @ (without_means(quantize_with_means(weight, 32, covariance=known)) - weight).T).norm()
        for known in (None, covariance)
    ]
    assert error[1] < 0.7 * error[0]


def test_values_on_a_grid_are_kept_exactly() -> None:
    """Small integers times a scale, with an integer zero point."""
    q = torch.randint(0, 16, (8, 64), generator=torch.Generator().manual_seed(1)).float()
    q[:, ::32], q[:, 1::32] = 0, 15  # every block uses the whole range
    weight = (q - 6) * 0.125
    assert torch.equal(dequantize(quantize(weight, 4, 32)), weight)


def test_zero_and_constant_blocks() -> None:
    for value in (0.0, 1.0, -3.5):
        weight = torch.full((4, 32), value)
        torch.testing.assert_close(dequantize(quantize(weight, 4, 32)), weight)


def test_low_bits_come_first() -> None:
    weight = (torch.arange(32).remainder(16).float() - 8)[None]
    blocks = quantize(weight, 4, 32, ranges=1)
    q, zeros = unpacked(blocks)
    assert zeros.tolist() == [[8]]
    assert q[0].tolist() == list(range(16)) * 2
    assert blocks.packed[0, 0, 0] == 0 | 1 << 4


def correlated_inputs(K: int) -> tuple[torch.Tensor, InputCovariance]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(500, 20, generator=generator) @ torch.randn(20, K, generator=generator)
    inputs += 0.1 * torch.randn(500, K, generator=generator)
    return inputs, InputCovariance(inputs.T @ inputs / 500)


def test_a_grid_with_minima_is_found_again() -> None:
    exact = q4_1(96, 128)
    assert has_minima(exact, 32)
    assert has_minima(exact + 0.005 * weights(96, 128, seed=1), 32)  # what a low-rank change adds
    assert not has_minima(weights(96, 128), 32)
    assert not has_minima(exact[:, :120], 32)  # no whole blocks
    q, scales, minima = quantize_with_minimum(exact, 32)
    back = q.unflatten(1, (-1, 32)) * scales[..., None] + minima[..., None]
    assert (back.flatten(1) - exact).abs().max() < 2e-3  # float16's steps
    stored = without_means(quantize_with_means(exact, 32))
    whole = dequantize(quantize(exact, 4, 32))
    assert (stored - exact).norm() < 0.2 * (whole - exact).norm()


def test_a_base_keeps_its_grid_if_it_has_one() -> None:
    model = toy_model(hidden_size=64, intermediate_size=96)
    assert fitted(model) == plan_for("int4")
    for module in model.base.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = q4_1(*module.weight.shape)
    assert fitted(model).grid == 32
    assert fitted(model, block_size=64).grid == 0  # what was asked for
    assert fitted(model, "int8").grid == 0
    assert fitted(model, prefer="speed").grid == 0
    own, _ = apply_plan(model, fitted(model), Calibration(None))
    forms = [module.form for module in own.base.modules() if isinstance(module, FormedLinear)]
    assert len(forms) == 4 * len(model.base.layers)  # queries, keys and values are one, and gate and up
    assert all(isinstance(form, GridForm) for form in forms)
    assert [form.means is None for form in forms[:4]].count(True) == 1
    out = own.base.layers[0].self_attn.o_proj.form
    assert (out.means, out.size) == (None, 64)
    assert {form.size for form in forms if form.means is not None} == {32}
    with torch.no_grad():
        wanted = model.base.layers[0].self_attn.k_proj.weight
        widths = own.base.layers[0].self_attn.packed.widths
        packed = own.base.layers[0].self_attn.packed.linear.form.dense().split(widths)
    assert (packed[1] - wanted).norm() < 0.02 * wanted.norm()


def test_a_vocabulary_larger_than_the_layers_has_whole_blocks() -> None:
    narrow = [
        fit_plan(plan_for("int4"), toy_model(vocab_size=size), tiers=True).narrow_layers
        for size in (100, 2000)
    ]
    assert ["head" in patterns for patterns in narrow] == [True, False]


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1])
def test_gguf_blocks_are_read_back_and_rounded_for_their_inputs(kind: Type) -> None:
    (inputs, covariance), weight = correlated_inputs(128), weights(48, 128)
    data = four_bits(weight, kind, covariance)
    plain = gguf.quants.quantize(weight.numpy(), kind)
    assert (data.shape, data.dtype) == (plain.shape, plain.dtype)
    error = [
        (inputs @ (torch.from_numpy(gguf.quants.dequantize(packed, kind)) - weight).T).norm()
        for packed in (plain, data)
    ]
    assert error[1] < 0.6 * error[0]
    zero = gguf.quants.dequantize(four_bits(torch.zeros(2, 64), kind, InputCovariance(torch.eye(64))), kind)
    assert not np.abs(zero).max() > 1e-6


def test_the_first_rows_of_a_form_are_a_slice_of_its_memory() -> None:
    form = BlockForm(quantize(weights(40, 64), 8, 32))
    part = form.first(10)
    assert part.packed.data_ptr() == form.packed.data_ptr()
    assert part.shape == (10, 64)
    assert torch.equal(torch.as_tensor(part.packed), form.packed[:10])
    assert form.packed.shape[0] == 40


def test_a_head_has_fewer_bits_for_rare_tokens() -> None:
    model = toy_model(hidden_size=64, draft_vocab_size=20)
    plan = fitted(model)
    assert plan.frequent_rows == 40
    assert fit_plan(plan_for("int4"), model, tiers=False).frequent_rows == 0  # --keep-head
    assert fitted(model, "int8").frequent_rows == 0
    for size in (0, 60):  # of 97 tokens: twice the draft vocabulary is all
        assert fitted(toy_model(draft_vocab_size=size)).frequent_rows == 0
    _, vocabulary = apply_plan(model, plan, Calibration(None))
    assert isinstance(vocabulary.head, TieredForm)
    error = (vocabulary.head.dense()[vocabulary.places] - model.base.head_weight).norm(dim=1)
    relative = (error / model.base.head_weight.norm(dim=1))[vocabulary.places.argsort()]
    assert relative[:40].max() < 0.01 < 0.03 < relative[40:].min()
    assert relative[40:].max() < 0.12
    assert vocabulary.short.shape == (20, 64)
    assert vocabulary.short.packed.data_ptr() == vocabulary.head.frequent.packed.data_ptr()
    with pytest.raises(ValueError, match="41 rows"):
        vocabulary.head.first(41)
    for wanted, size in (({}, 32), ({"prefer": "speed"}, 64), ({"block_size": 64}, 64)):
        _, vocabulary = apply_plan(model, fitted(model, **wanted), Calibration(None))
        assert vocabulary.head.rare.size == size


def test_plans() -> None:
    plan = plan_for("int4")
    assert (plan.base, plan.head) == ("int4", "int8")
    assert plan_for("int4", keep_head="int4").head == "int4"
    assert plan_for("fp32").block_size == 0
    for asked, named in (
        ({"precision": "int3"}, "fp32, fp16, int8, int4"),
        ({"prefer": "size"}, "accuracy, speed"),
        ({"precision": "int8", "prefer": "speed"}, "is for precision int4, not int8"),
        ({"prefer": "speed", "block_size": 64}, "leave block_size out"),
        *(({"block_size": size}, "block_size") for size in (8, 48, 512, -32)),
    ):
        with pytest.raises(InputError, match=named):
            plan_for(**{"precision": "int4", **asked})
    former = Former(plan, Calibration(None), packed=True)
    assert isinstance(former.linear("stop_head.4", weights(1, 64)), FloatForm)  # too small to be worth it
    names = {"base.layers.3.self_attn.v_proj": (8, 64), "base.layers.3.self_attn.k_proj": (4, 64)}
    names |= {"base.layers.3.mlp.up_proj": (4, 64), "base.layers.0.mlp.down_proj": (4, 32)}
    names |= {"micro.layers.0.mlp.down_proj": (4, 64)}
    for path, expected in names.items():
        form = former.linear(path, weights(16, 128))
        assert isinstance(form, BlockForm)
        assert (form.bits, form.size) == expected
    table = former.vocabulary(weights(64, 48))
    assert isinstance(table, BlockForm)
    assert (table.bits, table.size) == (8, 16)  # whole blocks
    with pytest.raises(ConfigError, match="keep_head = 'fp32'"):
        former.vocabulary(weights(64, 40))
