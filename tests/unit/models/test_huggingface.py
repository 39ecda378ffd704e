"""Bases that come as Hugging Face folders."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers.toys.toy_checkpoints import cut, edit_tensors, holding, removed, write_hf, write_tokenizer
from helpers.toys.toy_models import toy_model
from torch.profiler import ProfilerActivity, profile

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.cli.main import main
from hamburger_edge.errors import CheckpointError, ConfigError
from hamburger_edge.models.bases.huggingface import read_config, read_eos
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.weights import check_state

weights = partial(edit_tensors, "model.safetensors")


def test_hugging_face_folder_is_loaded(tmp_path: Path) -> None:
    model = toy_model()
    folder = write_hf(tmp_path / "base", model)
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    template = "{{'<|im_start|>system\nBe kind.<|im_end|>\n'}}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    # a shared head may be stored twice, and any tensor in 16 bits
    weights(lm_head__weight=lambda _: torch.ones(97, 32), model__norm__weight=torch.Tensor.half)(folder)
    base = load_base(folder)
    assert base.config == model.config.base
    assert base.eos_ids == (2, 7)
    assert (base.name, base.license, base.tokenizer) == ("base", "apache-2.0", folder / "tokenizer.json")
    assert base.chat_template["default_system"] == "Be kind."
    assert "lm_head.weight" not in base.state
    assert {tensor.dtype for tensor in base.state.values()} == {torch.float32}
    for name in ("tokenizer_config.json", "generation_config.json"):
        (folder / name).write_text("[]")  # no object
    assert load_base(folder).chat_template is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_check_of_weights_copies_none(dtype: torch.dtype) -> None:
    """Copies of an embedding of 262,144 rows took a gigabyte."""
    weight = torch.zeros(1000, 64, dtype=dtype)
    expected = {"w": (1000, 64), "empty": (0,)}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as memory:
        check_state({"w": weight, "empty": torch.zeros(0)}, expected, "base")
    assert max(event.cpu_memory_usage for event in memory.events()) < weight.numel()
    for value in (torch.nan, torch.inf, -torch.inf):
        weight[500, 3] = value
        with pytest.raises(CheckpointError, match="tensor w holds NaN or infinity"):
            check_state({"w": weight, "empty": torch.zeros(0)}, expected, "base")


def test_newer_rope_settings_are_read(tmp_path: Path) -> None:
    llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0}
    llama3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    folder = write_hf(tmp_path, toy_model(), rope_theta="absent", rope_parameters=llama3)
    config = load_base(folder).config
    assert config.rope_theta == 5e5
    assert config.rope_scaling.factor == 32.0


BAD_CONFIGS = {
    "family 'gemma' is not supported": {"model_type": "gemma"},
    "family None": {"model_type": "absent"},
    "rope type 'yarn'": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "missing 'low_freq_factor'": {"rope_scaling": {"type": "llama3", "factor": 4.0}},
    "attention_bias puts a bias on o_proj": {"attention_bias": True},
    "activation 'gelu'": {"hidden_act": "gelu"},
    "quantized": {"quantization_config": {"bits": 4}},
    "partial_rotary_factor": {"partial_rotary_factor": 0.5},
    "final_logit_softcapping": {"final_logit_softcapping": 30.0},
    "use_bidirectional_attention": {"use_bidirectional_attention": True},
    "hidden_size is missing": {"hidden_size": "absent"},
    "vocab_size is 97.0, expected int": {"vocab_size": 97.0},
    "differ from layer to layer": {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
    "does not divide": {"num_key_value_heads": 3},
    "missing tensors layers.0.self_attn.k_norm.weight": {"model_type": "qwen3"},
    r"embed_tokens.weight has shape \[97, 32\]": {"vocab_size": 98},
}


@pytest.mark.parametrize("message", BAD_CONFIGS)
def test_unsupported_configurations_are_refused(message: str, tmp_path: Path) -> None:
    folder = write_hf(tmp_path, toy_model(), **BAD_CONFIGS[message])
    with pytest.raises(CheckpointError, match=message) as error:
        load_base(folder)
    assert str(tmp_path) in str(error.value)


LEFT_OUT: dict[str, list[dict[str, object]]] = {
    "llama": [{}, {"num_key_value_heads": 4}],
    "mistral": [
        {},
        {"max_position_embeddings": 4096},
        {"sliding_window": None, "num_key_value_heads": None},
        {"eos_token_id": [2, 3]},
    ],
    "qwen2": [{}, *({"use_sliding_window": True, "num_hidden_layers": layers} for layers in (28, 29))],
    "qwen3": [{}, {"use_sliding_window": True, "max_window_layers": 0, "max_position_embeddings": 4096}],
    "smollm3": [{}, {"no_rope_layer_interval": 3}, {"use_sliding_window": True, "sliding_window": 64}],
    "granite": [{}, {"residual_multiplier": 0.22, "logits_scaling": 8}],
    "gemma3_text": [{}, {"sliding_window_pattern": 5, "sliding_window": 512}],
}


@pytest.mark.parametrize(
    ("family", "given"), [(family, given) for family, cases in LEFT_OUT.items() for given in cases], ids=str
)
def test_missing_settings_have_the_defaults_of_transformers(
    family: str, given: dict[str, object], tmp_path: Path
) -> None:
    """Windows, scales and rope bases too."""
    transformers = pytest.importorskip("transformers", reason="needs the extra [optimum]")
    smallest = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 30, "vocab_size": 97}
    config = {"model_type": family, **smallest, "intermediate_size": 64, "max_position_embeddings": 8192}
    (tmp_path / "config.json").write_text(json.dumps({**config, **given}))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    ours = read_config(tmp_path / "config.json", has_head=True)
    window, layers = getattr(theirs, "sliding_window", None), range(ours.num_layers)
    kinds = getattr(theirs, "layer_types", ["sliding_attention"] * len(layers))
    windowed = [number for number in layers if window is not None and kinds[number] == "sliding_attention"]
    shorter = window is not None and window < theirs.max_position_embeddings
    assert [number for number in layers if ours.window_of(number)] == (windowed if shorter else [])
    rotated = getattr(theirs, "no_rope_layers", None) or [1] * len(layers)
    assert [ours.rotation_of(number) is not None for number in layers] == [each == 1 for each in rotated]
    assert ours.residual_scale == getattr(theirs, "residual_multiplier", 1)
    assert ours.logits_scale == 1 / getattr(theirs, "logits_scaling", 1)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 32)
    assert (ours.rms_norm_eps, ours.rope_theta) == (theirs.rms_norm_eps, theirs.rope_theta)
    ends = theirs.eos_token_id
    assert read_eos(tmp_path) == (() if ends is None else tuple(ends) if isinstance(ends, list) else (ends,))


INDEX = "model.safetensors.index.json"
BAD_BASES = {
    "truncated": (cut("model.safetensors", 0.7), r"model\.safetensors: truncated"),
    "gone": (removed("model.safetensors"), r"model\.safetensors: no such file"),
    "pickled": (lambda at: (at / "model.safetensors").rename(at / "model.bin"), "pickled .bin weights"),
    "not an object": (holding("config.json", "[]"), "expected a JSON object"),
    "experts": (weights(model__mlp__gate=lambda _: torch.ones(2)), r"unknown tensor model\.mlp\.gate"),
    "infinite": (weights(model__embed_tokens__weight=lambda t: t / 0), r"embed_tokens\.weight holds NaN"),
    "integers": (weights(model__norm__weight=torch.Tensor.char), "is quantized"),
    "shard gone": (holding(INDEX, '{"weight_map": {"a": "1.safetensors"}}'), r"1\.safetensors: no such file"),
    "escaping shard": (holding(INDEX, '{"weight_map": {"a": "../x"}}'), "not a plain file name"),
    "no map": (holding(INDEX, "{}"), "no weight_map"),
    "tokenizer": (lambda at: write_tokenizer(at / "tokenizer.json", 120), "token id 119"),
    "not a tokenizer": (holding("tokenizer.json", "{}"), "not a tokenizer file"),
    "markup": (holding("chat_markup.json", '{"kind": "alpaca"}'), r"markup\.json: unknown kind 'alpaca'"),
    "no config": (removed("config.json"), "neither config.json nor"),
}


@pytest.mark.parametrize("case", BAD_BASES)
def test_damaged_bases_are_named(case: str, tmp_path: Path) -> None:
    damage, message = BAD_BASES[case]
    damage(write_hf(tmp_path, toy_model()))
    with pytest.raises((CheckpointError, ConfigError), match=message) as error:
        load_base(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_distill_names_missing_parts_of_a_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_hf(tmp_path / "base", toy_model())
    for remedy in ('{"kind": "llama3"}', "put the model's beside its weights"):
        assert main(["distill", str(folder), "-o", str(tmp_path / "data"), "--tokens", "10"]) == 1
        [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert str(folder) in line
        assert remedy in line
        (folder / "tokenizer.json").unlink(missing_ok=True)
    assert not (tmp_path / "data").exists()


LLAMA3 = "{{ bos_token }}{{ '<|start_header_id|>' + role + '<|end_header_id|>' }}{{ content + '<|eot_id|>' }}"


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (None, ChatTemplate.preset("llama3")),
        ({"kind": "mistral"}, ChatTemplate.preset("mistral")),
        ({"kind": "llama3", "default_system": "Be brief."}, ChatTemplate.preset("llama3", "Be brief.")),
        (
            {"before_user": "Q: ", "before_answer": "A: "},
            ChatTemplate(before_user="Q: ", before_answer="A: "),
        ),
    ],
)
def test_markup_file_overrides_the_template(
    markup: dict[str, str] | None, expected: ChatTemplate, tmp_path: Path
) -> None:
    folder = write_hf(tmp_path, toy_model())
    (folder / "chat_template.jinja").write_text(LLAMA3)
    if markup:
        (folder / "chat_markup.json").write_text(json.dumps(markup))
    assert ChatTemplate.from_json(load_base(folder).chat_template) == expected
