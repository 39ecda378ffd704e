"""A checkpoint as GGUF files for stock llama.cpp.

    base.gguf            the base, tokenizer and chat template: also an ordinary model by itself
    micro_decoder.gguf   the micro layers as a small llama model; its token embedding is the draft head
    graft.gguf           embedder and stop head, which the host computes

A plain model is base.gguf alone.

Positions by slot have no gaps, so the base has architecture llama. Positions by token jump ahead, which
llama.cpp allows for M-RoPE models only. There the base is a paddleocr model without its vision part.
(qwen2vl is the same graph, but the supported version reads no RMS epsilon for it and computes with 0.)

    rule    architecture   rows of Q and K         rotations
    slot    llama          pairs (0, D/2, 1, ...)  plain, or Llama 3 scaling as a tensor
    token   paddleocr      halves, as here         plain
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hamburger_edge.bundle.manifest import GGUFEntry, GGUFPart, PrecisionPlan
from hamburger_edge.chat.jinja import jinja_of
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import ConfigError
from hamburger_edge.export.gguf.tensors import FILE_TYPES, GGUFBuilder, sections
from hamburger_edge.export.gguf.vocabulary import add_vocabulary
from hamburger_edge.export.quantization.covariances import Covariances, covariances_by_stage, stage_paths
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.llama import inverse_frequencies
from hamburger_edge.models.bases.formats.gguf_file import permute
from hamburger_edge.models.bases.formats.renaming import GGUF
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.progress import Progress, no_progress

BASE, MICRO_DECODER, GRAFT = "base.gguf", "micro_decoder.gguf", "graft.gguf"
LayerCovariances = Generator[tuple[str, Covariances]]  # of each decoder layer: its path and covariances
THEIRS = {ours: theirs for theirs, ours in GGUF.items() if ours is not None}


def write_gguf(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    plan: PrecisionPlan,
    progress: Progress = no_progress,
) -> GGUFPart:
    """Write the files into an existing folder and return their part of the manifest."""
    model = checkpoint.model
    config = model.config
    architecture = "paddleocr" if config.position_rule == "token" else "llama"
    export = _identity(checkpoint, plan)
    done, count = itertools.count(), len(model.base.layers) + len(model.micro.layers) + 1

    def tick() -> None:
        progress("writing GGUF", next(done), count)

    with contextlib.closing(_covariances(checkpoint, plan)) as covariances:
        base = _base(checkpoint, folder / BASE, architecture, plan, covariances, export, tick)
        if not config.has_graft:
            return GGUFPart(architecture, plan, base, None, None)  # type: ignore[arg-type]
        micro = _micro_decoder(checkpoint, folder / MICRO_DECODER, plan, covariances, export, tick)
    graft = GGUFBuilder(folder / GRAFT, "hamburger", "graft", export)
    graft.key("hamburger.merger_heads", config.merger_heads)
    graft.key("hamburger.merge_residual", config.merge_residual)
    graft.key("hamburger.stop_widths", config.stop_widths)
    for name, tensor in model.state_dict().items():
        if name.startswith(("embedder.", "stop_")):
            graft.tensor(name, tensor, plan.graft)
    return GGUFPart(architecture, plan, base, micro, graft.write())  # type: ignore[arg-type]


def check_supported(config: HamburgerConfig) -> None:
    """Refuse a model that stock llama.cpp cannot compute, with the reason and an alternative."""
    base, onnx = config.base, "export with  --format onnx  instead"
    if not config.micro_final_norm:
        raise ConfigError(
            f"this checkpoint's micro decoder has no final norm, which llama.cpp always applies: {onnx}"
        )
    scales = (
        base.embedding_scale,
        base.residual_scale,
        base.logits_scale,
        base.score_scale * base.head_dim**0.5,
    )
    for part, there in {
        "normalises queries and keys": base.qk_norm,
        "normalises what its layers add": base.output_norms,
        f"has the activation {base.activation}": base.activation != "silu",
        f"has windows of {base.window} slots": any(base.window_of(n) for n in range(base.num_layers)),
        "has layers without rotation": bool(base.unrotated_layers),
        "scales embeddings, residuals, attention or logits": any(abs(x - 1) > 1e-6 for x in scales),
    }.items():
        if there:
            raise ConfigError(f"this base {part}, which is not written to GGUF: {onnx}")
    if config.position_rule == "token" and base.rope_scaling is not None:
        raise ConfigError(
            "positions by token need llama.cpp's M-RoPE, which has no Llama 3 rope scaling: "
            f"{onnx}, or train with position_rule 'slot'"
        )


def _base(
    checkpoint: Checkpoint,
    path: Path,
    architecture: str,
    plan: PrecisionPlan,
    covariances: LayerCovariances,
    export: str,
    tick: Callable[[], None],
) -> GGUFEntry:
    model, config = checkpoint.model, checkpoint.model.config
    part = GGUFBuilder(path, architecture, "base", export)
    facts = checkpoint.manifest
    part.key("general.name", checkpoint.path.name)
    part.key("general.license", facts.get("license", {}).get("base"))
    part.key("general.file_type", FILE_TYPES[plan.base])
    part.key("general.quantization_version", 2)
    _add_dimensions(part, config.base)
    for name in (
        "max_group_tokens",
        "micro_layers",
        "position_rule",
        "stop_rule",
        "merger_heads",
        "taps",
        "eos_ids",
    ):
        part.key(f"hamburger.{name}", getattr(config, name))
    if config.draft_vocab_size:
        part.key("hamburger.draft_vocab", model.draft_vocab.tolist())
    add_vocabulary(part, checkpoint.tokenizer, config.base.vocab_size, config.eos_ids)
    if checkpoint.chat_template is not None:
        part.key("tokenizer.chat_template", jinja_of(ChatTemplate.from_json(checkpoint.chat_template)))
    part.tensor("token_embd.weight", model.base.embed_tokens.weight, plan.head)
    part.tensor("output_norm.weight", model.base.norm.weight)
    if model.base.lm_head is not None:
        part.tensor("output.weight", model.base.lm_head.weight, plan.head)
    _add_layers(part, model.base.layers, config.base, plan, covariances, tick)
    return part.write()


def _micro_decoder(
    checkpoint: Checkpoint,
    path: Path,
    plan: PrecisionPlan,
    covariances: LayerCovariances,
    export: str,
    tick: Callable[[], None],
) -> GGUFEntry:
    """Write the micro decoder. Its input rows are embeddings; only its head reads `token_embd`."""
    model = checkpoint.model
    config = dataclasses.replace(model.micro_config, vocab_size=model.config.micro_vocab)
    part = GGUFBuilder(path, "llama", "micro_decoder", export)
    part.key("general.name", f"{checkpoint.path.name} micro decoder")
    part.key("general.file_type", FILE_TYPES[plan.base])
    part.key("general.quantization_version", 2)
    _add_dimensions(part, config)
    part.keys(vocab_size=config.vocab_size)
    part.key("tokenizer.ggml.model", "no_vocab")
    head = model.base.head_weight
    if model.config.draft_vocab_size:
        head = head[model.draft_vocab]
    part.tensor("token_embd.weight", head, plan.head)
    assert model.micro.norm is not None
    part.tensor("output_norm.weight", model.micro.norm.weight)
    _add_layers(part, model.micro.layers, config, plan, covariances, tick)
    return part.write()


def _add_dimensions(part: GGUFBuilder, config: BaseConfig) -> None:
    part.keys(
        context_length=config.context_length,
        embedding_length=config.hidden_size,
        block_count=config.num_layers,
        feed_forward_length=config.intermediate_size,
        attention__head_count=config.num_heads,
        attention__head_count_kv=config.num_kv_heads,
        attention__key_length=config.head_dim,
        attention__value_length=config.head_dim,
        attention__layer_norm_rms_epsilon=float(config.rms_norm_eps),
        rope__dimension_count=config.head_dim,
        rope__freq_base=float(config.rope_theta),
    )
    if part.architecture == "paddleocr":
        part.keys(rope__dimension_sections=sections(config.head_dim))
    if config.rope_scaling is not None:  # as divisors [D/2] of the plain frequencies
        plain = inverse_frequencies(dataclasses.replace(config, rope_scaling=None))
        part.tensor("rope_freqs.weight", plain / inverse_frequencies(config))


def _add_layers(
    part: GGUFBuilder,
    layers: torch.nn.ModuleList,
    config: BaseConfig,
    plan: PrecisionPlan,
    covariances: LayerCovariances,
    tick: Callable[[], None],
) -> None:
    for number, layer in enumerate(layers):
        tick()
        path, of_inputs = next(covariances)
        for name, tensor in _layer_tensors(layer, config, part.architecture):
            theirs = THEIRS[f"layers.{{}}.{name}"].format(number)
            covariance = of_inputs.pop(f"{path}.{name.removesuffix('.weight')}", None)
            part.tensor(theirs, tensor, plan.base, covariance)


def _covariances(checkpoint: Checkpoint, plan: PrecisionPlan) -> LayerCovariances:
    """Yield path and input covariances of each decoder layer, first the base's, then the micro decoder's.

    Only 4-bit layers of a model with a tokenizer have covariances.
    """
    model = checkpoint.model
    linears = (name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    layers = [name for name in linears if ".layers." in name]
    calibrated = plan.base.startswith("q4") and checkpoint.tokenizer is not None
    stages = covariances_by_stage(checkpoint, layers) if calibrated else ()
    for path, covariances in itertools.zip_longest(stage_paths(model), stages):
        if ".layers." in path:
            yield path, covariances or {}


def _layer_tensors(
    layer: torch.nn.Module, config: BaseConfig, architecture: str
) -> Iterator[tuple[str, Tensor]]:
    """Yield (our name, tensor in llama.cpp's layout)."""
    heads = {"q": config.num_heads, "k": config.num_kv_heads}
    for name, tensor in layer.state_dict().items():
        which = name.removeprefix("self_attn.")[0] if name.startswith("self_attn.") else ""
        if architecture == "llama" and which in heads:
            tensor = permute(tensor, heads[which])
        yield name, tensor


def _identity(checkpoint: Checkpoint, plan: PrecisionPlan) -> str:
    """Identify files of one export: equal for equal weights, configuration and precision."""
    facts = [checkpoint.model.config.to_json(), dataclasses.asdict(plan)]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for tensor in checkpoint.model.state_dict().values():
        # however many bits they are held in
        values = tensor.float() if tensor.is_floating_point() else tensor
        digest.update(np.ascontiguousarray(values.numpy()).data)
    return digest.hexdigest()[:32]
