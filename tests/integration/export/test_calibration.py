"""Calibration reads the text a layer at a time: the same sums as reading it at once, few of them alive."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path

import pytest
import torch
from quantizing import plan_for
from torch import Tensor, nn

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.main import main
from hamburger_edge.export.precision_plan import apply_plan, fit_plan, needs_moments
from hamburger_edge.export.quantization import activations
from hamburger_edge.export.quantization.activations import (
    HEAD,
    Calibration,
    calibration_batches,
    calibration_texts,
    judging_texts,
    other_batches,
)
from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    read_calibration,
    to_fit,
    to_judge,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint


@pytest.fixture(scope="module")
def tiny() -> Checkpoint:
    return load_checkpoint("tiny")


def at_once(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The mean of x x^T before every layer, from whole forward passes."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, x: Tensor) -> None:
        rows = x.reshape(-1, x.shape[-1])
        sums.setdefault(name, torch.zeros(rows.shape[1], rows.shape[1])).addmm_(rows.T, rows)
        counts[name] = counts.get(name, 0) + len(rows)

    model = checkpoint.model
    hooks = [
        module.register_forward_pre_hook(lambda _, given, name=name: add(name, given[0]))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    hooks.append(model.base.norm.register_forward_hook(lambda _, __, out: add(HEAD, out)))
    with torch.no_grad():
        for batch in calibration_batches(checkpoint):
            model(batch)
    for hook in hooks:
        hook.remove()
    return {name: total / counts[name] for name, total in sums.items()}


def linears(checkpoint: Checkpoint) -> list[str]:
    """In the order of reading."""
    modules = checkpoint.model.named_modules()
    names = [name for name, module in modules if isinstance(module, nn.Linear)]
    parts = ("embedder.", "base.", HEAD, "micro.", "stop_head.")
    return sorted([*names, HEAD], key=lambda name: next(i for i, p in enumerate(parts) if name.startswith(p)))


@pytest.mark.parametrize(
    ("processor", "error"), [({}, 1e-5), ({"avx512_bf16": True}, 0.02)], ids=["fp32", "bf16"]
)
def test_moments_are_those_of_whole_passes(
    tiny: Checkpoint, processor: dict[str, bool], error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    expected = at_once(tiny)
    calibration = Calibration(tiny, linears(tiny), cache=True)
    for name in linears(tiny):
        covariance = calibration.take(name)
        if name.startswith("stop_head."):  # reading does not reach it
            assert covariance is None
            continue
        assert covariance is not None
        wanted = expected[name]
        assert torch.equal(covariance.mean, covariance.mean.T)
        assert (covariance.mean - wanted).abs().max() <= error * wanted.abs().max(), name
    assert len(calibration.scales()) == 2 * len(tiny.model.base.layers)


@pytest.fixture
def own_text(tmp_path: Path) -> Path:
    """tiny, with text of its own to be rounded by."""
    folder = Path(shutil.copytree(ZOO / "tiny", tmp_path / "own"))
    text = [
        CalibrationExample("What is 7 plus 8?", "7 plus 8 is 15."),
        CalibrationExample("Hi!", "Hello, you.", "Be brief."),
    ]
    write_calibration(folder / CALIBRATION, text)
    return folder


def test_a_checkpoint_may_bring_text_of_its_own(tiny: Checkpoint, own_text: Path) -> None:
    own = load_checkpoint(own_text)
    tokenizer = Tokenizer(own.tokenizer)
    said = [
        "".join(tokenizer.decode(list(group)) for group in (*prompt, *answer))
        for prompt, answer in calibration_texts(own)
    ]
    assert len(said) == 2
    assert "What is 7 plus 8?" in said[0]
    assert said[0].endswith("7 plus 8 is 15.")
    assert said[1].index("Be brief.") < said[1].index("Hi!") < said[1].index("Hello, you.")
    layer = "base.layers.0.mlp.down_proj"
    ours, general = (Calibration(each, [layer]).take(layer) for each in (own, tiny))
    assert ours is not None
    assert general is not None
    assert not torch.allclose(ours.mean, general.mean)


@pytest.mark.parametrize("conversations", [0, 2, 12, 40])
def test_a_verdict_is_given_on_text_that_nothing_was_fitted_to(
    tiny: Checkpoint, own_text: Path, conversations: int
) -> None:
    """Weights and cache ranges were fitted to the very conversations that judged them."""
    checkpoint = load_checkpoint(own_text) if conversations else tiny
    if conversations:
        text = [CalibrationExample(f"What is {n}?", f"{n} is {n}.") for n in range(conversations)]
        write_calibration(own_text / CALIBRATION, text)
    fitted, judged = list(calibration_texts(checkpoint)), list(judging_texts(checkpoint))
    assert not [conversation for conversation in judged if conversation in fitted]
    assert len(fitted) == {0: 128, 2: 2, 12: 10, 40: 33}[conversations]
    assert len(judged) == {0: 26, 2: 26, 12: 2, 40: 7}[conversations]


@pytest.mark.parametrize("name", ["voice-commands", "proofread"])
def test_text_of_the_built_in_tasks_is_kept_for_the_verdict(name: str) -> None:
    text = read_calibration(ZOO / name / CALIBRATION)
    fitted, judged = to_fit(text), to_judge(text)
    assert len(fitted) > 4 * len(judged) > 300
    assert not {each.prompt for each in fitted} & {each.prompt for each in judged}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no text"),
        ('{"prompt": "", "answer": ""}', "holds no text"),
        ('{"prompt": "a"}', "line 1"),
    ],
)
def test_text_that_cannot_be_read_is_named(
    own_text: Path, text: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_text / CALIBRATION).write_text(text)
    assert main(["export", str(own_text), "-o", str(own_text.parent / "bundle")]) == 1
    assert fault in capsys.readouterr().err
    assert not (own_text.parent / "bundle").exists()


def test_some_layers_alone(tiny: Checkpoint) -> None:
    """Those in between are read through; what is asked for behind its stage is gone."""
    wanted = ["base.layers.0.mlp.down_proj", "base.layers.2.mlp.down_proj", "base.layers.2.self_attn.q_proj"]
    calibration = Calibration(tiny, wanted)
    assert calibration.take("base.layers.1.mlp.down_proj") is None  # not asked for: nothing is read for it
    first, *_ = (calibration.take(name) for name in wanted)
    assert first is not None
    calibration = Calibration(tiny, wanted)
    assert calibration.take(wanted[1]) is not None
    assert calibration.take(wanted[0]) is None
    assert calibration.take(wanted[2]) is not None  # the same stage's
    assert Calibration(None).take(wanted[0]) is None


def test_an_export_holds_the_moments_of_one_layer(tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """It held those of all layers at once: 6.4 GB for a base of a billion weights."""
    alive: weakref.WeakSet[InputCovariance] = weakref.WeakSet()
    stages: list[int] = []  # layers' own inputs that were summed at once

    class Counted(InputCovariance):
        def __init__(self, mean: Tensor):
            super().__init__(mean)
            alive.add(self)

    most = 0

    def look(stage: str, done: int, total: int) -> None:
        nonlocal most
        most = max(most, len(alive))

    original = activations._Sums.means

    def means(sums: activations._Sums) -> dict[str, InputCovariance]:
        assert not alive  # the stage before is gone when the next has been summed
        stages.append(len(sums.sums))
        return original(sums)

    monkeypatch.setattr(activations, "InputCovariance", Counted)
    monkeypatch.setattr(activations._Sums, "means", means)
    plan = fit_plan(plan_for("int4"), tiny.model, tiers=True)
    apply_plan(tiny.model, plan, Calibration(tiny, needs_moments(tiny.model, plan)), look)
    layers = len(tiny.model.base.layers) + len(tiny.model.micro.layers)
    assert len(stages) == layers + 2  # and embedder and head
    assert 0 < most <= max(stages) <= 4


@pytest.mark.parametrize(
    "layers", [[], ["stop_head.0", "base.layers.1.mlp.down_proj"]], ids=["none", "all read"]
)
def test_a_cache_has_room_for_what_is_not_english(tiny: Checkpoint, layers: list[str]) -> None:
    """Its ranges came from English answers alone: other languages and code were clipped."""
    calibration = Calibration(tiny, layers, cache=True)
    for layer in layers:  # whether or not all of the text has been read by then
        calibration.take(layer)
    scales = calibration.scales()
    ranges = CacheRanges(tiny.model)
    with torch.no_grad():
        for batch in other_batches(tiny):
            tiny.model.features(batch)
    ranges.close()
    assert ranges.largest.keys() == scales.keys()
    for name, largest in ranges.largest.items():
        assert (largest <= 127.01 * scales[name]).all(), name
    assert not any(module._forward_hooks for module in tiny.model.modules())  # none is left behind
