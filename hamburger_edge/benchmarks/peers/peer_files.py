"""Convert the bundle's base weights to the peers' file formats, once, in the cache folder.

<home>/peers/<name>-<digest of the base>/
  hf/            Hugging Face: config.json, model.safetensors (float32), tokenizer.json
  llama-<type>/  llama.cpp: a GGUF file of the base, without the graft
  ...            files that peers build from these
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.errors import InputError
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import sha256
from hamburger_edge.support.folders import made_once

QUANTIZED = ("q4_0", "q4_1", "iq4_nl", "q8_0")  # types that llama.cpp writes
FAMILIES = {  # ours -> Hugging Face's model type and class
    "llama": ("llama", "LlamaForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "gemma3_text": ("gemma3_text", "Gemma3ForCausalLM"),
}


def setting_of(precision: str, bundles: str) -> str:
    """Return the precision that a peer stores: the bundle's where none is asked for.

    Raise `InputError` if it would be measured twice, or beside a float32 bundle.
    """
    if precision == bundles:
        raise InputError(f"{precision} is the bundle's own precision, which another row measures")
    if precision and bundles in ("fp32", "f32"):
        raise InputError("a float32 bundle is compared in float32 only")
    return precision or bundles


def built(source: Source, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `source.forms / name`; `make` builds it if it is missing.

    Raise `InputError` if it is missing and `source.build` is False.
    """
    assert source.forms is not None  # `bench` starts peers only with a checkpoint
    folder = source.forms / name
    if not source.build and not folder.exists():
        raise InputError("what it reads is not built yet: run once without  --quick")
    return made_once(folder, make)


def folder_of(checkpoint: Path) -> Path:
    """Return the cache folder of a checkpoint's base.

    The name contains a digest of the base's configuration, weights and calibration text, so checkpoints that
    differ only in the graft share a folder.
    """
    from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION
    from hamburger_edge.models.checkpoints.manifest import BASE, DELTA, MANIFEST

    manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
    files = [sha256(checkpoint / name) for name in (BASE, DELTA, CALIBRATION) if (checkpoint / name).exists()]
    facts = json.dumps([manifest["config"]["base"], manifest["base"], files])
    digest = hashlib.sha256(facts.encode()).hexdigest()
    return cache_folder() / "peers" / f"{checkpoint.resolve().name}-{digest[:12]}"


def hugging_face(source: Source) -> Path:
    return built(source, "hf", lambda folder: write_hugging_face(source.checkpoint, folder))


def write_hugging_face(path: Path | None, folder: Path) -> None:
    """Write a checkpoint's base, with its delta applied, in the Hugging Face format."""
    from safetensors.torch import save_file

    from hamburger_edge.models.bases.formats.renaming import hugging_face_names, norm_offset, rename_back
    from hamburger_edge.models.bases.weights import shapes
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

    assert path is not None
    checkpoint = load_checkpoint(path)
    model = checkpoint.model
    config = hugging_face_config(model.config)
    family = config["model_type"]
    names, state = hugging_face_names(family), model.base.state_dict()
    tensors = {
        rename_back(ours, names): (state[ours] - norm_offset(family, ours)).contiguous()
        for ours in shapes(model.base)
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    _save_json(folder / "config.json", config)
    shutil.copyfile(checkpoint.tokenizer, folder / "tokenizer.json")
    _save_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.config.base.context_length},
    )


def hugging_face_config(config: Any) -> dict[str, Any]:
    base = config.base
    if base.family not in FAMILIES:
        raise InputError(f"a base of family {base.family} has no Hugging Face form here")
    model_type, architecture = FAMILIES[base.family]
    scaling = None
    if base.rope_scaling is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": base.rope_scaling.factor,
            "low_freq_factor": base.rope_scaling.low_freq_factor,
            "high_freq_factor": base.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": base.rope_scaling.original_context,
        }
    eos = list(config.eos_ids)
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": base.vocab_size,
        "hidden_size": base.hidden_size,
        "intermediate_size": base.intermediate_size,
        "num_hidden_layers": base.num_layers,
        "num_attention_heads": base.num_heads,
        "num_key_value_heads": base.num_kv_heads,
        "head_dim": base.head_dim,
        "max_position_embeddings": base.context_length,
        "rms_norm_eps": base.rms_norm_eps,
        "rope_theta": base.rope_theta,
        "tie_word_embeddings": base.tied_head,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": eos[0] if eos else 0,  # some builders need it; prompts are token ids
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "torch_dtype": "float32",
        "rope_scaling": scaling,
        **(_gemma(base) if model_type == "gemma3_text" else {}),
    }


def _gemma(base: Any) -> dict[str, Any]:
    windowed = set(base.windowed_layers)
    kinds = ["sliding_attention" if n in windowed else "full_attention" for n in range(base.num_layers)]
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": round(base.score_scale**-2),
        "sliding_window": base.window,
        "layer_types": kinds,
        "rope_local_base_freq": base.window_rope_theta,
    }


def gguf(source: Source) -> Path:
    """Return the base as a GGUF file for llama.cpp, which quantizes the float32 file by itself.

    Our writer makes architecture `llama`: plain decoding has no gaps between positions, so the position rule
    is "slot". A base that it cannot write and that came as a GGUF file keeps that file's keys.
    """
    from hamburger_edge.benchmarks.peers import base_gguf
    from hamburger_edge.export.gguf.tensors import make_gguf_plan
    from hamburger_edge.export.gguf.writer import BASE, check_supported, write_gguf
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

    precision = source.gguf_precision or source.precision
    if precision in QUANTIZED:
        exact = gguf(dataclasses.replace(source, gguf_precision="f32"))
        return (
            built(source, f"llama-{precision}", lambda folder: _quantize(exact, folder / BASE, precision))
            / BASE
        )

    def make(folder: Path) -> None:
        checkpoint = load_checkpoint(str(source.checkpoint))
        if checkpoint.model.config.base.family in base_gguf.FAMILIES and precision == "f32":
            base_gguf.write_over(base_gguf.own_gguf(checkpoint), checkpoint.model, folder / BASE)
            return
        model = copy.copy(checkpoint.model)
        model.config = dataclasses.replace(model.config, position_rule="slot")
        check_supported(model.config)
        plain = dataclasses.replace(checkpoint, model=model)
        write_gguf(plain, folder, plan=make_gguf_plan(precision))
        for other in set(folder.iterdir()) - {folder / BASE}:
            other.unlink()

    return built(source, f"llama-{precision}", make) / BASE


def _quantize(exact: Path, path: Path, precision: str) -> None:
    """Write a quantized file; the vocabulary stays at 8 bits, as in our 4-bit files."""
    from hamburger_edge.runtimes.llamacpp.library import library

    low = library().low
    params = low.llama_model_quantize_default_params()
    params.ftype = getattr(low, f"LLAMA_FTYPE_MOSTLY_{precision.upper()}")
    params.token_embedding_type = params.output_tensor_type = low.GGML_TYPE_Q8_0
    if code := low.llama_model_quantize(str(exact).encode(), str(path).encode(), ctypes.byref(params)):
        reason = f"code {code}, {library().log.reason()}"
        raise InputError(f"llama.cpp cannot quantize {exact} to {precision}: {reason}")


def _save_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
