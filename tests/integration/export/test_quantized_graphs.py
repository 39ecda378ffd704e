"""Quantized weights in graphs, by ONNX Runtime."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from exports import export
from quantizing import plan_for, q4_1, weights
from toy_bundles import ONE_LAYER, toy_checkpoint

from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.export.graphs.tracing import quiet
from hamburger_edge.export.precision_plan import Former, apply_plan
from hamburger_edge.export.quantization.activations import Calibration
from hamburger_edge.export.quantization.own_grid import GridForm
from hamburger_edge.export.quantization.weight_forms import (
    BlockForm,
    FormedLinear,
)


@pytest.mark.parametrize("K", [96, 576])
def test_a_layer_on_such_a_grid_computes_what_it_stands_for(K: int, tmp_path: Path) -> None:
    """Through ONNX Runtime; rows whose blocks have means of their own, since these are what is added."""
    plan = dataclasses.replace(plan_for("int4"), grid=32)
    form = Former(plan, Calibration(None), packed=True).linear("base.layers.0.mlp.up_proj", q4_1(64, K))
    assert isinstance(form, GridForm)
    inputs = weights(5, K, seed=2)[None] + weights(5, K // 32, seed=3).repeat_interleave(32, 1)[None]
    with quiet():
        torch.onnx.export(
            FormedLinear(form, None), (inputs,), tmp_path / "layer.onnx", opset_version=23, verbose=False
        )
    session = ort.InferenceSession(tmp_path / "layer.onnx")
    [out] = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    wanted = (inputs @ q4_1(64, K).T).numpy()
    assert np.square(out - wanted).mean() < 0.02**2 * np.square(wanted).mean()  # inputs are rounded to 8 bits


def test_such_a_head_is_read_and_scored_by_the_graphs(tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", draft_vocab_size=20, hidden_size=64, **ONE_LAYER)
    bundle = export(checkpoint, tmp_path / "bundle", precision="int4")
    assert load_manifest(bundle).precision.frequent_rows == 40


def test_a_base_for_speed_averages_nothing(tmp_path: Path) -> None:
    """Integer zero points, in blocks of 64 where that loses least: what is fed the same is one product."""
    checkpoint = toy_checkpoint(tmp_path / "toy", hidden_size=64, intermediate_size=96, num_layers=2)
    for module in checkpoint.model.base.layers.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = q4_1(*module.weight.shape)  # a grid of its own that is given up
    own, _ = apply_plan(checkpoint.model, plan_for("int4", prefer="speed"), Calibration(None))
    layers = own.base.layers
    for layer in layers:
        products = layer.self_attn.packed.linear, layer.self_attn.o_proj, layer.mlp.packed.linear
        forms = [product.form for product in (*products, layer.mlp.down_proj)]
        assert [(type(form), form.bits, form.size) for form in forms] == [
            (BlockForm, 4, size) for size in (32, 64, 64, 32)
        ]
    accurate = export(checkpoint, tmp_path / "accurate", precision="int4", verify=False)
    fast = export(checkpoint, tmp_path / "fast", precision="int4", prefer="speed")
    counts = [
        Counter(node.op_type for node in onnx.load(folder / "base.onnx", load_external_data=False).graph.node)
        for folder in (accurate, fast)
    ]
    means = Counter(MatMulNBits=3 * len(layers), Concat=3 * len(layers))
    assert counts[1] == counts[0] - means - Counter(Cast=counts[0]["Cast"])  # of scales in 16 bits
