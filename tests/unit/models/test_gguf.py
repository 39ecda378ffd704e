"""GGUF files: every quantization, both row orders, rotary scaling, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf_files import llama_cpp_logits, small_base, write_gguf

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.config import RopeScaling
from hamburger_edge.models.bases.gguf_file import permute, unpermute
from hamburger_edge.models.bases.loading import load_base

OTHER_FAMILIES: list[dict[str, Any]] = [
    {
        "family": "gemma3",
        "num_layers": 7,
        "num_kv_heads": 1,
        "rope_theta": 1000000.0,
        "qk_norm": True,
        "output_norms": True,
        "activation": "gelu_tanh",
        "embedding_scale": 16.0,
        "window": 32,
        "windowed_layers": (0, 1, 2, 3, 4, 6),
        "window_rope_theta": 10000.0,
    },
    {
        "family": "granite",
        "embedding_scale": 12.0,
        "residual_scale": 0.22,
        "attention_scale": 0.0625,
        "logits_scale": 0.125,
    },
    {"family": "smollm3", "num_layers": 5, "unrotated_layers": (3,)},
]

# type -> largest error of a weight, as a share of the largest weight of its row
TOLERANCE = {
    Type.F32: 0.0,
    Type.F16: 1e-3,
    Type.BF16: 8e-3,
    Type.Q8_0: 8e-3,
    Type.Q6_K: 0.035,
    Type.Q5_0: 0.07,
    Type.Q5_1: 0.07,
    Type.Q5_K: 0.07,
    Type.Q4_0: 0.14,
    Type.Q4_1: 0.14,
    Type.Q4_K: 0.14,
    Type.Q3_K: 0.3,
    Type.Q2_K: 0.5,
}


@pytest.mark.parametrize("kind", TOLERANCE, ids=lambda kind: kind.name)
def test_every_type_round_trips(kind: Type, tmp_path: Path) -> None:
    config, state = small_base(tied_head=False)
    loaded = load_base(write_gguf(tmp_path / "model.gguf", config, state, kind))
    assert loaded.config == config
    assert loaded.eos_ids == (2,)
    assert loaded.state.keys() == state.keys()
    for name, wanted in state.items():
        found = loaded.state[name]
        assert found.dtype == torch.float32
        allowed = TOLERANCE[kind] * wanted.abs().amax(-1, keepdim=True) if wanted.ndim == 2 else 0
        assert ((found - wanted).abs() <= allowed).all(), name


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "llama", "tied_head": True},
        {"family": "qwen2", "qkv_bias": True},
        {"family": "qwen3", "qk_norm": True, "head_dim": 96},
        {"family": "llama", "rope_theta": 500000.0, "rope_scaling": RopeScaling(32.0, 1.0, 4.0, 8192)},
        {"family": "llama", "rope_scaling": RopeScaling(8.0, 1.0, 4.0, 128)},
        *OTHER_FAMILIES,
    ],
    ids=["tied", "qwen2", "qwen3", "llama 3.2", "other original context", "gemma3", "granite", "smollm3"],
)
def test_architectures(changes: dict[str, Any], tmp_path: Path) -> None:
    config, state = small_base(**changes)
    loaded = load_base(write_gguf(tmp_path / "model.gguf", config, state))
    assert loaded.config == config
    for name, wanted in state.items():
        assert torch.equal(loaded.state[name], wanted), name


@pytest.mark.parametrize(
    "changes",
    [{"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 64)}, *OTHER_FAMILIES],
    ids=lambda changes: changes.get("family", "row order and rotary scaling"),
)
def test_llama_cpp_agrees(changes: dict[str, Any], tmp_path: Path) -> None:
    """Guards against a writer and a reader that share a mistake: the third party computes the logits.

    Windows, scales, norms and layers without rotation, over several windows of text.
    """
    from base_logits import built, logits_whole

    config, state = small_base(vocab_size=265, **changes)
    path = write_gguf(tmp_path / "model.gguf", config, state)
    ids = torch.randint(0, 265, (1, 200), generator=torch.Generator().manual_seed(1))
    expected = llama_cpp_logits(path, ids[0])
    got = logits_whole(*built(load_base(path)), ids)[0]
    # llama.cpp keeps keys and values in 16 bits: 2^-11 of values of about 1 through the layers
    torch.testing.assert_close(got, expected, atol=3e-2 * float(expected.std()), rtol=0)


def test_permutations_are_inverse() -> None:
    rows = torch.arange(24.0).reshape(12, 2)
    assert torch.equal(unpermute(permute(rows, 3), 3), rows)
    assert permute(torch.arange(8), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize(
    ("shape", "extra", "message"),
    [
        ({"family": "gemma2"}, {}, "architecture 'gemma2' is not supported"),
        ({"vocab_size": 200}, {}, "265 tokens, but its embedding ends at 199"),
        ({}, {"llama.attention.head_count": None}, "llama.attention.head_count is missing"),
        ({}, {"llama.expert_count": 8}, "mixture of experts"),
        ({}, {"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({}, {"llama.rope.dimension_count": 32}, "part of each head"),
        ({}, {"llama.attention.value_length": 32}, "different widths"),
        ({}, {"llama.attention.sliding_window": 128}, "sliding-window"),
        ({}, {"llama.attention.head_count_kv": 3}, "does not divide"),
        ({}, {"llama.block_count": 3}, "missing tensors layers.2.input_layernorm.weight"),
        ({}, {"llama.block_count": 1}, "unknown tensors layers.1.input_layernorm.weight"),
        ({}, {"llama.feed_forward_length": 500}, "mlp.gate_proj.weight has shape"),
    ],
)
def test_unsupported_headers_are_refused(
    shape: dict[str, Any], extra: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "model.gguf", *small_base(**shape), extra=extra)
    with pytest.raises(CheckpointError, match=message) as error:
        load_base(path)
    assert str(path) in str(error.value)


def test_unknown_rotary_factors(tmp_path: Path) -> None:
    config, state = small_base()
    state["rope_freqs.weight"] = torch.linspace(1, 2, 32)
    with pytest.raises(CheckpointError, match="not a Llama 3 scaling"):
        load_base(write_gguf(tmp_path / "model.gguf", config, state))


def test_damage_is_named(tmp_path: Path) -> None:
    config, state = small_base()
    path = write_gguf(tmp_path / "model.gguf", config, state)
    whole = path.read_bytes()
    for length in (0, 3, 20, 500, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"model\.gguf: truncated or not a GGUF file"):
            load_base(path)
    path.write_bytes(b"PK\x03\x04" + whole[4:])
    with pytest.raises(CheckpointError, match="truncated or not a GGUF file"):
        load_base(path)

    state["layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.up_proj\.weight holds NaN or infinity"):
        load_base(write_gguf(tmp_path / "nan.gguf", config, state))
