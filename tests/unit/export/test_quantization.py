"""Block quantization: stored bits come back as weights close to the original ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from helpers.toys.quantizing import plan_for, q4_1, weights
from helpers.toys.toy_models import toy_model

from hamburger_edge.bundle.manifest import PrecisionPlan
from hamburger_edge.errors import ConfigError
from hamburger_edge.export.gguf.tensors import four_bits
from hamburger_edge.export.precision_plan import Former, apply_plan, fit_plan
from hamburger_edge.export.quantization import block_quantizer, own_grid
from hamburger_edge.export.quantization.block_quantizer import dequantize, quantize, quantize_with_minimum
from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.own_grid import GridForm, has_minima
from hamburger_edge.export.quantization.weight_forms import BlockForm, FloatForm, TieredForm
from hamburger_edge.models.architecture.hamburger import Hamburger

Rounded = Callable[[torch.Tensor, InputCovariance | None], torch.Tensor]


def fitted(model: Hamburger, precision: str = "int4", **options: Any) -> PrecisionPlan:
    return fit_plan(plan_for(precision, **options), model, tiers=True)


def in_blocks(weight: torch.Tensor, covariance: InputCovariance | None = None) -> torch.Tensor:
    """[N, K] as it comes back from 4 bits with integer zero points."""
    return dequantize(quantize(weight, 4, 32, covariance=covariance))


def with_means(weight: torch.Tensor, covariance: InputCovariance | None = None) -> torch.Tensor:
    """[N, K] as it comes back from a grid with minima."""
    return own_grid.without_means(own_grid.quantize_with_means(weight, 32, covariance=covariance))


def on_grid(q: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor) -> torch.Tensor:
    """[N, K] of blocks of 32"""
    return q * scales.repeat_interleave(32, 1) + minima.repeat_interleave(32, 1)


def in_gguf(kind: Type) -> Rounded:
    def back(weight: torch.Tensor, covariance: InputCovariance | None) -> torch.Tensor:
        plain = gguf.quants.quantize(weight.numpy(), kind)
        packed = plain if covariance is None else four_bits(weight, kind, covariance)
        assert (packed.shape, packed.dtype) == (plain.shape, plain.dtype)
        return torch.from_numpy(gguf.quants.dequantize(packed, kind))

    return back


def correlated_inputs(K: int) -> tuple[torch.Tensor, InputCovariance]:
    """[500, K] of which a few directions are large."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(500, 20, generator=generator) @ torch.randn(20, K, generator=generator)
    inputs += 0.1 * torch.randn(500, K, generator=generator)
    return inputs, InputCovariance(inputs.T @ inputs / 500)


