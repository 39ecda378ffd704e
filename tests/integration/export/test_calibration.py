"""Covariances and ranges of activations: text that is read layer by layer gives those of whole passes."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError
from hamburger_edge.export.graph_stages import plan_graphs, quantize_model
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.export.precision_plan import apply_plan, fit_plan, make_plan, needs_covariance
from hamburger_edge.export.quantization import covariances
from hamburger_edge.export.quantization.activation_ranges import measure_ranges
from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.calibration_batches import (
    calibration_batches,
    calibration_texts,
    judging_texts,
    other_batches,
)
from hamburger_edge.export.quantization.covariances import covariances_by_stage, stage_paths
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.input_ranges import HEAD
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.support.progress import no_progress


@pytest.fixture(scope="module")
def tiny() -> Checkpoint:
    return load_checkpoint("tiny")


def from_whole_passes(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The mean of x x^T before every layer."""
    rows: dict[str, list[Tensor]] = defaultdict(list)

    def listen(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hear(module: nn.Module, inputs: Any, output: Tensor) -> None:
            rows[name].append((output if name == HEAD else inputs[0]).flatten(0, -2))

        return hear

    model = checkpoint.model
    heard = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    heard[HEAD] = model.base.norm
    hooks = [module.register_forward_hook(listen(name)) for name, module in heard.items()]
    with torch.no_grad():
        for batch in calibration_batches(checkpoint):
            model(batch)
    for hook in hooks:
        hook.remove()
    together = {name: torch.cat(parts) for name, parts in rows.items()}
    return {name: x.T @ x / len(x) for name, x in together.items()}


@pytest.mark.parametrize(
    ("processor", "error"), [({}, 1e-5), ({"avx512_bf16": True}, 0.02)], ids=["fp32", "bf16"]
)
def test_covariances_are_those_of_whole_passes(
    tiny: Checkpoint, processor: dict[str, bool], error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    expected = from_whole_passes(tiny)
    measured: set[str] = set()
    stages = zip(stage_paths(tiny.model), covariances_by_stage(tiny, expected.keys()), strict=True)
    for stage, covariances_of in stages:
        assert covariances_of or stage == "embedder"
        for name, covariance in covariances_of.items():
            assert name.startswith(stage)
            assert torch.equal(covariance.mean, covariance.mean.T)
            difference = (covariance.mean - expected[name]).abs().max()
            assert difference <= error * expected[name].abs().max(), name
        measured |= covariances_of.keys()
    assert {name for name in expected if not name.startswith("stop_head.")} == measured


def test_calibration_text_of_the_checkpoint_is_used(tiny: Checkpoint, tmp_path: Path) -> None:
    text = [
        CalibrationExample("What is 7 plus 8?", "7 plus 8 is 15."),
        CalibrationExample("Hi!", "Hello, you.", "Be brief."),
    ]
    write_calibration(tmp_path / CALIBRATION, text)
    own = replace(tiny, folder=tmp_path)
    tokenizer = Tokenizer(own.tokenizer)
    said = [
        "".join(tokenizer.decode(list(group)) for group in (*prompt, *answer))
        for prompt, answer in calibration_texts(own)
    ]
    assert len(said) == 2
    assert "What is 7 plus 8?" in said[0]
    assert said[0].endswith("7 plus 8 is 15.")
    assert said[1].index("Be brief.") < said[1].index("Hi!") < said[1].index("Hello, you.")
    assert sum(len(batch.groups) for batch in calibration_batches(own)) == 2
    for line, fault in (('{"prompt": "", "answer": ""}', "holds no text"), ('{"prompt": "a"}', "line 1")):
        (tmp_path / CALIBRATION).write_text(line)
        with pytest.raises(ConfigError, match=fault):
            list(calibration_texts(own))


@pytest.mark.parametrize(("conversations", "to_fit", "to_judge"), [(0, 128, 26), (11, 11, 26), (12, 10, 2)])
def test_parity_text_differs_from_the_calibration_text(
    tiny: Checkpoint, tmp_path: Path, conversations: int, to_fit: int, to_judge: int
) -> None:
    """Weights and cache ranges were fitted to the very conversations that judged them."""
    if conversations:
        text = [CalibrationExample(f"What is {n}?", f"{n} is {n}.") for n in range(conversations)]
        write_calibration(tmp_path / CALIBRATION, text)
    checkpoint = replace(tiny, folder=tmp_path)
    fitted = list(calibration_texts(checkpoint))
    judged = list(judging_texts(checkpoint))
    assert not [conversation for conversation in judged if conversation in fitted]
    assert (len(fitted), len(judged)) == (to_fit, to_judge)


def test_covariances_of_some_layers_are_of_their_stages_alone(tiny: Checkpoint) -> None:
    layers = ["base.layers.0.mlp.down_proj", "base.layers.2.mlp.down_proj", "base.layers.2.self_attn.q_proj"]
    measured = [sorted(stage) for stage in covariances_by_stage(tiny, layers)]
    base = len(tiny.model.base.layers)
    assert measured == [[], layers[:1], [], layers[1:], *[[]] * (base - 3), []]


def test_export_holds_the_covariances_of_one_layer(tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: it held those of all layers, 6.4 GB for a base of a billion weights."""
    alive: weakref.WeakSet[InputCovariance] = weakref.WeakSet()
    counts: list[int] = []

    class Counted(InputCovariance):
        def __init__(self, mean: Tensor):
            super().__init__(mean)
            alive.add(self)

    monkeypatch.setattr(covariances, "InputCovariance", Counted)
    plan = fit_plan(make_plan("int4"), tiny.model)
    stages = covariances_by_stage(tiny, needs_covariance(tiny.model, plan))
    apply_plan(tiny.model, plan, stages, progress=lambda *_: counts.append(len(alive)))
    assert 0 < max(counts) <= 4  # inputs of queries, keys and values; of o_proj; of gate and up; of down_proj


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_cache_ranges_include_other_languages_and_code(tiny: Checkpoint, precision: str) -> None:
    """They came from English answers alone, and values of other text were clipped."""
    plan = plan_graphs(tiny, ExportOptions(precision=precision))
    scales = quantize_model(tiny, plan, no_progress).ranges.cache
    ranges = CacheRanges(tiny.model)
    with torch.no_grad():
        for batch in other_batches(tiny):
            tiny.model.features(batch)
    ranges.close()
    assert ranges.largest.keys() == scales.keys()
    for name, largest in ranges.largest.items():
        assert (largest <= 127.01 * scales[name]).all(), name
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in tiny.model.modules())


def test_only_a_task_has_ranges_of_inputs(tiny: Checkpoint) -> None:
    """Chat loses less than half if each row has its own scale."""
    assert measure_ranges(tiny, inputs=True, cache=False).inputs == {}
    requests = ChatTemplate(before_user="<|im_start|>", after_user="<|im_end|>", after_answer="<|im_end|>")
    task = replace(tiny, chat_template=requests.to_json())
    ranges = measure_ranges(task, inputs=True, cache=False).inputs
    assert {HEAD, "base.layers.0.self_attn.q_proj", "base.layers.3.mlp.up_proj"} <= set(ranges)
    assert all(largest > 0 for largest in ranges.values())
