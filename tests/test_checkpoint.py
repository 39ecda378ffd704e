"""Checkpoints to disk and back, the reference's layout, and everything that can be wrong with a file."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from toy_models import toy_batch, toy_model

from hamburger_edge.errors import CheckpointError, ConfigError
from hamburger_edge.models import checkpoint
from hamburger_edge.models.checkpoint import load_base, load_checkpoint, resolve, save_checkpoint
from hamburger_edge.models.hamburger import Hamburger

BATCH = [([5, 6, 7], [[8], [9, 10], [11, 12, 13, 14]])]
TEMPLATE = {"before_user": "<user>"}


def write_tokenizer(path: Path, ids: int) -> Path:
    Tokenizer(models.WordLevel({f"t{i}": i for i in range(ids)}, unk_token="t0")).save(str(path))
    return path


def save(folder: Path, model: Hamburger, **changes: Any) -> Path:
    tokenizer = write_tokenizer(folder.parent / "tokenizer.json", model.config.base.vocab_size)
    options: dict[str, Any] = {
        "base": {"kind": "embedded"},
        "tokenizer": tokenizer,
        "chat_template": TEMPLATE,
        "provenance": {"steps": 12, "note": "é"},
        "license": {"graft": "Apache-2.0", "base": None},
        "rows": "fp32",
    }
    return save_checkpoint(folder, model, **{**options, **changes})


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_files_have_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        folder = save(tmp_path / "c", toy_model())
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.safetensors")} == {0o640}


def write_hf(folder: Path, model: Hamburger, **changes: Any) -> Path:
    """The base of a toy as a Hugging Face folder."""
    base = model.config.base
    folder.mkdir(exist_ok=True)
    config = {
        "model_type": base.family,
        "vocab_size": base.vocab_size,
        "hidden_size": base.hidden_size,
        "intermediate_size": base.intermediate_size,
        "num_hidden_layers": base.num_layers,
        "num_attention_heads": base.num_heads,
        "num_key_value_heads": base.num_kv_heads,
        "head_dim": base.head_dim,
        "max_position_embeddings": base.context_length,
        "rms_norm_eps": base.rms_norm_eps,
        "rope_theta": base.rope_theta,
        "tie_word_embeddings": base.tied_head,
        "eos_token_id": 2,
    }
    config = {key: value for key, value in {**config, **changes}.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({f"model.{k}": v for k, v in model.base.state_dict().items()}, folder / "model.safetensors")
    write_tokenizer(folder / "tokenizer.json", base.vocab_size)
    return folder


def same_weights(a: Hamburger, b: Hamburger, tolerance: float = 0.0) -> None:
    ours, other = a.state_dict(), b.state_dict()
    assert ours.keys() == other.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], other[name], atol=tolerance, rtol=0, msg=name)


def same_outputs(a: Hamburger, b: Hamburger) -> None:
    with torch.no_grad():
        for one, other in zip(*(vars(m(toy_batch(m, BATCH))).values() for m in (a, b)), strict=True):
            torch.testing.assert_close(one, other)


# -- our own format ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"shortlist_size": 20}, {"micro_final_norm": False, "tied_head": False}]
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
    assert (
        stored["micro.layers.0.mlp.up_proj.weight"].dtype == {"fp16": torch.float16, "int8": torch.int8}[rows]
    )
    assert stored["micro.norm.weight"].dtype == torch.float32


def test_loading_keeps_one_copy_of_the_base(tmp_path: Path) -> None:
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
    folder = save(
        tmp_path / "saved", model, base={"kind": "path", "path": "../base"}, base_delta=delta, tokenizer=None
    )
    assert not (folder / "base.safetensors").exists()
    loaded = load_checkpoint(folder)
    same_weights(loaded.model, model, 1e-6)
    assert loaded.tokenizer == folder / "../base" / "tokenizer.json"

    elsewhere = save(
        tmp_path / "far", model, base={"kind": "path", "path": str(tmp_path / "base")}, base_delta=delta
    )
    same_weights(load_checkpoint(elsewhere).model, model, 1e-6)


def test_base_of_other_dimensions_is_refused(tmp_path: Path) -> None:
    model = toy_model()
    write_hf(tmp_path / "base", model, rope_theta=5e5)
    folder = save(tmp_path / "saved", model, base={"kind": "path", "path": "../base"})
    with pytest.raises(CheckpointError, match=r"rope_theta is 500000\.0, but .* needs a base with 10000\.0"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ({"layers.9.norm.weight.delta": (32,)}, r"unknown tensor layers\.9\.norm\.weight\.delta"),
        ({"norm.weight.scale": (32,)}, r"unknown tensor norm\.weight\.scale"),
        ({"norm.weight.delta": (31,)}, r"shape \[31\], expected \[32\]"),
        (
            {"layers.0.mlp.up_proj.weight.lora_a": (2, 32)},
            r"missing tensor layers\.0\.mlp\.up_proj\.weight\.lora_b",
        ),
        (
            {"layers.0.mlp.up_proj.weight.lora_b": (48, 2)},
            r"missing tensor layers\.0\.mlp\.up_proj\.weight\.lora_a",
        ),
        (
            {"layers.0.mlp.up_proj.weight.lora_a": (2, 32), "layers.0.mlp.up_proj.weight.lora_b": (48, 3)},
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
        save(tmp_path / "refused", model, base={"kind": "path", "path": "../base"}, base_delta=tensors)
    assert not (tmp_path / "refused").exists()
    folder = save(tmp_path / "saved", model, base={"kind": "path", "path": "../base"})
    save_file(tensors, folder / "base_delta.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def edit_json(name: str, **changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        for key, value in changes.items():
            data[key] = value
        (folder / name).write_text(json.dumps({k: v for k, v in data.items() if v != "absent"}))

    return edit


def edit_tensors(name: str, **changes: Any) -> Callable[[Path], None]:
    """Replace (by a function of the tensor), add or drop (None) tensors; `__` stands for a dot."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / name)
        for key, change in changes.items():
            key = key.replace("__", ".")
            tensors[key] = change(tensors.get(key)).contiguous() if change else None
        save_file({k: v for k, v in tensors.items() if v is not None}, folder / name)

    return edit


