"""Small GGUF files for tests, written the way llama.cpp's converter writes them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from tokenizers import pre_tokenizers

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.llama import Base, inverse_frequencies
from helpers.toys.toy_models import toy_config

NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 8)
OUTPUT_NORMS = {"attention_output_norm": "post_attention_norm", "feed_forward_output_norm": "post_ffw_norm"}
PERMUTED = ("llama", "granite", "smollm3")


def small_base(**changes: Any) -> tuple[BaseConfig, dict[str, torch.Tensor]]:
    sizes = {"vocab_size": 300, "hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
    config = toy_config(**{**sizes, "num_layers": 2, "context_length": 512, **changes}).base
    torch.manual_seed(0)
    state = {
        name: 1 + 0.1 * torch.randn(tensor.shape)
        if "norm" in name
        else torch.randn(tensor.shape) * tensor.shape[-1] ** -0.5
        for name, tensor in Base(config).state_dict().items()
    }
    return config, state


def ggml_quantize(values: np.ndarray, kind: Type) -> np.ndarray:
    """llama.cpp's own quantizer, for the types that the gguf package can only read."""
    from llama_cpp._ggml import libggml

    quantize = libggml.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    quantize.argtypes = [ctypes.c_int, pointer, pointer, number, number, number, pointer]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    values = np.ascontiguousarray(values, dtype=np.float32)
    out = np.zeros((rows, columns // block * size), dtype=np.uint8)
    weight = np.ones(columns, dtype=np.float32)
    written = quantize(kind, values.ctypes.data, out.ctypes.data, 0, rows, columns, weight.ctypes.data)
    assert written == out.nbytes
    return out


def byte_level_vocabulary() -> tuple[list[str], list[str], list[int]]:
    """Three special tokens, the 256 bytes and a few merges: tokens, merges, token types."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ"]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [merge.replace(" ", "") for merge in merges]
    return tokens, merges, [3] * 3 + [1] * (len(tokens) - 3)


def write_gguf(
    path: Path,
    config: BaseConfig,
    state: Mapping[str, torch.Tensor],
    kind: Type = Type.F32,
    vocabulary: bool = True,
    pre: str = "smollm",
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """`kind` is the type of the matrices; `extra` sets or (with None) leaves out keys."""
    arch = config.family
    keys: dict[str, Any] = {
        f"{arch}.context_length": config.context_length,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.block_count": config.num_layers,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.attention.head_count": config.num_heads,
        f"{arch}.attention.head_count_kv": config.num_kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.value_length": config.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{arch}.rope.freq_base": config.rope_theta,
        f"{arch}.rope.dimension_count": config.head_dim,
        **_of_family(config),
        **(extra or {}),
    }
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        if isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    if vocabulary:
        tokens, merges, types = byte_level_vocabulary()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_merges(merges)
        writer.add_token_types(types)
        writer.add_eos_token_id(2)
    if config.rope_scaling is not None:
        plain = inverse_frequencies(BaseConfig(**{**vars(config), "rope_scaling": None}))
        factors = plain / inverse_frequencies(config)
        writer.add_tensor("rope_freqs.weight", factors.float().numpy())
    for name, tensor in state.items():
        values = tensor.numpy()
        if arch in PERMUTED and ("q_proj" in name or "k_proj" in name):
            heads = config.num_heads if "q_proj" in name else config.num_kv_heads
            halves = values.reshape(heads, 2, config.head_dim // 2, *values.shape[1:])
            values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        if values.ndim == 1 or kind == Type.F32:
            writer.add_tensor(theirs(name), values)
        else:
            try:
                data = gguf.quants.quantize(values, kind)
            except NotImplementedError:
                data = ggml_quantize(values, kind)
            writer.add_tensor(theirs(name), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _of_family(config: BaseConfig) -> dict[str, Any]:
    arch = config.family
    if arch == "gemma3":
        return {f"{arch}.attention.sliding_window": config.window}
    if arch == "granite":
        return {
            f"{arch}.attention.scale": config.score_scale,
            f"{arch}.embedding_scale": config.embedding_scale,
            f"{arch}.residual_scale": config.residual_scale,
            f"{arch}.logit_scale": 1 / config.logits_scale,
        }
    return {}


def theirs(name: str) -> str:
    """embed_tokens.weight -> token_embd.weight; layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    prefix, _, stem = name.removesuffix(".weight").rpartition(".")
    if stem in OUTPUT_NORMS:
        return f"{prefix.replace('layers', 'blk')}.{OUTPUT_NORMS[stem]}.weight"
    return NAMES.get_name(name if stem == "lm_head" else f"model.{name}", (".weight", ".bias")) or name


def llama_cpp_logits(path: Path, ids: torch.Tensor) -> torch.Tensor:
    """llama.cpp's logits [n, vocab] for token ids [n].

    Token by token: some builds for processors with AMX crash in quantized products of several rows.
    """
    from llama_cpp import Llama

    llama = Llama(str(path), logits_all=True, n_ctx=256, verbose=False, n_threads=1, flash_attn=False)
    for token in ids.tolist():
        llama.eval([token])
    logits = torch.from_numpy(llama.scores[: len(ids)].copy())
    llama.close()
    return logits
