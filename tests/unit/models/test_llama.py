"""The base decoder computes what transformers computes, for every family, cached and uncached."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from base_logits import built, logits_cached, logits_whole

from hamburger_edge.models.bases.loading import load_base

SMALL = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.2,  # large enough that a wrong path shows in the logits
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES = {
    "llama 2": (transformers.LlamaConfig, {"tie_word_embeddings": False, "num_key_value_heads": 6}),
    "llama 3.2": (
        transformers.LlamaConfig,
        {"tie_word_embeddings": True, "rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE, "head_dim": 16},
    ),
    "smollm2": (transformers.LlamaConfig, {"tie_word_embeddings": True, "rope_theta": 100000.0}),
    "mistral": (transformers.MistralConfig, {"sliding_window": None, "head_dim": 12}),
    "mistral, window beyond the context": (transformers.MistralConfig, {"sliding_window": 256}),
    "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True, "rope_theta": 1000000.0}),
    "qwen2 untied": (transformers.Qwen2Config, {"tie_word_embeddings": False}),
    "qwen3": (transformers.Qwen3Config, {"tie_word_embeddings": True, "head_dim": 16}),
    "qwen3 untied": (transformers.Qwen3Config, {"tie_word_embeddings": False, "head_dim": 8}),
}


def randomise(model: torch.nn.Module) -> None:
    """Norms and biases start as ones and zeros, which would hide a forgotten one."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize("family", FAMILIES)
def test_random_model_agrees_with_transformers(family: str, tmp_path: Path) -> None:
    config_class, changes = FAMILIES[family]
    torch.manual_seed(len(family))
    theirs = transformers.AutoModelForCausalLM.from_config(
        config_class(**{**SMALL, **changes}), attn_implementation="eager"
    ).eval()
    randomise(theirs)
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")  # several shards and an index
    assert (tmp_path / "model.safetensors.index.json").exists()
    base, tables = built(load_base(tmp_path))

    ids = torch.randint(0, SMALL["vocab_size"], (1, 60))  # beyond the original context of the scaled rope
    with torch.no_grad():
        expected = theirs(ids).logits
    assert expected.abs().max() > 1
    torch.testing.assert_close(logits_whole(base, tables, ids), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(
        logits_cached(base, tables, ids, [17, 1, 1, 30, 11]), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).to(dtype)
    theirs.save_pretrained(tmp_path)
    state = load_base(tmp_path).state
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert torch.equal(state["norm.weight"], theirs.model.norm.weight.float())
    assert torch.equal(state["lm_head.weight"], theirs.lm_head.weight.float())
