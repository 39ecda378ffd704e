"""Checkpoints to disk and back, and everything that can be wrong with one."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.places import names
from helpers.toys.toy_bundles import saved_with_fewer_layers, saved_with_fewer_tokens
from helpers.toys.toy_checkpoints import (
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
from helpers.toys.toy_models import toy_model
from helpers.toys.toy_tasks import write_base
from safetensors.torch import load_file, save_file

import hamburger_edge
from hamburger_edge.errors import CheckpointError, ConfigError, MissingExtraError
from hamburger_edge.export.assembly.weights import Weights
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.vocabulary import tokens_of
from hamburger_edge.models.checkpoints import built_in, checkpoint
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.manifest import read_manifest
from hamburger_edge.models.checkpoints.ordinary import is_ordinary
from hamburger_edge.models.checkpoints.saving import check_target
from hamburger_edge.support.strict import read_json

BESIDE = {"kind": "path", "path": "../base"}

# -- our own format ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"draft_vocab_size": 20, "merge_residual": "last"}, {"micro_final_norm": False, "tied_head": False}],
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
    assert names(tmp_path) == ["saved", "tokenizer.json"]


@pytest.mark.parametrize(("rows", "tolerance"), [("fp16", 1e-3), ("int8", 2e-2)])
def test_rows_are_stored_as_fp16_or_int8(rows: Any, tolerance: float, tmp_path: Path) -> None:
    model = toy_model()
    model.base.embed_tokens.weight.data[3] = 0  # a row of zeros has no scale
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


def test_checkpoint_and_its_base_folder_can_be_moved_together(tmp_path: Path) -> None:
    """It held the absolute path of a base that lies in a folder."""
    model = toy_model()
    base = write_hf(tmp_path / "here" / "base", model)
    q_proj = model.base.layers[0].self_attn.q_proj.weight
    down, up = torch.randn(2, q_proj.shape[1]), torch.randn(q_proj.shape[0], 2)
    delta = {
        "layers.0.self_attn.q_proj.weight.lora_a": down,
        "layers.0.self_attn.q_proj.weight.lora_b": up,
        "norm.weight.delta": torch.full((32,), 0.5),
    }
    q_proj.data += up @ down
    model.base.norm.weight.data += 0.5
    (tmp_path / "here" / "deeper").mkdir()
    options = {"base": {"kind": "path", "path": str(base)}, "base_delta": delta, "tokenizer": None}
    folder = save(tmp_path / "here" / "deeper" / "saved", model, **options)
    assert not (folder / "base.safetensors").exists()
    assert str(tmp_path) not in (folder / "hamburger.json").read_text()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = tmp_path / "there" / "deeper" / "saved"
    loaded = load_checkpoint(moved)
    same_weights(loaded.model, model, 1e-6)
    assert loaded.tokenizer == moved / "../../base" / "tokenizer.json"
    (tmp_path / "there" / "base").rename(tmp_path / "there" / "gone")
    with pytest.raises(CheckpointError, match=r"base: no such file or folder, .*put the base back there"):
        load_checkpoint(moved)


def test_other_base_is_refused(tmp_path: Path) -> None:
    model = toy_model()
    base = load_base(write_hf(tmp_path / "base", model))
    folder = save(tmp_path / "saved", model, base={**BESIDE, "sha256": base.sha256})
    same_weights(load_checkpoint(folder).model, model, 1e-6)
    unpinned = save(tmp_path / "unpinned", model, base=BESIDE)
    model.base.norm.weight.data += 0.5
    write_hf(tmp_path / "base", model, rope_theta=5e5)
    with pytest.raises(CheckpointError, match=r"not the weights that .* was trained on"):
        load_checkpoint(folder)
    with pytest.raises(CheckpointError, match=r"rope_theta is 500000\.0, but .* needs a base with 10000\.0"):
        load_checkpoint(unpinned)


def test_checkpoint_keeps_some_layers_of_its_base(tmp_path: Path) -> None:
    folder = saved_with_fewer_layers(tmp_path / "saved")
    whole = load_base(tmp_path / "base").state
    loaded = load_checkpoint(folder)
    layers = loaded.model.base.layers
    assert len(layers) == loaded.model.config.base.num_layers == 3
    for number, original in enumerate((0, 2, 4)):
        name = "self_attn.v_proj.weight"
        assert layers[number].get_parameter(name).equal(whole[f"layers.{original}.{name}"])
    changed = layers[1].self_attn.q_proj.weight
    torch.testing.assert_close(changed, whole["layers.2.self_attn.q_proj.weight"] + 0.01)
    same_weights(load_checkpoint(folder, half=True).model, loaded.model)


def test_checkpoint_keeps_some_tokens_of_its_base(tmp_path: Path) -> None:
    folder = saved_with_fewer_tokens(tmp_path / "saved")
    whole = load_base(tmp_path / "base")
    loaded = load_checkpoint(folder)
    table = loaded.model.base.embed_tokens.weight
    assert len(table) == loaded.model.config.base.vocab_size == 290 < whole.config.vocab_size
    assert whole.tokenizer is not None
    numbers = tokens_of(read_json(whole.tokenizer), whole.tokenizer)
    for token, number in tokens_of(read_json(loaded.tokenizer), folder).items():
        assert table[number].equal(whole.state["embed_tokens.weight"][numbers[token]])


def test_checkpoint_with_a_tokenizer_of_another_base_is_refused(tmp_path: Path) -> None:
    folder = saved_with_fewer_tokens(tmp_path / "saved")
    content = read_json(folder / "tokenizer.json")
    content["added_tokens"][0]["content"] = "<|foreign|>"
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"has the token '<\|foreign\|>', which .* lacks: use the"):
        load_checkpoint(folder)
    (tmp_path / "base" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"base without tokenizer\.json: put that beside its weights"):
        load_checkpoint(folder)
    edit_json("hamburger.json", tokenizer=None)(folder)
    with pytest.raises(CheckpointError, match=r"base\.cut_vocabulary needs a base elsewhere and a tokenizer"):
        load_checkpoint(folder)


def test_checkpoint_with_all_layers_lists_none(tmp_path: Path) -> None:
    write_hf(tmp_path / "base", toy_model())
    folder = save(tmp_path / "saved", toy_model(), base=BESIDE)
    assert json.loads((folder / "hamburger.json").read_text())["base"] == BESIDE


@pytest.mark.parametrize("layers", [[0, 4, 2], [0, 2, 2], [0, 2, 5], [-1, 2, 4]])
def test_wrong_layers_are_refused(layers: list[int], tmp_path: Path) -> None:
    folder = saved_with_fewer_layers(tmp_path / "saved")
    edit_json("hamburger.json", base={**BESIDE, "layers": layers})(folder)
    message = r"layers kept of the base must be increasing numbers in 0\.\.4, got " + re.escape(str(layers))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)
    with pytest.raises(CheckpointError, match=message):
        Weights(folder, read_manifest(folder / "hamburger.json"), tmp_path / "base", Folds({}))


def test_layers_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    folder = saved_with_fewer_layers(tmp_path / "saved")
    edit_json("hamburger.json", base={**BESIDE, "layers": [0, 4]})(folder)
    with pytest.raises(CheckpointError, match=r"its num_layers is 2, but .* needs a base with 3"):
        load_checkpoint(folder)
    edit_json("hamburger.json", base={"kind": "embedded", "layers": [0, 2, 4]})(folder)
    with pytest.raises(CheckpointError, match=r"holds only its own layers: delete base\.layers"):
        load_checkpoint(folder)


UP = "layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ({"layers.9.norm.weight.delta": (32,)}, r"unknown tensor layers\.9\.norm"),
        ({"norm.weight.scale": (32,)}, r"unknown tensor norm\.weight\.scale"),
        ({"norm.weight.delta": (31,)}, r"shape \[31\], expected \[32\]"),
        ({f"{UP}.lora_a": (2, 32)}, r"missing tensor .*up_proj\.weight\.lora_b"),
        ({f"{UP}.lora_b": (48, 2)}, r"missing tensor .*up_proj\.weight\.lora_a"),
        ({f"{UP}.lora_a": (2, 32), f"{UP}.lora_b": (48, 3)}, r"\[48, 3\], expected \[48, 2\]"),
        ({"norm.weight.lora_a": (2, 32), "norm.weight.lora_b": (1, 2)}, "norm.weight.lora"),
    ],
)
def test_bad_delta_is_named(delta: dict[str, tuple[int, ...]], message: str, tmp_path: Path) -> None:
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
    "escaping tokenizer": (manifest(tokenizer="../t.json"), "not a plain file name"),
    "no tokenizer": (manifest(tokenizer=None), "has a tokenizer.json"),
    "wrong vocabulary": (lambda at: write_tokenizer(at / "tokenizer.json", 98), "ends at 96"),
    "graft gone": (removed("graft.safetensors"), "graft.safetensors: no such file"),
    "graft cut": (cut("graft.safetensors", 0.5), "graft.safetensors: truncated"),
    "NaN": (graft(micro__norm__weight=with_nan), "micro.norm.weight holds NaN"),
    "NaN in the base": (edit_tensors("base.safetensors", norm__weight=with_nan), "norm.weight holds NaN"),
    "scale gone": (graft(embedder__places=torch.Tensor.char), "missing tensor embedder.places.scale"),
    "no draft vocabulary": (graft(draft_vocab=None), "missing tensor draft_vocab"),
    "repeating draft vocabulary": (graft(draft_vocab=lambda t: t.clamp(max=3)), "repeats token ids"),
    "float draft vocabulary": (graft(draft_vocab=torch.Tensor.float), "torch.float32"),
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


def test_built_in_checkpoints_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo").mkdir()
    zoo = save(tmp_path / "zoo" / "tiny", toy_model())
    monkeypatch.setattr(built_in, "ZOO", zoo.parent)
    monkeypatch.chdir(tmp_path)
    assert load_checkpoint("tiny").path == resolve("tiny") == zoo
    with pytest.raises(CheckpointError, match=r"tinny: no such folder, .*: did you mean tiny\?"):
        resolve("tinny")
    monkeypatch.setattr(built_in, "ZOO", tmp_path / "not installed")
    absent = r"tiny is not installed: .*pip install \./models/zoo"
    with pytest.raises(MissingExtraError, match=absent):
        resolve("tiny")
    with pytest.raises(MissingExtraError, match=absent):
        hamburger_edge.load("tiny")
    save(tmp_path / "tiny", toy_model())  # a checkpoint of that name is opened
    assert resolve("tiny") == Path("tiny")


# -- saving --------------------------------------------------------------------------------------------


def test_older_checkpoint_that_merges_nothing_is_read_as_a_plain_model(tmp_path: Path) -> None:
    """Its graft only drafted, and stays unread."""
    model = toy_model()
    folder = save(tmp_path / "old", model)
    manifest = folder / "hamburger.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "merges": False}))
    plain = load_checkpoint(folder).model
    assert plain.config == HamburgerConfig.plain(model.config.base, model.config.eos_ids)
    assert {name for name in plain.state_dict() if not name.startswith("base.")} == {"draft_vocab"}
    again = save(tmp_path / "new", plain)
    assert not (again / "graft.safetensors").exists()
    assert load_checkpoint(again).model.config == plain.config


def test_ordinary_models_are_told_from_names_and_folders_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [is_ordinary(name) for name in ("hf:a/b", "gemma-3-270m", "smollm2-135m", "nothing")] == [
        *(True, True, False, False)
    ]
    made = {"hf": "config.json", "adapter": "adapter_config.json", "gguf": "a.gguf"}
    for folder, file in made.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("{}")
        assert is_ordinary(folder)
    assert is_ordinary("gguf/a.gguf")
    (tmp_path / "gguf" / "b.gguf").write_text("")
    assert not is_ordinary("gguf")
    for ours in ("hamburger.json", "manifest.json"):
        (tmp_path / "hf" / ours).write_text("{}")
        assert not is_ordinary("hf")
        (tmp_path / "hf" / ours).unlink()


def test_folder_comes_before_a_base_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = write_base(tmp_path / "gemma-3-270m")
    checkpoint = load_checkpoint("gemma-3-270m")
    assert checkpoint.model.config.base.vocab_size == 512
    assert (checkpoint.path, checkpoint.manifest["base"]["kind"]) == (base, "path")


def test_answer_prefix_of_an_older_checkpoint_is_ignored(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", toy_model())
    before = read_manifest(folder / "hamburger.json")
    edit_json("hamburger.json", answer_prefix=[5, 6])(folder)
    assert read_manifest(folder / "hamburger.json") == before
    assert "answer_prefix" not in load_checkpoint(folder).manifest


def test_save_replaces_the_old_checkpoint_unless_it_fails(tmp_path: Path) -> None:
    save(tmp_path / "saved", toy_model(1))
    folder = save(tmp_path / "saved", toy_model())
    broken, wide = toy_model(), toy_model()
    broken.micro.norm.weight.data[0] = float("inf")
    wide.embedder.query.weight.data[0, 0] = 1e6
    large = write_tokenizer(tmp_path / "large.json", 500)
    cases: list[tuple[Hamburger, dict[str, Any], str]] = [
        (broken, {}, r"micro\.norm\.weight holds NaN or infinity and is not saved"),
        (wide, {"rows": "fp16"}, r"embedder\.query\.weight does not fit 16 bits"),
        (toy_model(), {"tokenizer": large}, "embedding ends at 96"),
    ]
    for model, changes, message in cases:
        with pytest.raises(CheckpointError, match=message):
            save(folder, model, **changes)
    same_weights(load_checkpoint(folder).model, toy_model())
    assert names(tmp_path) == ["large.json", "saved", "tokenizer.json"]


def test_save_keeps_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    for file in ("home/thesis.txt", "diary"):
        (tmp_path / file).write_text("years of work")
    for target, message in (
        ("home", r"holds thesis\.txt, which saving would delete"),
        ("diary", "diary: is a file, which saving would delete"),
        ("diary/new", "diary is not a writable folder"),
    ):
        with pytest.raises(CheckpointError, match=message):
            check_target(tmp_path / target)
    for file in ("home/thesis.txt", "diary"):
        assert (tmp_path / file).read_text() == "years of work"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_file_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        folder = save(tmp_path / "c", toy_model())
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.safetensors")} == {0o640}
