"""Adapters as PEFT itself writes them are merged as PEFT itself merges them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toys.toy_checkpoints import edit_json, edit_tensors, write_hf
from helpers.toys.toy_models import toy_model

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.loading import find_base, load_base

peft = pytest.importorskip("peft", reason="peft is not installed: pip install '.[dev]'")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install '.[dev]'"
)


def write_base(folder: Path, **changes: Any) -> Path:
    model = toy_model(**changes)
    name = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[model.config.base.family]
    write_hf(folder, model, architectures=[name])
    if not model.config.base.tied_head:
        head = model.base.lm_head.weight.detach()
        edit_tensors("model.safetensors", model__lm_head__weight=None, lm_head__weight=lambda _: head)(folder)
    return folder


def tuned(base: Path, folder: Path, **settings: Any) -> tuple[Path, dict[str, torch.Tensor]]:
    """Save an adapter of random weights; return its folder and the state that PEFT merges it to."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **{"r": 4, **settings})
    adapted = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)
    merged = adapted.merge_and_unload().state_dict()
    return folder, {name.removeprefix("model."): tensor for name, tensor in merged.items()}


ALPHAS = {"down_proj": 9, "layers.1.self_attn.q_proj": 5}
LINEAR = ["q_proj", "o_proj", "down_proj"]
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"target_modules": "all-linear", "use_rslora": True, "lora_alpha": 3}),
    ({}, {"target_modules": LINEAR, "rank_pattern": {"q_proj": 2}, "alpha_pattern": ALPHAS}),
    ({}, {"target_modules": LINEAR, "layers_to_transform": [1]}),
    ({}, {"target_modules": LINEAR, "modules_to_save": ["norm"]}),
    ({"family": "qwen2", "qkv_bias": True}, {"target_modules": LINEAR, "bias": "all"}),
    ({"tied_head": False}, {"target_modules": ["embed_tokens", "v_proj"], "modules_to_save": ["lm_head"]}),
]


@pytest.mark.parametrize(("shape", "settings"), CASES, ids=[str(settings)[:60] for _, settings in CASES])
def test_an_adapter_is_merged_as_peft_merges_it(
    shape: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    base = write_base(tmp_path / "base", **shape)
    adapter, expected = tuned(base, tmp_path / "adapter", **settings)
    found, plain = load_base(adapter), load_base(base)
    assert found.name == "adapter"
    assert found.config == plain.config
    changed = 0
    for name, tensor in found.state.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-5, msg=name)
        changed += not torch.equal(tensor, plain.state[name])
    assert changed
    assert found.tokenizer == base / "tokenizer.json"


def test_an_adapter_counts_beside_its_base_and_over_it_by_a_relative_path(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    adapter, _ = tuned(base, tmp_path / "adapter", target_modules=LINEAR)
    whole = load_base(adapter)
    edit_json("adapter_config.json", base_model_name_or_path="../base")(adapter)
    assert load_base(adapter).sha256 == whole.sha256
    for path in adapter.iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    beside, reference = find_base(str(base))
    assert beside.sha256 == whole.sha256 == reference["sha256"]


def test_what_cannot_be_merged_is_refused_with_the_remedy(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    for number, settings in enumerate(({"use_dora": True}, {"target_modules": ["embed_tokens"]})):
        adapter, _ = tuned(base, tmp_path / f"adapter{number}", **{"target_modules": LINEAR, **settings})
        with pytest.raises(CheckpointError, match="merge_and_unload"):
            load_base(adapter)
    adapter, _ = tuned(base, tmp_path / "good", target_modules=LINEAR)
    fewer, narrower = (
        str(write_base(tmp_path / name, **{name: size}))
        for name, size in (("num_layers", 2), ("intermediate_size", 64))
    )
    settings = json.loads((adapter / "adapter_config.json").read_text())
    for changes, message in (
        ({"peft_type": "IA3"}, "kind IA3"),
        ({"of_the_future": 3}, "of_the_future"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
        ({"base_model_name_or_path": "/nowhere/base"}, "/nowhere/base"),
        ({"base_model_name_or_path": fewer}, "not an adapter of this base"),
        ({"base_model_name_or_path": narrower}, "not an adapter of this base"),
    ):
        (adapter / "adapter_config.json").write_text(json.dumps(settings | changes))
        with pytest.raises(CheckpointError, match=message):
            load_base(adapter)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match="pickled"):
        load_base(adapter)
