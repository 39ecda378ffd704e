"""A base tuned with PEFT: an adapter's folder, merged into its base while reading.

    adapter_config.json           kind of adapter, scale, and its base
    adapter_model.safetensors     base_model.model.<module>.lora_A.weight [r, in] and lora_B.weight [out, r],
                                  and whole modules and biases that were trained too

LoRA of linear layers and embeddings is merged, with patterns of ranks and scales, and rsLoRA. Other kinds
(DoRA and other adapters) must be merged by PEFT.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.formats.renaming import hugging_face_names, norm_offset, rename
from hamburger_edge.models.bases.weights import LoadedBase, base_shapes, check_state, read_safetensors
from hamburger_edge.support.strict import read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_LORA = re.compile(r"(.+)\.(?:lora_([AB])\.weight|lora_embedding_([AB]))")
_BY_HAND = "merge it with PEFT's merge_and_unload(), and save the base that comes of it"
# Settings that are read below, and those without effect after training. Any other active setting may change
# the computation.
_KNOWN = {
    *("peft_type", "lora_alpha", "alpha_pattern", "use_rslora", "base_model_name_or_path", "revision"),
    *("r", "rank_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("auto_mapping", "bias", "inference_mode", "init_lora_weights", "lora_dropout", "modules_to_save"),
    *("task_type", "peft_version", "megatron_config", "megatron_core", "loftq_config", "corda_config"),
    *("eva_config", "lora_ga_config", "qalora_group_size", "ensure_weight_tying"),
}


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def base_of_adapter(folder: Path) -> tuple[str, str | None]:
    """Return an adapter's base (a path or a repository's name) and its revision, if any."""
    settings = _settings(folder)
    name = settings.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise CheckpointError(
            f"{folder / CONFIG}: base_model_name_or_path is missing: write the base's path or name there"
        )
    revision = settings.get("revision")
    return name, revision if isinstance(revision, str) else None


def merge_adapter(base: LoadedBase, folder: Path) -> None:
    """Merge in place into the base's weights: weight += scale * B @ A."""
    settings, source = _settings(folder), folder / WEIGHTS
    if not source.exists() and (folder / "adapter_model.bin").exists():
        raise CheckpointError(
            f"{folder}: holds pickled .bin weights, which are never read: save the adapter again with "
            "safe_serialization=True"
        )
    pairs: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in read_safetensors(source):
        match = _LORA.fullmatch(name)
        weight = _weight(name if match is None else f"{match[1]}.weight", base, source)
        if match is None:
            base.state[weight] = tensor.float() + norm_offset(base.config.family, weight)
        else:
            side = match[2] or match[3]
            embedding = match[3] is not None  # [r, vocab] and [d, r], of a table [vocab, d]
            other = {"A": "B", "B": "A"}[side] if embedding else side
            pairs[weight][other] = (tensor.T if embedding else tensor).float()
    check_state(base.state, base_shapes(base.config), source)
    for weight, pair in pairs.items():
        if pair.keys() != {"A", "B"}:
            raise CheckpointError(f"{source}: {weight} has only one half of its LoRA pair: get it again")
        rank = pair["A"].shape[0]
        change = pair["B"] @ pair["A"]
        if change.shape != base.state[weight].shape:
            raise CheckpointError(
                f"{source}: changes {weight} by {list(change.shape)}, and the base has "
                f"{list(base.state[weight].shape)}: not an adapter of this base"
            )
        scale = _alpha(weight, settings) / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        base.state[weight] = base.state[weight].float().add_(scale * change)
    check_state(base.state, base_shapes(base.config), source)


def _settings(folder: Path) -> dict[str, Any]:
    data = read_json(folder / CONFIG)
    if not isinstance(data, dict):
        raise CheckpointError(f"{folder / CONFIG}: expected a JSON object")
    kind = data.get("peft_type")
    strange = [f"{name}={value!r}" for name, value in data.items() if name not in _KNOWN and value]
    if kind != "LORA" or strange:
        what = " with ".join([str(kind), *strange[:1]])
        raise CheckpointError(f"{folder}: an adapter of kind {what} is not merged here: {_BY_HAND}")
    return data


def _weight(name: str, base: LoadedBase, source: Path) -> str:
    """Return our name of a weight that the adapter changes."""
    plain = name.removeprefix(_PREFIX).replace(".base_layer.", ".").replace(".modules_to_save.", ".")
    try:
        weight = rename(plain, hugging_face_names(base.config.family))
    except KeyError:
        weight = None
    if base.config.tied_head and weight in ("embed_tokens.weight", "lm_head.weight"):
        raise CheckpointError(
            f"{source}: changes {weight}, but this base has one table for embedding and head: {_BY_HAND}"
        )
    if weight not in base.state:
        raise CheckpointError(f"{source}: unknown tensor {name}: not an adapter of this base")
    return weight


def _alpha(weight: str, settings: Mapping[str, Any]) -> float:
    """Return a module's alpha; a pattern matches the end of a module's name."""
    module = f"model.{weight.removesuffix('.weight')}"
    patterns = settings.get("alpha_pattern") or {}
    matched = next((alpha for key, alpha in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), None)
    return float(settings["lora_alpha"] if matched is None else matched)
