"""The base decoder computes what transformers computes, for every family, cached and uncached."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
import transformers
from base_logits import built, logits_cached, logits_whole
from toy_models import toy_model

from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

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
    "mistral with a window": (transformers.MistralConfig, {"sliding_window": 16}),
    "qwen2 with windows": (
        transformers.Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
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
    "gemma 3, heads of 256": (
        transformers.Gemma3TextConfig,
        {
            "num_hidden_layers": 2,
            "head_dim": 256,
            "sliding_window": 16,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    "smollm3": (transformers.SmolLM3Config, {"no_rope_layer_interval": 2, "pad_token_id": 0}),
    "smollm3, its layers listed": (
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
NEW = [name for name in FAMILIES if "window" in name or name.startswith(("gemma", "smollm3", "granite"))]


def theirs_and_ours(family: str, folder: Path) -> tuple[transformers.PreTrainedModel, LoadedBase]:
    """Save a random model of transformers' own class, and load its folder."""
    config_class, changes = FAMILIES[family]
    torch.manual_seed(len(family))
    theirs = transformers.AutoModelForCausalLM.from_config(
        config_class(**{**SMALL, **changes}), attn_implementation="eager"
    ).eval()
    randomise(theirs)
    theirs.save_pretrained(folder, max_shard_size="40KB")  # several shards and an index
    return theirs, load_base(folder)


def randomise(model: torch.nn.Module) -> None:
    """Norms and biases start as ones and zeros, which would hide a forgotten one."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize("family", FAMILIES)
def test_random_model_agrees_with_transformers(family: str, tmp_path: Path) -> None:
    theirs, loaded = theirs_and_ours(family, tmp_path)
    assert (tmp_path / "model.safetensors.index.json").exists()
    base, tables = built(loaded)

    # beyond the original context of the scaled rope, and several times each window
    ids = torch.randint(0, SMALL["vocab_size"], (1, 104))
    with torch.no_grad():
        expected = theirs(ids).logits
    assert expected.abs().max() > (0.3 if family == "granite" else 1)
    torch.testing.assert_close(logits_whole(base, tables, ids), expected, atol=1e-4, rtol=0)
    cached = logits_cached(base, tables, ids, [17, 1, 1, 21, *[1] * 64])
    torch.testing.assert_close(cached, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("family", NEW)
def test_packed_documents_agree_with_transformers(family: str, learning: bool, tmp_path: Path) -> None:
    """Documents in one row, as training packs them, longer and shorter than the window."""
    theirs, loaded = theirs_and_ours(family, tmp_path)
    shape = {"merger_heads": 4, "micro_layers": 1, "max_group_tokens": 4}
    model = Hamburger(HamburgerConfig(loaded.config, (0,), (1,), **shape)).requires_grad_(learning)
    model.base.load_state_dict(loaded.state)
    documents = [torch.randint(0, SMALL["vocab_size"], (1, length)) for length in (5, 40, 23, 52, 8)]
    ids = torch.cat(documents, dim=1)
    numbers = torch.repeat_interleave(torch.arange(5), torch.tensor([d.shape[1] for d in documents]))[None]
    batch = GroupBatch(
        groups=ids[..., None].repeat(1, 1, 4),
        sizes=torch.ones_like(ids),
        targets=ids[..., None].repeat(1, 1, 4),
        target_sizes=torch.zeros_like(ids),
        documents=numbers,
    )
    got = model.base.logits(model.features(batch)[:, :, -1]).detach()
    with torch.no_grad():
        expected = torch.cat([theirs(document).logits for document in documents], dim=1)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("rule", ["slot", "token"])
def test_a_window_counts_slots(rule: Literal["slot", "token"]) -> None:
    """With groups of three tokens a window of 4 slots holds 12 tokens. An older slot changes nothing."""
    window = {"window": 4, "windowed_layers": (0,), "num_layers": 1, "taps": (0,)}
    model = toy_model(position_rule=rule, **window)
    base = [[slot * 3 + token for token in range(3)] for slot in range(8)]

    def last(groups: list[list[int]]) -> torch.Tensor:
        backend = TorchBackend(model)
        positions = [3 * i + 2 if rule == "token" else i for i in range(len(groups))]
        whole = torch.as_tensor(backend.macro(groups, positions, [7]).logits)
        steps = TorchBackend(model)
        for group, position in zip(groups, positions, strict=True):
            out = steps.macro([group], [position], [0])
        torch.testing.assert_close(torch.as_tensor(out.logits), whole)
        return whole

    plain = last(base)
    outside, inside = ([*base[:at], [90, 91, 92], *base[at + 1 :]] for at in (3, 4))
    torch.testing.assert_close(last(outside), plain)
    assert (last(inside) - plain).abs().max() > 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).to(dtype)
    theirs.save_pretrained(tmp_path)
    state = load_base(tmp_path).state
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert torch.equal(state["norm.weight"], theirs.model.norm.weight.float())
    assert torch.equal(state["lm_head.weight"], theirs.lm_head.weight.float())
