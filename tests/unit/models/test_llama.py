"""The base decoder computes what transformers computes, for every family, cached and uncached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.base_logits import built, logits_cached, logits_whole

from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.weights import LoadedBase

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
FAMILIES: dict[str, tuple[type, dict[str, Any]]] = {
    "llama 2": (transformers.LlamaConfig, {"tie_word_embeddings": False, "num_key_value_heads": 6}),
    "llama 3.2": (
        transformers.LlamaConfig,
        {"tie_word_embeddings": True, "rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE, "head_dim": 16},
    ),
    "mistral": (transformers.MistralConfig, {"sliding_window": 16}),
    "mistral, window beyond the context": (transformers.MistralConfig, {"sliding_window": 256}),
    "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True, "rope_theta": 1000000.0}),
    "qwen2 with windows": (
        transformers.Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "qwen3": (transformers.Qwen3Config, {"tie_word_embeddings": True, "head_dim": 16}),
    "gemma 3": (
        transformers.Gemma3TextConfig,
        {
            "num_hidden_layers": 7,  # the sixth without a window
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "sliding_window": 16,
            "query_pre_attn_scalar": 24,
        },
    ),
    "smollm3": (
        transformers.SmolLM3Config,
        {
            "no_rope_layers": [0, 1, 1],
            "use_sliding_window": True,
            "sliding_window": 16,
            "pad_token_id": 0,
            "tie_word_embeddings": True,
        },
    ),
    "granite": (
        transformers.GraniteConfig,
        {
            "embedding_multiplier": 12.0,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.0156,
            "tie_word_embeddings": True,
        },
    ),
}


def randomise(model: torch.nn.Module) -> None:
    """Norms and biases start as ones and zeros, which would hide a forgotten one."""
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_random_model_agrees_with_transformers(family: str, tmp_path: Path) -> None:
    config_class, changes = FAMILIES[family]
    torch.manual_seed(len(family))
    theirs = transformers.AutoModelForCausalLM.from_config(
        config_class(**{**SMALL, **changes}), attn_implementation="eager"
    ).eval()
    randomise(theirs)
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")  # several shards and an index
    assert (tmp_path / "model.safetensors.index.json").exists()
    loaded = load_base(tmp_path)
    base, tables = built(loaded)

    # beyond the original context of the scaled rope, and several times each window
    ids = torch.randint(0, SMALL["vocab_size"], (1, 104))
    expected = theirs(ids).logits
    assert expected.abs().max() > (0.3 if family == "granite" else 1)
    torch.testing.assert_close(logits_whole(base, tables, ids), expected, atol=1e-4, rtol=0)
    cached = logits_cached(base, tables, ids, [17, 1, 1, 21, *[1] * 64])
    torch.testing.assert_close(cached, expected, atol=1e-4, rtol=0)

    # documents in one row, as training packs them, longer and shorter than the window
    documents = [torch.randint(0, SMALL["vocab_size"], (1, length)) for length in (5, 40, 23, 52, 8)]
    expected = torch.cat([theirs(document).logits for document in documents], dim=1)
    for learning in (False, True):
        packed = packed_logits(loaded, documents, learning)
        torch.testing.assert_close(packed, expected, atol=1e-4, rtol=0)


def packed_logits(loaded: LoadedBase, documents: list[torch.Tensor], learning: bool) -> torch.Tensor:
    shape = {"merger_heads": 4, "micro_layers": 1, "max_group_tokens": 4}
    model = Hamburger(HamburgerConfig(loaded.config, (0,), (1,), **shape)).requires_grad_(learning)
    model.base.load_state_dict(loaded.state)
    ids = torch.cat(documents, dim=1)
    numbers = [torch.full_like(document, number) for number, document in enumerate(documents)]
    batch = GroupBatch(
        groups=ids[..., None].repeat(1, 1, 4),
        sizes=torch.ones_like(ids),
        targets=ids[..., None].repeat(1, 1, 4),
        target_sizes=torch.zeros_like(ids),
        documents=torch.cat(numbers, dim=1),
    )
    with torch.set_grad_enabled(learning):
        return model.base.logits(model.features(batch)[:, :, -1]).detach()