def with_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.flatten()[1] = float("nan")
    return tensor


def cut(name: str, share: float) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * share)])

    return edit


BAD_FOLDERS = {
    "no manifest": (lambda folder: (folder / "hamburger.json").unlink(), "holds no hamburger.json"),
    "newer format": (edit_json("hamburger.json", format=2), "format 2, this version reads 1"),
    "no format": (edit_json("hamburger.json", format="absent"), "format None"),
    "unknown key": (edit_json("hamburger.json", colour=1), "unknown key 'colour'"),
    "unknown base": (edit_json("hamburger.json", base={"kind": "cloud"}), r"base\.kind: expected one of"),
    "base without a name": (edit_json("hamburger.json", base={"kind": "fetch"}), "does not say which"),
    "base without a path": (edit_json("hamburger.json", base={"kind": "path"}), "does not say which"),
    "absent base": (edit_json("hamburger.json", base={"kind": "path", "path": "../gone"}), "no such file"),
    "escaping tokenizer": (edit_json("hamburger.json", tokenizer="../t.json"), "not a plain file name"),
    "no tokenizer": (edit_json("hamburger.json", tokenizer=None), "has a tokenizer.json"),
    "tokenizer gone": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        "tokenizer.json: not a tokenizer",
    ),
    "wrong vocabulary": (
        lambda folder: write_tokenizer(folder / "tokenizer.json", 98),
        "token id 97, but the model's embedding ends at 96",
    ),
    "graft gone": (lambda folder: (folder / "graft.safetensors").unlink(), "graft.safetensors: no such file"),
    "graft cut": (cut("graft.safetensors", 0.5), "graft.safetensors: truncated"),
    "graft empty": (cut("graft.safetensors", 0.0), "graft.safetensors: truncated"),
    "base cut": (cut("base.safetensors", 0.9), "base.safetensors: truncated"),
    "missing": (edit_tensors("graft.safetensors", embedder__places=None), "missing tensor embedder.places"),
    "unknown": (
        edit_tensors("graft.safetensors", extra=lambda _: torch.ones(2)),
        "unknown tensor extra",
    ),
    "mis-shaped": (
        edit_tensors("graft.safetensors", stop_head__4__bias=lambda _: torch.ones(2)),
        r"stop_head\.4\.bias has shape \[2\], but the configuration makes it \[1\]",
    ),
    "NaN": (edit_tensors("graft.safetensors", micro__norm__weight=with_nan), "micro.norm.weight holds NaN"),
    "NaN in the base": (edit_tensors("base.safetensors", norm__weight=with_nan), "norm.weight holds NaN"),
    "scale gone": (
        edit_tensors("graft.safetensors", embedder__places=lambda t: torch.ones(t.shape, dtype=torch.int8)),
        "missing tensor embedder.places.scale",
    ),
    "no shortlist": (edit_tensors("graft.safetensors", shortlist=None), "missing tensor shortlist"),
    "repeating shortlist": (
        edit_tensors("graft.safetensors", shortlist=lambda t: t.clamp(max=3)),
        "shortlist repeats token ids",
    ),
    "float shortlist": (edit_tensors("graft.safetensors", shortlist=lambda t: t.float()), "torch.float32"),
    "short shortlist": (edit_tensors("graft.safetensors", shortlist=lambda t: t[:5]), r"\[5\], expected"),
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_damaged_checkpoints_are_named(case: str, tmp_path: Path) -> None:
    damage, message = BAD_FOLDERS[case]
    folder = save(tmp_path / "saved", toy_model(shortlist_size=20))
    damage(folder)
    with pytest.raises((CheckpointError, ConfigError), match=message) as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_unknown_name_lists_the_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo").mkdir()
    zoo = save(tmp_path / "zoo" / "tiny", toy_model())
    monkeypatch.setattr(checkpoint, "ZOO", zoo.parent)
    assert resolve("tiny") == zoo
    assert load_checkpoint("tiny").path == zoo
    with pytest.raises(CheckpointError, match=r"tinny: no such folder, .* \(known: tiny\)"):
        resolve("tinny")


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


