"""GGUF files: every quantization, both row orders, rotary scaling, refused files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf import quants
from helpers.base_logits import built, logits_whole
from helpers.toys.gguf_files import ggml_quantize, llama_cpp_logits, small_base, write_gguf

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.config import RopeScaling
from hamburger_edge.models.bases.formats.gguf_blocks import KINDS, decode
from hamburger_edge.models.bases.formats.gguf_file import permute, unpermute
from hamburger_edge.models.bases.loading import load_base


@pytest.mark.parametrize("number", KINDS, ids=lambda number: KINDS[number].name)
def test_blocks_are_decoded_like_the_gguf_package(number: int) -> None:
    kind, draw = Type(number), np.random.default_rng(0)
    stored = ggml_quantize(draw.standard_normal((6, 512)).astype(np.float32), kind)
    wanted = quants.dequantize(stored, kind)
    assert gguf.GGML_QUANT_SIZES[kind] == (KINDS[number].weights, KINDS[number].bytes)
    np.testing.assert_array_equal(decode(KINDS[number], stored.tobytes(), (6, 512)), wanted, strict=True)


# type -> largest error of a weight, as a share of the largest weight of its row
@pytest.mark.parametrize(("kind", "tolerance"), [(Type.Q6_K, 0.035), (Type.Q3_K, 0.3)])
def test_common_and_rare_types_are_read(kind: Type, tolerance: float, tmp_path: Path) -> None:
    config, state = small_base()
    loaded = load_base(write_gguf(tmp_path / "model.gguf", config, state, kind))
    for name, wanted in state.items():
        allowed = tolerance * wanted.abs().amax(-1, keepdim=True) if wanted.ndim == 2 else 0
        assert ((loaded.state[name] - wanted).abs() <= allowed).all(), name


SHAPES: dict[str, dict[str, Any]] = {
    "untied": {"tied_head": False},
    "qwen2": {"family": "qwen2", "qkv_bias": True},
    "qwen3": {"family": "qwen3", "qk_norm": True, "head_dim": 96},
    "llama 3.2": {"rope_theta": 500000.0, "rope_scaling": RopeScaling(32.0, 1.0, 4.0, 8192)},
    "other original context": {"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 64)},
    "gemma3": {
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
    "granite": {
        "family": "granite",
        "embedding_scale": 12.0,
        "residual_scale": 0.22,
        "attention_scale": 0.0625,
        "logits_scale": 0.125,
    },
    "smollm3": {"family": "smollm3", "num_layers": 5, "unrotated_layers": (3,)},
}


@pytest.mark.parametrize("name", SHAPES)
def test_file_is_read_as_written_and_like_llama_cpp(name: str, tmp_path: Path) -> None:
    """Writer and reader could share a mistake: llama.cpp computes the logits, over some windows of text."""
    config, state = small_base(vocab_size=265, **SHAPES[name])
    path = write_gguf(tmp_path / "model.gguf", config, state)
    loaded = load_base(path)
    assert (loaded.config, loaded.eos_ids) == (config, (2,))
    assert loaded.state.keys() == state.keys()
    for weight, wanted in state.items():
        assert torch.equal(loaded.state[weight], wanted), weight
    ids = torch.randint(0, 265, (1, 200), generator=torch.Generator().manual_seed(1))
    expected = llama_cpp_logits(path, ids[0])
    got = logits_whole(*built(loaded), ids)[0]
    # llama.cpp keeps keys and values in 16 bits: 2^-11 of values of about 1 through the layers
    torch.testing.assert_close(got, expected, atol=3e-2 * float(expected.std()), rtol=0)


def test_permutations_are_inverse() -> None:
    rows = torch.arange(48.0).reshape(24, 2)
    assert torch.equal(unpermute(permute(rows, 3), 3), rows)
    assert permute(torch.arange(8), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert permute(torch.arange(6), 1).tolist() == [0, 3, 1, 4, 2, 5]  # four rows cannot tell the two apart


@pytest.mark.parametrize(
    ("shape", "extra", "message"),
    [
        ({"family": "gemma2"}, {}, "architecture 'gemma2'"),
        ({"vocab_size": 200}, {}, "265 tokens, but its embedding ends at 199"),
        ({}, {"llama.attention.head_count": None}, "llama.attention.head_count is missing"),
        ({}, {"llama.expert_count": 8}, "mixture of experts"),
        ({}, {"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({}, {"llama.rope.dimension_count": 32}, "part of each head"),
        ({}, {"llama.attention.value_length": 32}, "different widths"),
        ({}, {"llama.attention.sliding_window": 128}, "sliding-window"),
        ({}, {"llama.attention.head_count_kv": 3}, "does not divide"),
        ({}, {"llama.block_count": 1}, "unknown tensors layers.1.input_layernorm.weight"),
    ],
)
def test_unsupported_headers_are_refused(
    shape: dict[str, Any], extra: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "model.gguf", *small_base(**shape), extra=extra)
    with pytest.raises(CheckpointError, match=message) as error:
        load_base(path)
    assert str(path) in str(error.value)


def test_unknown_rotary_factors_and_damage_are_refused(tmp_path: Path) -> None:
    config, state = small_base()
    path = write_gguf(tmp_path / "model.gguf", config, state)
    whole = path.read_bytes()
    cut = [whole[:length] for length in (0, 20, len(whole) // 2, len(whole) - 100)]
    for content in (*cut, b"PK\x03\x04" + whole[4:]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"model\.gguf: truncated or not a GGUF file"):
            load_base(path)
    state["rope_freqs.weight"] = torch.linspace(1, 2, 32)
    with pytest.raises(CheckpointError, match="not a Llama 3 scaling"):
        load_base(write_gguf(tmp_path / "other.gguf", config, state))
