"""Read a base LLM from a Hugging Face folder: config.json and one or many safetensors shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from hamburger_edge.errors import CheckpointError, ConfigError
from hamburger_edge.models.architecture.config import BaseConfig, RopeScaling
from hamburger_edge.models.bases.chat_template import template_beside
from hamburger_edge.models.bases.formats.renaming import hugging_face_names, norm_offset, rename
from hamburger_edge.models.bases.weights import (
    LoadedBase,
    base_shapes,
    check_state,
    floating,
    read_safetensors,
)
from hamburger_edge.support.files import read_regular
from hamburger_edge.support.strict import read_json

# What a config.json leaves out is what transformers' class of the family has.
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"eos_token_id": 2},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096, "eos_token_id": 2},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096},
    "smollm3": {
        "num_key_value_heads": 4,
        "eos_token_id": 128001,
        "rope_theta": 2000000.0,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
    "granite": {
        "eos_token_id": 2,
        "embedding_multiplier": 1.0,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "attention_multiplier": 1.0,
        "tie_word_embeddings": False,
    },
    "gemma3_text": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "eos_token_id": 1,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
}
FAMILIES = tuple(DEFAULTS)
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
# settings that compute something else unless they are absent, None or False
UNSUPPORTED = {
    "attention_bias": "attention_bias puts a bias on o_proj, which is not supported",
    "mlp_bias": "mlp_bias is not supported",
    "attn_logit_softcapping": "attn_logit_softcapping is not supported",
    "final_logit_softcapping": "final_logit_softcapping is not supported",
    "use_bidirectional_attention": "use_bidirectional_attention is not supported",
}


def load_hf(folder: Path, *, half: bool = False) -> LoadedBase:
    state: dict[str, Tensor] = {}
    family = _family(folder / "config.json")
    for theirs, tensor in _tensors(folder):
        try:
            ours = rename(theirs, hugging_face_names(family))
        except KeyError:
            raise CheckpointError(
                f"{folder}: unknown tensor {theirs}: this variant of the model is not supported"
            ) from None
        if ours is None:
            continue
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{folder}: tensor {theirs} is quantized ({tensor.dtype}): use the unquantized model"
            )
        state[ours] = floating(ours, tensor, half=half) + norm_offset(family, ours)
    config = read_config(folder / "config.json", has_head="lm_head.weight" in state)
    if config.tied_head:
        state.pop("lm_head.weight", None)  # some files store the tied weight twice
    check_state(state, base_shapes(config), folder)
    return LoadedBase(
        config=config,
        state=state,
        tokenizer=None,
        chat_template=None,
        eos_ids=read_eos(folder),
        name=folder.resolve().name,
        license=_license(folder),
        jinja=template_beside(folder),
    )


def _family(path: Path) -> str:
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    family = data.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(
            f"{path}: model family {family!r} is not supported (known: {', '.join(FAMILIES)})"
        )
    return str(family)


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of the folder's shards, one at a time."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        if not single.exists() and any(folder.glob("*.bin")):
            raise CheckpointError(
                f"{folder}: holds pickled .bin weights, which are never read: "
                "save the model again with safe_serialization=True"
            )
        yield from read_safetensors(single)
        return
    table = read_json(index)
    shards = table.get("weight_map") if isinstance(table, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise CheckpointError(f"{index}: has no weight_map: get it again")
    for shard in sorted(set(shards.values())):
        if Path(shard).name != shard:
            raise CheckpointError(f"{index}: shard {shard!r} is not a plain file name: get it again")
        yield from read_safetensors(folder / shard)


def _license(folder: Path) -> str | None:
    """Return the licence in the front matter of the model card."""
    card = folder / "README.md"
    text = read_regular(card).decode("utf-8", errors="replace") if card.exists() else ""
    match = re.match(r"---\n(?:.*\n)*?license: *(\S+)\n(?:.*\n)*?---\n", text)
    return match.group(1) if match else None


def read_eos(folder: Path) -> tuple[int, ...]:
    """Return the tokens that end an answer; generation_config.json lists more of them than config.json."""
    ids = None
    for file in ("config.json", "generation_config.json"):
        settings = read_json(folder / file) if (folder / file).exists() else {}
        if isinstance(settings, dict):
            default = DEFAULTS.get(str(settings.get("model_type")), {}).get("eos_token_id")
            end = settings.get("eos_token_id", default)
            ids = ids if end is None else end
    return () if ids is None else tuple(ids) if isinstance(ids, list) else (ids,)


def read_config(path: Path, *, has_head: bool) -> BaseConfig:
    """Convert config.json to our configuration; refuse settings that would compute something else."""
    family, data = _family(path), read_json(path)

    def refuse(reason: str) -> CheckpointError:
        return CheckpointError(f"{path}: {reason}")

    def number(key: str, default: Any = None, kind: type = int) -> Any:
        value = data.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | kind):
            raise refuse(
                f"{key} is {value!r}, expected {kind.__name__}" if key in data else f"{key} is missing"
            )
        return value

    data = {**DEFAULTS[family], **data}
    if data.get("quantization_config"):
        raise refuse("the weights are quantized: use the unquantized model")
    activation = data.get("hidden_activation") or data.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise refuse(f"activation {activation!r} is not supported (known: {', '.join(ACTIVATIONS)})")
    for key, reason in UNSUPPORTED.items():
        if data.get(key):
            raise refuse(reason)
    if data.get("partial_rotary_factor", 1.0) != 1.0:
        raise refuse("partial_rotary_factor: rotating part of each head is not supported")
    context, layers = number("max_position_embeddings"), number("num_hidden_layers")
    window, windowed = _windows(data, family, layers)
    gemma = family == "gemma3_text"
    if not gemma and window is not None and window >= context:
        window, windowed = None, ()
    theta, scaling = _rope(data, path)
    heads = number("num_attention_heads")
    try:
        return BaseConfig(
            family=family,
            vocab_size=number("vocab_size"),
            hidden_size=number("hidden_size"),
            intermediate_size=number("intermediate_size"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=number("num_key_value_heads", heads),
            head_dim=number("head_dim", number("hidden_size") // max(heads, 1)),
            context_length=context,
            rms_norm_eps=number("rms_norm_eps", 1e-6, float),
            rope_theta=theta,
            rope_scaling=scaling,
            tied_head=data.get("tie_word_embeddings", not has_head),
            qkv_bias=family == "qwen2",
            qk_norm=family in ("qwen3", "gemma3_text"),
            output_norms=gemma,
            activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
            window=window,
            windowed_layers=windowed,
            window_rope_theta=_window_theta(data) if gemma else None,
            unrotated_layers=_unrotated(data, layers) if family == "smollm3" else (),
            **_scales(family, number),
        )
    except ConfigError as error:
        raise refuse(str(error)) from error


def _scales(family: str, number: Callable[..., Any]) -> dict[str, Any]:
    """Return the multipliers of the families that have any."""
    if family == "gemma3_text":
        return {
            "embedding_scale": number("hidden_size") ** 0.5,
            "attention_scale": number("query_pre_attn_scalar", kind=float) ** -0.5,
        }
    if family == "granite":
        return {
            "embedding_scale": float(number("embedding_multiplier", kind=float)),
            "residual_scale": float(number("residual_multiplier", kind=float)),
            "attention_scale": float(number("attention_multiplier", kind=float)),
            "logits_scale": 1 / number("logits_scaling", kind=float),
        }
    return {}


def _windows(data: dict[str, Any], family: str, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """Return the window, and the numbers of the layers that have it."""
    window: int | None = data.get("sliding_window")
    always = family in ("mistral", "gemma3_text")
    if window is None or not (always or data.get("use_sliding_window")) or family in ("llama", "granite"):
        return None, ()
    kinds = data.get("layer_types")
    if kinds:
        windowed = [number for number, kind in enumerate(kinds[:layers]) if kind == "sliding_attention"]
    elif family == "gemma3_text":
        windowed = [number for number in range(layers) if (number + 1) % data["sliding_window_pattern"]]
    elif family == "smollm3":
        windowed = list(_unrotated(data, layers))
    else:
        windowed = list(range(0 if always else data.get("max_window_layers", 28), layers))
    return (window, tuple(windowed)) if windowed else (None, ())


def _unrotated(data: dict[str, Any], layers: int) -> tuple[int, ...]:
    """Return SmolLM3's layers without rotation."""
    if (rotated := data.get("no_rope_layers")) is not None:
        return tuple(number for number, rotates in enumerate(rotated[:layers]) if not rotates)
    return tuple(n for n in range(layers) if (n + 1) % data["no_rope_layer_interval"] == 0)


def _window_theta(data: dict[str, Any]) -> float:
    """Return the rope base of Gemma's windowed layers; newer files name it by the kind of layer."""
    newer = (data.get("rope_parameters") or {}).get("sliding_attention") or {}
    return float(newer.get("rope_theta") or data["rope_local_base_freq"])


def _rope(data: dict[str, Any], path: Path) -> tuple[float, RopeScaling | None]:
    """Return theta and scaling from `rope_theta` and `rope_scaling`, or the newer `rope_parameters`."""
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise CheckpointError(f"{path}: rope settings are {rope!r}, expected an object")
    if data["model_type"] == "gemma3_text" and isinstance(rope.get("full_attention"), dict):
        rope = rope["full_attention"]
    if any(isinstance(value, dict) for value in rope.values()):
        raise CheckpointError(f"{path}: rope settings that differ from layer to layer are not supported")
    theta = float(rope.get("rope_theta") or data.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise CheckpointError(f"{path}: rope type {kind!r} is not supported (known: 'default', 'llama3')")
    try:
        return theta, RopeScaling(
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_context=int(rope["original_max_position_embeddings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: llama3 rope scaling: bad or missing {error}") from error