def test_values_too_large_for_16_bits(tmp_path: Path) -> None:
    model = toy_model()
    model.embedder.query.weight.data[0, 0] = 1e6
    with pytest.raises(
        CheckpointError, match=r"embedder\.query\.weight does not fit 16 bits: save with rows='fp32'"
    ):
        save(tmp_path / "saved", model, rows="fp16")


# -- Hugging Face folders ------------------------------------------------------------------------------


def test_hf_folder(tmp_path: Path) -> None:
    model = toy_model()
    folder = write_hf(tmp_path / "base", model)
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    template = "{{'<|im_start|>system\nBe kind.<|im_end|>\n'}}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    base = load_base(folder)
    assert base.config == model.config.base
    assert base.eos_ids == (2, 7)
    assert (base.name, base.license, base.tokenizer) == ("base", "apache-2.0", folder / "tokenizer.json")
    assert base.chat_template is not None
    assert base.chat_template["default_system"] == "Be kind."


def test_a_shared_head_stored_twice_is_not_an_error(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, toy_model())
    edit_tensors("model.safetensors", lm_head__weight=lambda _: torch.ones(97, 32))(folder)
    assert "lm_head.weight" not in load_base(folder).state


def test_newer_rope_settings(tmp_path: Path) -> None:
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    folder = write_hf(tmp_path, toy_model(), rope_theta="absent", rope_parameters=llama3)
    config = load_base(folder).config
    assert config.rope_theta == 5e5
    assert config.rope_scaling is not None
    assert config.rope_scaling.factor == 32.0


BAD_CONFIGS = {
    "family 'gemma' is not supported": {"model_type": "gemma"},
    "family None": {"model_type": "absent"},
    "rope type 'yarn'": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "rope type 'linear'": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3 rope scaling: bad or missing 'low_freq_factor'": {
        "rope_scaling": {"type": "llama3", "factor": 4.0}
    },
    "attention_bias puts a bias on o_proj": {"attention_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "activation 'gelu'": {"hidden_act": "gelu"},
    "quantized": {"quantization_config": {"bits": 4}},
    "partial_rotary_factor": {"partial_rotary_factor": 0.5},
    "sliding_window 64 is shorter than the context of 128": {"model_type": "mistral", "sliding_window": 64},
    "sliding_window 32": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 32},
    "hidden_size is missing": {"hidden_size": "absent"},
    "hidden_size is '32', expected int": {"hidden_size": "32"},
    "vocab_size is 97.0, expected int": {"vocab_size": 97.0},
    "differ from layer to layer": {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
    "does not divide": {"num_key_value_heads": 3},
    "missing tensor.* layers.3": {"num_hidden_layers": 4},
    "unknown tensor.* layers.2": {"num_hidden_layers": 2},
    "missing tensor lm_head.weight": {"tie_word_embeddings": False},
    "missing tensors layers.0.self_attn.k_norm.weight": {"model_type": "qwen3"},
    r"embed_tokens.weight has shape \[97, 32\]": {"vocab_size": 98},
}


@pytest.mark.parametrize("message", BAD_CONFIGS)
def test_unsupported_configurations_are_refused(message: str, tmp_path: Path) -> None:
    folder = write_hf(tmp_path, toy_model(), **BAD_CONFIGS[message])
    with pytest.raises(CheckpointError, match=message) as error:
        load_base(folder)
    assert str(tmp_path) in str(error.value)


BAD_BASES = {
    "truncated": (cut("model.safetensors", 0.7), r"model\.safetensors: truncated"),
    "gone": (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors: no such file"),
    "pickled": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "pickled .bin weights",
    ),
    "not JSON": (lambda folder: (folder / "config.json").write_text("{"), "not valid JSON"),
    "not an object": (lambda folder: (folder / "config.json").write_text("[]"), "expected a JSON object"),
    "experts": (
        edit_tensors("model.safetensors", model__layers__0__mlp__gate__weight=lambda _: torch.ones(2)),
        r"unknown tensor model\.layers\.0\.mlp\.gate\.weight",
    ),
    "infinite": (
        edit_tensors("model.safetensors", model__embed_tokens__weight=lambda t: t / 0),
        r"embed_tokens\.weight holds NaN or infinity",
    ),
    "integers": (edit_tensors("model.safetensors", model__norm__weight=lambda t: t.char()), "is quantized"),
    "shard gone": (
        lambda folder: (folder / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "1.safetensors"}}'
        ),
        r"1\.safetensors: no such file",
    ),
    "escaping shard": (
        lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x"}}'),
        "not a plain file name",
    ),
    "no map": (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "no weight_map"),
    "tokenizer": (lambda folder: write_tokenizer(folder / "tokenizer.json", 120), "token id 119"),
    "not a tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "not a tokenizer file"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "neither config.json nor"),
}


