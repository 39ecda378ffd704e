"""A checkpoint becomes a bundle or nothing, however many bits its base is held in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from helpers.places import contents, environment, names
from helpers.toys.exports import export
from helpers.toys.toy_bundles import (
    CHANGES,
    ONE_LAYER,
    save_toy,
    saved_toy,
    saved_with_fewer_layers,
    saved_with_fewer_tokens,
    toy_checkpoint,
)
from helpers.toys.toy_checkpoints import same_outputs, write_hf, write_lightning
from helpers.toys.toy_tasks import write_base

import hamburger_edge
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.cli.main import main
from hamburger_edge.errors import ConfigError, ContextFullError, HamburgerError, InputError, ParityError
from hamburger_edge.export import pipeline
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.export.parity.gate import verify
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.checkpoints import lightning
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.delta import add_delta
from hamburger_edge.runtimes.onnx.onnx_backend import open_bundle


def test_ordinary_model_is_exported_as_a_plain_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Hugging Face folder and a GGUF file with the same weights answer alike, in every mode."""

    def answers(source: Path) -> list[list[int]]:
        out = tmp_path / f"{source.name}-bundle"
        assert main(["export", str(source), "-o", str(out), "--precision", "fp32"]) == 0
        with hamburger_edge.load(out, threads=1) as model:
            assert model.info.max_group_tokens == 1
            asked = ({"mode": mode, "max_tokens": 12} for mode in ("plain", "verify", "merge"))
            return [model.generate("Hello, hello, hello", **how).tokens for how in asked]

    base = write_base(tmp_path / "base")
    plain, *others = answers(base)
    assert others == [plain, plain]
    files = export(str(base), tmp_path / "files", formats=["gguf"], precision="fp32", verify=False)
    assert sorted(path.name for path in files.glob("*.gguf")) == ["base.gguf"]
    gguf = tmp_path / "alone" / "model.gguf"
    gguf.parent.mkdir()
    for name in ("tokenizer.json", "chat_markup.json"):
        shutil.copy(base / name, gguf.parent / name)
    shutil.copy(files / "base.gguf", gguf)
    assert answers(gguf) == [plain, plain, plain]
    command = ["export", str(base), "-o", str(tmp_path / "other"), "--assembly", "--precision", "int8"]
    assert main(command) == 1
    assert "export without --assembly" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_existing_target_is_refused(bundles: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint")
    taken = tmp_path / "taken"
    shutil.copytree(bundles(**CHANGES), taken)
    with pytest.raises(InputError, match="--force"):
        export(checkpoint, taken)
    other = tmp_path / "other"
    other.mkdir()
    for name, text in (("letter.txt", "dear"), ("manifest.json", '{"name": "of a browser extension"}')):
        (other / name).write_text(text)
        with pytest.raises(InputError, match="not a bundle"):
            export(checkpoint, other, force=True)
    assert (other / "letter.txt").read_text() == "dear"
    (taken / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt, which exporting would delete"):
        export(checkpoint, taken, force=True)
    assert names(tmp_path) == ["checkpoint", "other", "taken"]


@pytest.mark.parametrize("runtime", ["onnx", "llamacpp"])
@pytest.mark.parametrize("saved", [saved_with_fewer_layers, saved_with_fewer_tokens])
def test_export_of_a_checkpoint_that_keeps_parts_of_its_base_answers_as_pytorch(
    saved: Callable[..., Path], runtime: str, tmp_path: Path
) -> None:
    """The export is verified against PyTorch. A tap reads the last of three layers."""
    if runtime == "llamacpp":
        pytest.importorskip("llama_cpp")
    wide = {"hidden_size": 64, "intermediate_size": 96, "draft_vocab_size": 100, "taps": (0, 2)}
    checkpoint = saved(tmp_path / "toy", **wide)
    formats = ["gguf"] if runtime == "llamacpp" else ["onnx"]
    bundle = export(checkpoint, tmp_path / "bundle", formats=formats, precision="fp32", verify=True)
    assert load_manifest(bundle).model.num_layers == 3
    options = {"kv_cache_dtype": "f32"} if runtime == "llamacpp" else {}
    with (
        hamburger_edge.load(bundle, runtime, **options) as exported,
        hamburger_edge.load(checkpoint, "torch") as reference,
    ):
        for confidence in (0.0, 1.0):
            answers = [
                model.generate("a b c", mode="merge", confidence=confidence, max_tokens=24).groups
                for model in (exported, reference)
            ]
            assert answers[0] == answers[1]


def test_export_deletes_its_own_leftovers_only_and_keeps_a_link(tmp_path: Path) -> None:
    mine, another, odd = (tmp_path / f".{name}.0123abcd.partial" for name in ("m", "m.int4", "[m]"))
    for folder in (mine, another, odd):
        folder.mkdir()
    checkpoint = toy_checkpoint(tmp_path / "toy", **ONE_LAYER)
    export(checkpoint, tmp_path / "m", formats=["gguf"], precision="f32", verify=False)
    assert [folder.exists() for folder in (mine, another, odd)] == [False, True, True]
    first = load_manifest(tmp_path / "m").gguf_fingerprint
    (tmp_path / "current").symlink_to("m")
    export(checkpoint, tmp_path / "current", formats=["gguf"], precision="f16", verify=False, force=True)
    assert (tmp_path / "current").is_symlink()
    assert load_manifest(tmp_path / "m").gguf_fingerprint != first


@pytest.mark.parametrize(
    ("part", "error", "options"),
    [
        ("check_parity", ParityError("base.logits"), {"precision": "fp32"}),
        ("check_graphs", ParityError("base.logits"), {"precision": "fp32", "verify": "graphs"}),
        ("check_parity", ParityError("base.logits"), {"precision": "f32", "formats": ["gguf"]}),
        ("write_gguf", OSError(28, "No space left on device"), {"precision": "f32", "formats": ["gguf"]}),
    ],
)
def test_failed_export_leaves_no_file(
    part: str, error: Exception, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pipeline, part, fail)
    checkpoint = toy_checkpoint(tmp_path / "c", **ONE_LAYER)
    with pytest.raises(HamburgerError, match=r"No space left|base\.logits"):
        export(checkpoint, tmp_path / "b", **options)
    assert names(tmp_path) == ["c"]


def test_bundle_stores_the_positions_of_its_context_length(tmp_path: Path) -> None:
    """All 131,072 positions of a base were 33 MB of weights, whatever the bundle was for."""
    toy = toy_checkpoint(tmp_path / "toy", **ONE_LAYER)
    checkpoint = save_toy(tmp_path / "checkpoint", toy)
    short = export(checkpoint, tmp_path / "short", precision="fp32", context_length=128, verify=False)
    assert load_manifest(short).model.context_length == 128
    graph = onnx.load(short / "base.onnx", load_external_data=False).graph
    shapes = [list(tensor.dims) for tensor in graph.initializer]
    assert shapes.count([128, 8]) == 2  # cosines and sines, for half of a head each
    with hamburger_edge.load(short, threads=1) as model, pytest.raises(ContextFullError, match="has 128"):
        model.generate([5] * 129)
    report = verify(short, checkpoint)  # says the same up to its end
    assert report.identical == report.prompts


@pytest.mark.parametrize(
    ("rule", "options", "positions"),
    [
        ("token", {"flavor": "portable", "cache_slots": 64}, 256),  # groups of four in every slot
        ("slot", {"flavor": "portable", "cache_slots": 64}, 64),
        ("token", {"flavor": "portable"}, 512),
        ("token", {"flavor": "portable", "cache_slots": 64, "formats": ("onnx", "gguf")}, 512),
        ("slot", {"flavor": "portable", "context_length": 100}, 100),
    ],
)
def test_positions_are_limited_by_the_cache(
    rule: str, options: dict[str, Any], positions: int, tmp_path: Path
) -> None:
    checkpoint = toy_checkpoint(tmp_path / "toy", position_rule=rule)
    model = pipeline._for_context(checkpoint, ExportOptions(**options)).model
    assert model.config.base.context_length == len(model.base_cos) == len(model.base_sin) == positions
    assert checkpoint.model.config.base.context_length == 512  # as it was
    assert torch.equal(model.base_cos, checkpoint.model.base_cos[:positions])


def test_unsupported_checkpoint_is_refused(tmp_path: Path) -> None:
    toy = toy_checkpoint(tmp_path / "toy")
    for option, wrong in (("context_length", (63, 513, "100")), ("cache_slots", (-5, 16, 10**9))):
        for length in wrong:
            with pytest.raises(InputError, match=f"{option} must be a whole number, 64 or more and at most"):
                export(toy, tmp_path / "m", flavor="portable", **{option: length})
    narrow = toy_checkpoint(tmp_path / "narrow", head_dim=12, position_rule="slot")
    with pytest.raises(ConfigError, match=r"12.*--flavor portable"):
        export(narrow, tmp_path / "m", precision="fp32")
    normed = toy_checkpoint(tmp_path / "normed", qk_norm=True)
    with pytest.raises(ConfigError, match="normalises queries and keys"):
        export(normed, tmp_path / "m", formats=["gguf"], precision="f32")
    assert names(tmp_path) == ["narrow", "normed", "toy"]


def test_command_line_exports_verifies_and_runs_a_lightning_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All graphs were traced, and then the draft index was looked for below the file."""
    monkeypatch.setattr(lightning, "LAYERS", 2)  # 16 take long to trace
    monkeypatch.setattr(lightning, "TAPS", (0, 1))
    small = {"num_layers": 2, "taps": (0, 1), "micro_layers": 1}
    checkpoint = write_lightning(tmp_path / "reference" / "last.ckpt", **small)
    text = [CalibrationExample(f"the cat {n}", "hello world " * 8) for n in range(12)]
    write_calibration(checkpoint.parent / CALIBRATION, text)

    def command(*words: object) -> str:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    def answer(model: Path) -> Any:
        options = ["--mode", "merge", "--confidence", "0.4", "--max-tokens", "24", "--threads", "1"]
        return json.loads(command("run", model, "the cat sat", "--json", *options))

    reference = answer(checkpoint)
    assert len(reference["groups"]) < len(reference["tokens"]) == 24
    for precision in ("fp32", "int8"):
        bundle = tmp_path / precision
        command("export", checkpoint, "-o", bundle, "--precision", precision, "--no-verify")
        assert f"passed at {precision}" in command("verify", bundle, "--against", checkpoint)
        assert len(answer(bundle)["tokens"]) == 24
    found = answer(tmp_path / "fp32")
    assert (found["groups"], found["text"]) == (reference["groups"], reference["text"])
    with pytest.raises(InputError, match=r"last\.ckpt: .* another model: export without --assembly"):
        export(checkpoint, tmp_path / "bundle", precision="int8", assembly=True)
    assert names(tmp_path) == ["fp32", "int8", "reference"]


@pytest.mark.slow
def test_concurrent_exports_to_one_folder_do_not_mix(tmp_path: Path) -> None:
    """Of two exports started together, one writes the bundle, and the other reports that it exists."""
    checkpoint = saved_toy(tmp_path / "checkpoint")
    command = [sys.executable, "-m", "hamburger_edge", "export", checkpoint, "-o", tmp_path / "bundle"]
    command += ["--precision", "fp32", "--no-verify"]
    both = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(OMP_NUM_THREADS="1"))
        for _ in range(2)
    ]
    said = {process.communicate()[1]: process.returncode for process in both}
    [refused] = [text for text, code in said.items() if code]
    assert "use --force" in refused
    open_bundle(tmp_path / "bundle", verify=True)[0].close()


# -- a base that is stored in 16 bits is held so while it is exported: half the memory, the same bundle ------


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, Path]:
    """A checkpoint with an embedded base, and the same with its base as a separate Hugging Face folder."""
    folder = tmp_path_factory.mktemp("half")
    toy = toy_checkpoint(folder, draft_vocab_size=100, head_dim=32, **ONE_LAYER)
    embedded = save_toy(folder / "embedded", toy, rows="fp16")
    base = write_hf(folder / "base", toy.model.to(torch.bfloat16))
    reference = {"kind": "path", "path": str(base), "sha256": load_base(base).sha256}
    toy.model.float()
    return {torch.float16: embedded, torch.bfloat16: save_toy(folder / "beside", toy, base=reference)}


def test_base_at_16_bits_computes_the_same(halves: dict[torch.dtype, Path]) -> None:
    for dtype, source in halves.items():
        whole, half = load_checkpoint(source).model, load_checkpoint(source, half=True).model
        dtypes: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
        for name, tensor in half.state_dict().items():
            dtypes[name.startswith("base.") and name.endswith("_proj.weight")].add(tensor.dtype)
        assert dtypes == {True: {dtype}, False: {torch.float32, torch.int64}}
        same_outputs(half, whole)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int4"},
        {"precision": "int8", "verify": True},  # the gate accepts it
        {"precision": "q4_1", "formats": ["gguf"]},
    ],
    ids=lambda options: options["precision"],
)
def test_base_at_16_bits_gives_the_same_bundle(
    halves: dict[torch.dtype, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    """`export` loads a folder itself; a checkpoint that is given is float32 throughout."""
    beside = halves[torch.bfloat16]
    one = export(beside, tmp_path / "one", **{"verify": False, **options})
    other = export(load_checkpoint(beside), tmp_path / "other", **{**options, "verify": False})
    assert contents(one) == contents(other)


def test_changes_to_a_base_are_added_at_32_bits(tmp_path: Path) -> None:
    """The change is below what 16 bits resolve."""
    state = {"norm": torch.ones(2, 2, dtype=torch.float16)}
    change = np.full((2, 2), 2**-14, np.float32)
    add_delta(state, {"norm.delta": change}, tmp_path)
    assert torch.equal(state["norm"], torch.full((2, 2), 1 + 2**-14))
