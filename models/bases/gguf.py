"""Read a base LLM from a llama.cpp GGUF file: configuration, float32 weights, tokenizer facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hamburger_edge.errors import CheckpointError, ConfigError, require
from hamburger_edge.models.architecture.config import BaseConfig, RopeScaling
from hamburger_edge.models.architecture.llama import inverse_frequencies
from hamburger_edge.models.bases.chat_template import JinjaTemplate
from hamburger_edge.models.bases.renaming import GGUF, rename
from hamburger_edge.models.bases.weights import LoadedBase, base_shapes, check_state
from hamburger_edge.support.files import check_regular

# architecture -> whether rows of Q and K are in the order of interleaved rotary pairs
ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}


class GGUFFile:
    """Header and tensors of one GGUF file; every failure is a CheckpointError with its name."""

    def __init__(self, path: Path):
        gguf = require("gguf", "export")
        self.path = path
        try:
            check_regular(path)
            self.reader = gguf.GGUFReader(path)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        except Exception as error:  # the reader slices a memory map and may raise any numpy error
            raise CheckpointError(f"{path}: truncated or not a GGUF file ({error}): get it again") from error
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise CheckpointError(f"{self.path}: GGUF key {key} is missing: convert the model again")
        return value

    def tensor(self, name: str) -> Tensor:
        """Return a dequantized copy in float32."""
        from gguf import quants

        tensor = self.tensors[name]
        try:
            values = quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise CheckpointError(
                f"{self.path}: tensor {name} has type {kind}, which cannot be read: "
                "use a file of type F16, Q8_0, Q4_0 ... Q6_K"
            ) from error
        if np.may_share_memory(values, tensor.data):  # F32 is a view of the file
            values = values.copy()
        return torch.from_numpy(values)


def load_gguf(path: Path) -> LoadedBase:
    file = GGUFFile(path)
    config = read_config(file)
    permuted = ARCHITECTURES[architecture_of(file)]
    state: dict[str, Tensor] = {}
    for theirs in file.tensors:
        try:
            ours = rename(theirs, GGUF)
        except KeyError:
            raise CheckpointError(
                f"{path}: unknown tensor {theirs}: this architecture variant is not supported"
            ) from None
        if ours is None:
            continue
        tensor = file.tensor(theirs)
        if permuted and ".self_attn.q_proj." in ours:
            tensor = unpermute(tensor, config.num_heads)
        elif permuted and ".self_attn.k_proj." in ours:
            tensor = unpermute(tensor, config.num_kv_heads)
        state[ours] = tensor
    check_state(state, base_shapes(config), path)
    tokens = file.reader.fields.get("tokenizer.ggml.tokens")
    if tokens is not None and len(tokens.data) > config.vocab_size:
        raise CheckpointError(
            f"{path}: lists {len(tokens.data)} tokens, but its embedding ends at {config.vocab_size - 1}: "
            "convert the model again"
        )
    ends = [file.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
    return LoadedBase(
        config=config,
        state=state,
        tokenizer=None,
        chat_template=None,
        eos_ids=tuple(sorted({int(e) for e in ends if e is not None})),
        name=file.get("general.name") or path.stem,
        license=file.get("general.license"),
        jinja=_template(file),
    )


def _template(file: GGUFFile) -> JinjaTemplate | None:
    text = file.get("tokenizer.chat_template")
    if not isinstance(text, str):
        return None
    tokens = dict(enumerate(file.get("tokenizer.ggml.tokens", [])))
    bos, eos = (tokens.get(file.get(f"tokenizer.ggml.{name}_token_id")) for name in ("bos", "eos"))
    return JinjaTemplate(file.path, text, bos, eos)


def unpermute(tensor: Tensor, heads: int) -> Tensor:
    """Rows of each head from interleaved pairs (0, D/2, 1, D/2+1, ...) to halves (0, 1, ..., D-1)."""
    pairs: Tensor = tensor.unflatten(0, (heads, -1, 2))
    return pairs.transpose(1, 2).flatten(0, 2).contiguous()


def permute(tensor: Tensor, heads: int) -> Tensor:
    """The inverse of `unpermute`, for writing."""
    halves: Tensor = tensor.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2).contiguous()


def architecture_of(file: GGUFFile) -> str:
    architecture = file.need("general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{file.path}: GGUF architecture {architecture!r} is not supported "
            f"(known: {', '.join(ARCHITECTURES)})"
        )
    return str(architecture)


def read_config(file: GGUFFile) -> BaseConfig:
    family = architecture_of(file)

    def need(key: str) -> Any:
        return file.need(f"{family}.{key}")

    def get(key: str, default: Any) -> Any:
        return file.get(f"{family}.{key}", default)

    def refuse(reason: str) -> CheckpointError:
        return CheckpointError(f"{file.path}: {reason}, which is not supported")

    heads, kv_heads = (
        need("attention.head_count"),
        get("attention.head_count_kv", need("attention.head_count")),
    )
    if isinstance(heads, list) or isinstance(kv_heads, list):
        raise refuse("the number of heads differs from layer to layer")
    head_dim = get("attention.key_length", need("embedding_length") // heads)
    if get("attention.value_length", head_dim) != head_dim:
        raise refuse("keys and values have different widths")
    if get("rope.dimension_count", head_dim) != head_dim:
        raise refuse("only part of each head is rotated")
    if get("expert_count", 0):
        raise refuse("this is a mixture of experts")
    if get("rope.scaling.type", "none") != "none":
        raise refuse(f"rope scaling {get('rope.scaling.type', '')!r}")
    if 0 < get("attention.sliding_window", 0) < need("context_length"):
        raise refuse("sliding-window attention")
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError(
            f"{file.path}: missing tensor token_embd.weight: a vocabulary-only or split file"
        )
    try:
        config = BaseConfig(
            family=family,
            vocab_size=int(file.tensors["token_embd.weight"].shape[1]),
            hidden_size=need("embedding_length"),
            intermediate_size=need("feed_forward_length"),
            num_layers=need("block_count"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            context_length=need("context_length"),
            rms_norm_eps=short(need("attention.layer_norm_rms_epsilon")),
            rope_theta=short(get("rope.freq_base", 10000.0)),
            tied_head="output.weight" not in file.tensors,
            qkv_bias="blk.0.attn_q.bias" in file.tensors,
            qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        )
    except ConfigError as error:
        raise CheckpointError(f"{file.path}: {error}") from error
    if "rope_freqs.weight" in file.tensors:
        factors = file.tensor("rope_freqs.weight")
        config = replace(config, rope_scaling=recover_scaling(config, factors, file.path))
    return config


def short(value: float) -> float:
    """Return the shortest decimal of a float32: 1e-05 instead of 9.999999747e-06."""
    return float(f"{value:.7g}")


def recover_scaling(config: BaseConfig, factors: Tensor, path: Path) -> RopeScaling | None:
    """Recover Llama 3 scaling from the divisors [D/2] of the rotary frequencies that a GGUF stores.

    Files lack the original context, so powers of two are tried until the divisors agree.
    """
    factor = short(float(factors.max()))
    if factor == 1.0:
        return None
    plain = inverse_frequencies(config)
    for original in (8192, *(2**n for n in range(5, 21))):
        scaling = RopeScaling(factor, 1.0, 4.0, original)
        wanted = plain / inverse_frequencies(replace(config, rope_scaling=scaling))
        if torch.allclose(wanted, factors.double(), rtol=1e-4):
            return scaling
    raise CheckpointError(
        f"{path}: rope_freqs.weight is not a Llama 3 scaling: load this model's Hugging Face folder instead"
    )
