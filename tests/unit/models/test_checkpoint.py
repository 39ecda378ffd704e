"""Checkpoints to disk and back, and everything that can be wrong with one."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_checkpoints import (
    TEMPLATE,
    cut,
    edit_json,
    edit_tensors,
    removed,
    same_outputs,
    same_weights,
    save,
    with_nan,
    write_hf,
    write_tokenizer,
)
from toy_models import toy_model

import hamburger_edge
from hamburger_edge.errors import CheckpointError, ConfigError, MissingExtraError
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.checkpoints import built_in, checkpoint
from hamburger_edge.models.checkpoints.checkpoint import check_target, load_checkpoint, resolve

BESIDE = {"kind": "path", "path": "../base"}

# -- our own format ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"draft_vocab_size": 20}, {"micro_final_norm": False, "tied_head": False}, {"merge_residual": "last"}],
)
def test_embedded_checkpoint_round_trips(changes: dict[str, Any], tmp_path: Path) -> None:
    model = toy_model(**changes)
    folder = save(tmp_path / "saved", model)
    loaded = load_checkpoint(str(folder))
    same_weights(loaded.model, model)
    same_outputs(loaded.model, model)
    assert not loaded.model.training
    assert loaded.model.config == model.config
    assert loaded.tokenizer == folder / "tokenizer.json"
    assert loaded.chat_template == TEMPLATE
    assert loaded.manifest == json.loads((folder / "hamburger.json").read_text(encoding="utf-8"))
    assert loaded.manifest["provenance"] == {"steps": 12, "note": "é"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["saved", "tokenizer.json"]


@pytest.mark.parametrize(("rows", "tolerance"), [("fp16", 1e-3), ("int8", 2e-2)])
def test_narrow_rows(rows: Any, tolerance: float, tmp_path: Path) -> None:
    model = toy_model()
    model.base.embed_tokens.weight.data[3] = 0  # a row of zeros has no scale of its own
    folder = save(tmp_path / "saved", model, rows=rows)
    same_weights(load_checkpoint(folder).model, model, tolerance * 4)
    stored = load_file(folder / "graft.safetensors")
    expected = {"fp16": torch.float16, "int8": torch.int8}[rows]
    assert stored["micro.layers.0.mlp.up_proj.weight"].dtype == expected
    assert stored["micro.norm.weight"].dtype == torch.float32


def test_loading_keeps_one_copy_of_the_base() -> None:
    """The model is built around the tensors that were read; nothing is initialised and then overwritten."""
    state = {name: tensor.clone() for name, tensor in toy_model().state_dict().items()}
    built = checkpoint.build(toy_model().config, state)
    assert built.base.embed_tokens.weight.data_ptr() == state["base.embed_tokens.weight"].data_ptr()
    same_outputs(built, toy_model())


def test_base_by_path_with_changes(tmp_path: Path) -> None:
    model = toy_model()
    write_hf(tmp_path / "base", model)
    outputs, inputs = model.base.layers[0].self_attn.q_proj.weight.shape
    down, up = torch.randn(2, inputs), torch.randn(outputs, 2)
    delta = {
        "layers.0.self_attn.q_proj.weight.lora_a": down,
        "layers.0.self_attn.q_proj.weight.lora_b": up,
        "norm.weight.delta": torch.full((32,), 0.5),
    }
    model.base.layers[0].self_attn.q_proj.weight.data += up @ down
    model.base.norm.weight.data += 0.5
    folder = save(tmp_path / "saved", model, base=BESIDE, base_delta=delta, tokenizer=None)
    assert not (folder / "base.safetensors").exists()
    loaded = load_checkpoint(folder)
    same_weights(loaded.model, model, 1e-6)
    assert loaded.tokenizer == folder / "../base" / "tokenizer.json"

    elsewhere = save(
        tmp_path / "far", model, base={"kind": "path", "path": str(tmp_path / "base")}, base_delta=delta
    )
    same_weights(load_checkpoint(elsewhere).model, model, 1e-6)


def test_a_checkpoint_and_the_base_beside_it_move_together(tmp_path: Path) -> None:
    """It held the absolute path of a base that lies in a folder."""
    model = toy_model()
    base = write_hf(tmp_path / "here" / "base", model)
    reference = {"kind": "path", "path": str(base)}
    (tmp_path / "here" / "deeper").mkdir()
    folder = save(tmp_path / "here" / "deeper" / "saved", model, base=reference)
    assert str(tmp_path) not in (folder / "hamburger.json").read_text()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = tmp_path / "there" / "deeper" / "saved"
    same_weights(load_checkpoint(moved).model, model, 1e-6)
    (tmp_path / "there" / "base").rename(tmp_path / "there" / "gone")
    with pytest.raises(CheckpointError, match=r"base: no such file or folder, .*put the base back there"):
        load_checkpoint(moved)


def test_a_base_that_was_exchanged_is_refused(tmp_path: Path) -> None:
    model = toy_model()
    base = load_base(write_hf(tmp_path / "base", model))
    folder = save(tmp_path / "saved", model, base={**BESIDE, "sha256": base.sha256})
    same_weights(load_checkpoint(folder).model, model, 1e-6)
    model.base.norm.weight.data += 0.5
    write_hf(tmp_path / "base", model)
    with pytest.raises(CheckpointError, match=r"not the weights that .* was trained on"):
        load_checkpoint(folder)


def test_base_of_other_dimensions_is_refused(tmp_path: Path) -> None:
    model = toy_model()
    write_hf(tmp_path / "base", model, rope_theta=5e5)
    folder = save(tmp_path / "saved", model, base=BESIDE)
    with pytest.raises(CheckpointError, match=r"rope_theta is 500000\.0, but .* needs a base with 10000\.0"):
        load_checkpoint(folder)


UP = "layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ({"layers.9.norm.weight.delta": (32,)}, r"unknown tensor layers\.9\.norm\.weight\.delta"),
        ({"norm.weight.scale": (32,)}, r"unknown tensor norm\.weight\.scale"),
        ({"norm.weight.delta": (31,)}, r"shape \[31\], expected \[32\]"),
        ({f"{UP}.lora_a": (2, 32)}, r"missing tensor layers\.0\.mlp\.up_proj\.weight\.lora_b"),
        ({f"{UP}.lora_b": (48, 2)}, r"missing tensor layers\.0\.mlp\.up_proj\.weight\.lora_a"),
        (
            {f"{UP}.lora_a": (2, 32), f"{UP}.lora_b": (48, 3)},
            r"lora_b has shape \[48, 3\], expected \[48, 2\]",
        ),
        ({"norm.weight.lora_a": (2, 32), "norm.weight.lora_b": (1, 2)}, "norm.weight.lora"),
    ],
)
def test_bad_changes_are_named(delta: dict[str, tuple[int, ...]], message: str, tmp_path: Path) -> None:
    tensors = {name: torch.ones(shape) for name, shape in delta.items()}
    model = toy_model()
    write_hf(tmp_path / "base", model)
    with pytest.raises(CheckpointError, match=message):
        save(tmp_path / "refused", model, base=BESIDE, base_delta=tensors)
    assert not (tmp_path / "refused").exists()
    folder = save(tmp_path / "saved", model, base=BESIDE)
    save_file(tensors, folder / "base_delta.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


manifest = partial(edit_json, "hamburger.json")
graft = partial(edit_tensors, "graft.safetensors")
BAD_FOLDERS = {
    "no manifest": (removed("hamburger.json"), "holds no hamburger.json"),
    "newer format": (manifest(format=2), "format 2, this version reads 1"),
    "base without a name": (manifest(base={"kind": "fetch"}), "has no name or path"),
    "base without a path": (manifest(base={"kind": "path"}), "has no name or path"),
    "absent base": (manifest(base={"kind": "path", "path": "../gone"}), "no such file"),
    "escaping tokenizer": (manifest(tokenizer="../t.json"), "not a plain file name"),
    "no tokenizer": (manifest(tokenizer=None), "has a tokenizer.json"),
    "tokenizer gone": (removed("tokenizer.json"), "tokenizer.json: not a tokenizer"),
    "wrong vocabulary": (
        lambda folder: write_tokenizer(folder / "tokenizer.json", 98),
        "token id 97, but the model's embedding ends at 96",
    ),
    "graft gone": (removed("graft.safetensors"), "graft.safetensors: no such file"),
    "graft cut": (cut("graft.safetensors", 0.5), "graft.safetensors: truncated"),
    "missing": (graft(embedder__places=None), "missing tensor embedder.places"),
    "unknown": (graft(extra=lambda _: torch.ones(2)), "unknown tensor extra"),
    "mis-shaped": (
        graft(stop_head__4__bias=lambda _: torch.ones(2)),
        r"stop_head\.4\.bias has shape \[2\], but the configuration makes it \[1\]",
    ),
    "NaN": (graft(micro__norm__weight=with_nan), "micro.norm.weight holds NaN"),
    "NaN in the base": (edit_tensors("base.safetensors", norm__weight=with_nan), "norm.weight holds NaN"),
    "scale gone": (graft(embedder__places=lambda t: t.char()), "missing tensor embedder.places.scale"),
    "no draft vocabulary": (graft(draft_vocab=None), "missing tensor draft_vocab"),
    "repeating draft vocabulary": (graft(draft_vocab=lambda t: t.clamp(max=3)), "repeats token ids"),
    "float draft vocabulary": (graft(draft_vocab=lambda t: t.float()), "torch.float32"),
    "short draft vocabulary": (graft(draft_vocab=lambda t: t[:5]), r"\[5\], expected"),
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_damaged_checkpoints_are_named(case: str, tmp_path: Path) -> None:
    damage, message = BAD_FOLDERS[case]
    folder = save(tmp_path / "saved", toy_model(draft_vocab_size=20))
    damage(folder)
    with pytest.raises((CheckpointError, ConfigError), match=message) as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_unknown_name_lists_the_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo").mkdir()
    zoo = save(tmp_path / "zoo" / "tiny", toy_model())
    monkeypatch.setattr(built_in, "ZOO", zoo.parent)
    assert resolve("tiny") == zoo
    assert load_checkpoint("tiny").path == zoo
    with pytest.raises(CheckpointError, match=r"tinny: no such folder, .* \(known: tiny\)"):
        resolve("tinny")


def test_built_in_names_without_the_zoo_say_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_in, "ZOO", tmp_path / "not installed")
    monkeypatch.chdir(tmp_path)
    for name in built_in.NAMES:
        with pytest.raises(MissingExtraError, match=rf"{name} is not installed: .*pip install \./models/zoo"):
            resolve(name)
        with pytest.raises(MissingExtraError, match=rf"built-in model {name} is not installed"):
            hamburger_edge.load(name)
    with pytest.raises(CheckpointError, match=r"tinny: no such folder, .* \(known: none\)"):
        resolve("tinny")
    mine = save(tmp_path / "tiny", toy_model())  # a checkpoint of that name is opened
    assert resolve("tiny") == Path("tiny")
    assert load_checkpoint("tiny").path.absolute() == mine


# -- saving --------------------------------------------------------------------------------------------


def test_saving_twice_replaces(tmp_path: Path) -> None:
    save(tmp_path / "saved", toy_model(0))
    folder = save(tmp_path / "saved", toy_model(1))
    same_weights(load_checkpoint(folder).model, toy_model(1))


def test_a_failing_save_leaves_the_old_one(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", toy_model())
    broken = toy_model()
    broken.micro.norm.weight.data[0] = float("inf")
    with pytest.raises(CheckpointError, match=r"micro\.norm\.weight holds NaN or infinity and is not saved"):
        save(folder, broken)
    with pytest.raises(CheckpointError, match="embedding ends at 96"):
        save(folder, toy_model(), tokenizer=write_tokenizer(tmp_path / "large.json", 500))
    same_weights(load_checkpoint(folder).model, toy_model())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.json", "saved", "tokenizer.json"]


def test_saving_deletes_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"holds thesis\.txt, which saving would delete"):
        save(tmp_path / "home", toy_model())
    assert (tmp_path / "home" / "thesis.txt").exists()
    (tmp_path / "diary").write_text("dear")
    with pytest.raises(CheckpointError, match="diary: is a file, which saving would delete"):
        save(tmp_path / "diary", toy_model())
    assert (tmp_path / "diary").read_text() == "dear"
    with pytest.raises(CheckpointError, match="diary is not a writable folder"):
        check_target(tmp_path / "diary" / "new")


def test_values_too_large_for_16_bits(tmp_path: Path) -> None:
    model = toy_model()
    model.embedder.query.weight.data[0, 0] = 1e6
    with pytest.raises(CheckpointError, match=r"embedder\.query\.weight does not fit 16 bits"):
        save(tmp_path / "saved", model, rows="fp16")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_files_have_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        folder = save(tmp_path / "c", toy_model())
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.safetensors")} == {0o640}
