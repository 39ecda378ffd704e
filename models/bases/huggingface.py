"""Read a base LLM from a Hugging Face folder: config.json and one or many safetensors shards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from hamburger_edge.errors import CheckpointError, ConfigError
from hamburger_edge.models.architecture.config import BaseConfig, RopeScaling
from hamburger_edge.models.bases.chat_template import template_beside
from hamburger_edge.models.bases.renaming import HUGGING_FACE, rename
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
    "llama": {"num_key_value_heads": None, "head_dim": None, "sliding_window": None, "eos_token_id": 2},
    "mistral": {"num_key_value_heads": 8, "head_dim": None, "sliding_window": 4096, "eos_token_id": 2},
    "qwen2": {"num_key_value_heads": 32, "head_dim": None, "sliding_window": 4096, "eos_token_id": None},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096, "eos_token_id": None},
}
FAMILIES = tuple(DEFAULTS)


def load_hf(folder: Path, *, half: bool = False) -> LoadedBase:
    state: dict[str, Tensor] = {}
    for theirs, tensor in _tensors(folder):
        try:
            ours = rename(theirs, HUGGING_FACE)
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
        state[ours] = floating(ours, tensor, half=half)
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
    found = re.match(r"---\n(?:.*\n)*?license: *(\S+)\n(?:.*\n)*?---\n", text)
    return found.group(1) if found else None


def read_eos(folder: Path) -> tuple[int, ...]:
    """Return the tokens that end an answer; generation_config.json lists more of them than config.json."""
    ids = None
    for file in ("config.json", "generation_config.json"):
        settings = read_json(folder / file) if (folder / file).exists() else {}
        if isinstance(settings, dict):
            default = DEFAULTS.get(str(settings.get("model_type")), {}).get("eos_token_id")
            found = settings.get("eos_token_id", default)
            ids = ids if found is None else found
    return () if ids is None else tuple(ids) if isinstance(ids, list) else (ids,)


def read_config(path: Path, *, has_head: bool) -> BaseConfig:
    """Convert config.json to our configuration; refuse settings that would compute something else."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object")

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

    family = data.get("model_type")
    if family not in FAMILIES:
        raise refuse(f"model family {family!r} is not supported (known: {', '.join(FAMILIES)})")
    data = {**DEFAULTS[family], **data}
    if data.get("quantization_config"):
        raise refuse("the weights are quantized: use the unquantized model")
    if data.get("hidden_act", "silu") != "silu":
        raise refuse(f"activation {data['hidden_act']!r} is not supported (known: 'silu')")
    if data.get("attention_bias"):
        raise refuse("attention_bias puts a bias on o_proj, which is not supported")
    if data.get("mlp_bias"):
        raise refuse("mlp_bias is not supported")
    if data.get("partial_rotary_factor", 1.0) != 1.0:
        raise refuse("partial_rotary_factor: rotating part of each head is not supported")
    context = number("max_position_embeddings")
    window = _sliding_window(data, family)
    if window is not None and window < context:
        raise refuse(
            f"sliding_window {window} is shorter than the context of {context}, and only full attention is "
            f"supported: set max_position_embeddings to {window} to use the model up to that length"
        )
    theta, scaling = _rope(data, path)
    heads = number("num_attention_heads")
    try:
        return BaseConfig(
            family=family,
            vocab_size=number("vocab_size"),
            hidden_size=number("hidden_size"),
            intermediate_size=number("intermediate_size"),
            num_layers=number("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=number("num_key_value_heads", heads),
            head_dim=number("head_dim", number("hidden_size") // max(heads, 1)),
            context_length=context,
            rms_norm_eps=number("rms_norm_eps", 1e-6, float),
            rope_theta=theta,
            rope_scaling=scaling,
            tied_head=data.get("tie_word_embeddings", not has_head),
            qkv_bias=family == "qwen2",
            qk_norm=family == "qwen3",
        )
    except ConfigError as error:
        raise refuse(str(error)) from error


def _sliding_window(data: dict[str, Any], family: str) -> int | None:
    """Return the window that a layer uses, or None."""
    if "layer_types" in data and "sliding_attention" not in (data["layer_types"] or ["sliding_attention"]):
        return None
    window: int | None = data["sliding_window"]
    if family == "mistral":
        return window
    if family == "llama" or not data.get("use_sliding_window"):
        return None
    some_layer = data.get("max_window_layers", 28) < data.get("num_hidden_layers", 0)
    return window if some_layer else None


def _rope(data: dict[str, Any], path: Path) -> tuple[float, RopeScaling | None]:
    """Return theta and scaling from `rope_theta` and `rope_scaling`, or the newer `rope_parameters`."""
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise CheckpointError(f"{path}: rope settings are {rope!r}, expected an object")
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
