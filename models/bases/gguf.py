"""Read a base LLM from a llama.cpp GGUF file: configuration, float32 weights, tokenizer facts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.errors import CheckpointError, ConfigError
from hamburger_edge.models.architecture.config import BaseConfig, RopeScaling
from hamburger_edge.models.architecture.llama import inverse_frequencies
from hamburger_edge.models.bases.chat_template import JinjaTemplate
from hamburger_edge.models.bases.formats.gguf_file import GGUFFile, architecture_of
from hamburger_edge.models.bases.weights import LoadedBase, base_shapes, check_state

# Gemma 3's files leave out what llama.cpp knows: every sixth layer has no window, the others this rope base
WINDOW_EVERY, WINDOW_ROPE_THETA = 6, 10000.0
END_OF_TURN = "<end_of_turn>"


def load_gguf(path: Path) -> LoadedBase:
    file = GGUFFile(path)
    config = read_config(file)
    state = {ours: torch.from_numpy(file.weight(ours, theirs)) for ours, theirs in file.our_names().items()}
    check_state(state, base_shapes(config), path)
    tokens = file.get("tokenizer.ggml.tokens", [])
    if len(tokens) > config.vocab_size:
        raise CheckpointError(
            f"{path}: lists {len(tokens)} tokens, but its embedding ends at {config.vocab_size - 1}: "
            "convert the model again"
        )
    ends = [file.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
    if END_OF_TURN in tokens:  # Gemma's files do not name it as an end
        ends.append(tokens.index(END_OF_TURN))
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


def read_config(file: GGUFFile) -> BaseConfig:
    keys = ArchitectureKeys(file)
    _check_supported(keys)
    heads, layers = keys.need("attention.head_count"), keys.need("block_count")
    try:
        config = BaseConfig(
            family=keys.family,
            vocab_size=int(file.tensors["token_embd.weight"].shape[0]),
            hidden_size=keys.need("embedding_length"),
            intermediate_size=keys.need("feed_forward_length"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=keys.get("attention.head_count_kv", heads),
            head_dim=keys.head_dim,
            context_length=keys.need("context_length"),
            rms_norm_eps=short(keys.need("attention.layer_norm_rms_epsilon")),
            rope_theta=short(keys.get("rope.freq_base", 10000.0)),
            tied_head="output.weight" not in file.tensors,
            qkv_bias="blk.0.attn_q.bias" in file.tensors,
            qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
            unrotated_layers=tuple(range(3, layers, 4)) if keys.family == "smollm3" else (),
            **(_gemma(keys) if keys.family == "gemma3" else {}),
            **_scales(keys),
        )
    except ConfigError as error:
        raise CheckpointError(f"{file.path}: {error}") from error
    if "rope_freqs.weight" in file.tensors:
        factors = torch.from_numpy(file.array("rope_freqs.weight"))
        config = replace(config, rope_scaling=recover_scaling(config, factors, file.path))
    return config


@dataclass(frozen=True)
class ArchitectureKeys:
    """The keys of a file that begin with the name of its architecture."""

    file: GGUFFile

    @property
    def family(self) -> str:
        return architecture_of(self.file)

    def need(self, key: str) -> Any:
        return self.file.need(f"{self.family}.{key}")

    def get(self, key: str, default: Any) -> Any:
        return self.file.get(f"{self.family}.{key}", default)

    @property
    def head_dim(self) -> int:
        width: int = self.get(
            "attention.key_length", self.need("embedding_length") // self.need("attention.head_count")
        )
        return width


def _check_supported(keys: ArchitectureKeys) -> None:
    """Refuse a file that this program cannot compute, with the reason."""
    counts = (keys.need("attention.head_count"), keys.get("attention.head_count_kv", 1))
    if any(isinstance(count, list) for count in counts):
        raise _unsupported(keys, "the number of heads differs from layer to layer")
    head_dim, scaling = keys.head_dim, keys.get("rope.scaling.type", "none")
    window = keys.get("attention.sliding_window", 0)
    for reason, applies in {
        "keys and values have different widths": keys.get("attention.value_length", head_dim) != head_dim,
        "only part of each head is rotated": keys.get("rope.dimension_count", head_dim) != head_dim,
        "this is a mixture of experts": bool(keys.get("expert_count", 0)),
        f"rope scaling {scaling!r}": scaling != "none",
        "sliding-window attention": keys.family != "gemma3" and 0 < window < keys.need("context_length"),
    }.items():
        if applies:
            raise _unsupported(keys, reason)
    if "token_embd.weight" not in keys.file.tensors:
        raise CheckpointError(
            f"{keys.file.path}: missing tensor token_embd.weight: a vocabulary-only or split file"
        )


def _unsupported(keys: ArchitectureKeys, reason: str) -> CheckpointError:
    return CheckpointError(f"{keys.file.path}: {reason}, which is not supported")


def _gemma(keys: ArchitectureKeys) -> dict[str, Any]:
    """Return the fields in which Gemma 3 differs: norms of outputs, activation, windows of attention."""
    fields: dict[str, Any] = {"output_norms": True, "activation": "gelu_tanh"}
    if window := keys.get("attention.sliding_window", 0):
        windowed = tuple(n for n in range(keys.need("block_count")) if (n + 1) % WINDOW_EVERY)
        fields |= {
            "window": window,
            "windowed_layers": windowed,
            "window_rope_theta": WINDOW_ROPE_THETA,
        }
    return fields


def _scales(keys: ArchitectureKeys) -> dict[str, Any]:
    """Return the multipliers of the families that have any."""
    if keys.family == "gemma3":
        return {"embedding_scale": keys.need("embedding_length") ** 0.5}
    if keys.family == "granite":
        return {
            "embedding_scale": short(keys.get("embedding_scale", 1.0)),
            "residual_scale": short(keys.get("residual_scale", 1.0)),
            "attention_scale": short(keys.need("attention.scale")),
            "logits_scale": 1 / short(keys.get("logit_scale", 1.0)),
        }
    return {}


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