@pytest.mark.parametrize("case", BAD_BASES)
def test_damaged_bases_are_named(case: str, tmp_path: Path) -> None:
    damage, message = BAD_BASES[case]
    damage(write_hf(tmp_path, toy_model()))
    with pytest.raises((CheckpointError, ConfigError), match=message) as error:
        load_base(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_absent_base(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such file or folder"):
        load_base(tmp_path / "nowhere")


# -- the reference's Lightning layout ------------------------------------------------------------------

TO_REFERENCE = {
    "base.": "model.model.",
    "embedder.places": "comp_embedder.merger.pos",
    "embedder.query": "comp_embedder.merger.q_proj",
    "embedder.key": "comp_embedder.merger.k_proj",
    "embedder.value": "comp_embedder.merger.v_proj",
    "embedder.output": "comp_embedder.out_proj",
    "micro.layers": "micro_step_decoder.decoders",
    "stop_head": "micro_step_decoder.stop_head",
}


def reference_state(model: Hamburger) -> dict[str, torch.Tensor]:
    state = {}
    for name, tensor in model.state_dict().items():
        for ours, their in TO_REFERENCE.items():
            if name.startswith(ours):
                state[their + name.removeprefix(ours)] = tensor.to(torch.bfloat16)
    state["model.lm_head.weight"] = state["model.model.embed_tokens.weight"]
    state["comp_embedder.embedding.weight"] = state["model.model.embed_tokens.weight"]
    state["teacher.model.lm_head.weight"] = torch.zeros(2)
    return state


@pytest.fixture
def reference() -> Hamburger:
    """As deep as the reference, and with its fixed number of merger heads."""
    return toy_model(
        hidden_size=128,
        num_layers=16,
        taps=(3, 7, 11),
        merger_heads=64,
        micro_layers=4,
        micro_final_norm=False,
    )


def test_lightning_checkpoint(reference: Hamburger, tmp_path: Path) -> None:
    write_hf(tmp_path, reference)
    content = {"epoch": 1, "state_dict": reference_state(reference), "hyper_parameters": {"max_steps": 4}}
    torch.save(content, tmp_path / "last.ckpt")
    loaded = load_checkpoint(tmp_path / "last.ckpt")
    assert loaded.model.config == reference.config
    rounded = checkpoint.build(
        reference.config,
        {
            name: tensor.to(torch.bfloat16).float() if tensor.is_floating_point() else tensor
            for name, tensor in reference.state_dict().items()
        },
    )
    same_weights(loaded.model, rounded)
    same_outputs(loaded.model, rounded)
    folder = save(tmp_path / "ours", loaded.model)
    same_weights(load_checkpoint(folder).model, rounded)


def test_lightning_configuration_elsewhere(reference: Hamburger, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "base", reference)
    torch.save({"state_dict": reference_state(reference)}, tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError, match=r"put the base's config\.json beside it"):
        load_checkpoint(tmp_path / "last.ckpt")
    assert load_checkpoint(tmp_path / "last.ckpt", base=folder).model.config == reference.config


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("sprung"),))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {"a": Trap()}}, "holds more than tensors, which is never run"),
        ({"weights": {}}, "has no state_dict"),
        (
            {"state_dict": {"model.model.vision.weight": torch.ones(1)}},
            r"unknown tensor model\.model\.vision",
        ),
        ({"state_dict": {}}, r"missing tensor comp_embedder\.merger\.pos"),
        ({"state_dict": {"comp_embedder.merger.pos": torch.ones(4, 64)}}, "micro_layers must be positive"),
    ],
)
def test_bad_lightning_files(
    content: Any, message: str, reference: Hamburger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_hf(tmp_path, reference)
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError, match=message) as error:
        load_checkpoint(tmp_path / "last.ckpt")
    assert "last.ckpt" in str(error.value)
    assert not (tmp_path / "sprung").exists()


def test_truncated_and_foreign_lightning_files(reference: Hamburger, tmp_path: Path) -> None:
    write_hf(tmp_path, reference)
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": reference_state(reference)}, path)
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"nonsense", pickle.dumps({"state_dict": {}})):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"last\.ckpt"):
            load_checkpoint(path)
    path.unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        load_checkpoint(path)