@pytest.mark.parametrize(
    ("bits", "size", "K", "most"),
    [(8, 32, 128, 0.01), (4, 16, 72, 0.08), (4, 32, 144, 0.1), (4, 128, 72, 0.13), (4, 128, 144, 0.13)],
)
def test_error_is_that_of_its_bits(bits: int, size: int, K: int, most: float) -> None:
    weight = weights(24, K)
    blocks = quantize(weight, bits, size)
    count = -(-K // size)
    assert blocks.packed.shape == (24, count, size * bits // 8)
    assert blocks.scales.shape == (24, count)
    assert blocks.zeros.shape == (24, -(-count * bits // 8))
    back = dequantize(blocks)
    assert back.shape == weight.shape
    assert (back - weight).norm() / weight.norm() < most


def test_values_on_a_grid_are_kept_exactly() -> None:
    """Small integers times a scale, with an integer zero point; blocks of one value."""
    q = torch.randint(0, 16, (8, 64), generator=torch.Generator().manual_seed(1)).float()
    q[:, ::32], q[:, 1::32] = 0, 15  # every block uses the whole range
    weight = (q - 6) * 0.125
    assert torch.equal(in_blocks(weight), weight)
    for value in (0.0, 1.0, -3.5):
        weight = torch.full((4, 32), value)
        torch.testing.assert_close(in_blocks(weight), weight)


def test_a_block_takes_the_better_of_neighbouring_zero_points() -> None:
    weight = weights(64, 32)
    low, high = weight.amin(1).clamp(max=0), weight.amax(1).clamp(min=0)
    natural = (-low / ((high - low) / 15)).round()
    zeros = block_quantizer.unpacked(quantize(weight, 4, 32))[1][:, 0]
    assert {int(shift) for shift in zeros - natural} == {-1, 0, 1}


def test_a_matrix_is_quantized_in_parts() -> None:
    weight = weights(3, block_quantizer.AT_ONCE // 2)
    assert (dequantize(quantize(weight, 8, 128)) - weight).norm() < 0.01 * weight.norm()


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
    plain, best = (on_grid(*quantize_with_minimum(weight, 32, rounds=n)) for n in (0, 3))
    assert (best - weight).norm() < 0.94 * (plain - weight).norm()


@pytest.mark.parametrize("informed", [False, True])
def test_rows_are_quantized_apart_from_each_other(informed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many at a time, in whatever order they are asked for."""
    torch.set_num_threads(1)  # several divide a product: on some processors the last bit follows from how
    weight, order = weights(48, 80), torch.arange(46, 9, -1)
    covariance = correlated_inputs(80)[1] if informed else None
    at_once = quantize(weight[order], 4, 16, covariance=covariance)
    monkeypatch.setattr(block_quantizer, "ROWS_AT_ONCE", 10)
    in_parts = quantize(weight, 4, 16, rows=order, covariance=covariance)
    assert in_parts.shape == at_once.shape == (37, 80)
    for name in ("packed", "scales", "zeros"):
        assert torch.equal(getattr(in_parts, name), getattr(at_once, name))
    assert torch.equal(quantize(weight[order], 4, 16, covariance=covariance).packed, at_once.packed)


@pytest.mark.parametrize(
    ("rounded", "K", "most"),
    [
        (in_blocks, 80, 0.5),  # no whole blocks
        (in_blocks, 256, 0.2),  # more columns than are rounded together
        (with_means, 256, 0.3),
        (in_gguf(Type.Q4_0), 256, 0.25),
        (in_gguf(Type.Q4_1), 256, 0.15),
    ],
    ids=["half a block", "blocks", "means", "Q4_0", "Q4_1"],
)
def test_knowing_the_inputs_helps(rounded: Rounded, K: int, most: float) -> None:
    """Rounding errors in large directions are made up for elsewhere."""
    (inputs, covariance), weight = correlated_inputs(K), weights(48, K)
    error = [(inputs @ (rounded(weight, known) - weight).T).norm() for known in (None, covariance)]
    assert error[1] < most * error[0]
    assert rounded(torch.zeros(2, K), covariance).abs().max() < 1e-6
    unused = InputCovariance(torch.zeros(K, K))
    assert torch.isfinite(rounded(weight, unused)).all()


@pytest.mark.parametrize("minimum", [False, True])
def test_scales_and_minima_are_the_best_for_their_bits(minimum: bool) -> None:
    """No single scale or minimum can move and bring the outputs nearer."""
    (inputs, covariance), weight = correlated_inputs(96), weights(24, 96)
    if minimum:
        q, scales, minima = quantize_with_minimum(weight, 32, covariance=covariance)
        levels = q.float()
    else:
        blocks = quantize(weight, 4, 32, covariance=covariance)
        q, zeros = block_quantizer.unpacked(blocks)
        scales, minima = blocks.scales, torch.zeros(24, 3)
        levels = q.float() - zeros.float().repeat_interleave(32, 1)

    def errors(scales: torch.Tensor, minima: torch.Tensor) -> torch.Tensor:
        return (inputs @ (on_grid(levels, scales, minima) - weight).T).square().sum(0)  # of each output

    best = errors(scales, minima)
    for change in 0.03 * torch.cat([torch.eye(3), -torch.eye(3)]):  # of each block
        assert (errors(scales * (1 + change), minima) > best).all()
        if minimum:
            assert (errors(scales, minima * (1 + change)) > best).float().mean() > 0.9


def test_a_grid_with_minima_is_found_again() -> None:
    exact = q4_1(96, 128)
    assert has_minima(exact, 32)
    assert has_minima(exact + 0.005 * weights(96, 128, seed=1), 32)  # as a low-rank change adds
    assert not has_minima(weights(96, 128), 32)
    assert not has_minima(exact[:, :120], 32)  # no whole blocks
    back = on_grid(*quantize_with_minimum(exact, 32))
    assert (back - exact).abs().max() < 2e-3  # float16's steps
    assert (with_means(exact) - exact).norm() < 0.2 * (in_blocks(exact) - exact).norm()


def test_a_base_keeps_its_grid_if_it_has_one() -> None:
    model = toy_model(hidden_size=64, intermediate_size=96)
    assert fitted(model) == plan_for("int4")
    for module in model.base.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = q4_1(*module.weight.shape)
    assert fitted(model).grid == 32
    assert fitted(model, block_size=64).grid == 0  # as asked
    assert fitted(model, "int8").grid == 0
    assert fitted(model, prefer="speed").grid == 0
    for options, form, sizes in (
        ({}, GridForm, (32, 64, 32, 32)),
        ({"prefer": "speed"}, BlockForm, (32, 64, 64, 32)),  # integer zero points: they average nothing
    ):
        own, _ = apply_plan(model, fitted(model, **options))
        for layer in own.base.layers:
            products = layer.self_attn.packed.linear, layer.self_attn.o_proj, layer.mlp.packed.linear
            forms = [product.form for product in (*products, layer.mlp.down_proj)]
            assert [type(each) for each in forms] == [form] * 4
            assert [(each.bits, each.size) for each in forms] == [(4, size) for size in sizes]
            means = [getattr(each, "means", None) is not None for each in forms]
            assert means == [form is GridForm and each is not forms[1] for each in forms]  # o_proj has none
            for each in forms:
                rows, columns = each.dense().shape
                assert each.linear(torch.ones(1, 1, columns)).shape == (1, 1, rows)
        with torch.no_grad():
            wanted = model.base.layers[0].self_attn.k_proj.weight
            packed = own.base.layers[0].self_attn.packed
            keys = packed.linear.form.dense().split(packed.widths)[1]
        assert (keys - wanted).norm() < (0.02 if form is GridForm else 0.1) * wanted.norm()


def test_a_head_has_fewer_bits_for_rare_tokens() -> None:
    model = toy_model(hidden_size=64, draft_vocab_size=20)
    plan = fitted(model)
    assert plan.frequent_rows == 40
    assert fit_plan(plan_for("int4"), model, tiers=False).frequent_rows == 0  # --keep-head
    assert fitted(model, "int8").frequent_rows == 0
    for size, narrow in ((100, True), (2000, False)):  # larger than the layers: in whole blocks
        assert ("head" in fitted(toy_model(vocab_size=size)).narrow_layers) == narrow
    for size in (0, 60):  # of 97 tokens: twice the draft vocabulary is all
        assert fitted(toy_model(draft_vocab_size=size)).frequent_rows == 0
    _, vocabulary = apply_plan(model, plan)
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
        _, vocabulary = apply_plan(model, fitted(model, **wanted))
        assert vocabulary.head.rare.size == size


def test_plans() -> None:
    plan = plan_for("int4")
    assert (plan.base, plan.head) == ("int4", "int8")
    assert plan_for("int4", keep_head="int4").head == "int4"
    assert plan_for("fp32").block_size == 0
    former = Former(plan, packed=True)
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
