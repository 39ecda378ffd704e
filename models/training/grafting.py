"""An untrained graft, and the parameters that a stage trains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.training.training_recipe import Shape, Stage
from hamburger_edge.models.training.updates.lora import LoraLinear, add_lora


def graft(
    base: BaseConfig,
    state: dict[str, Tensor],
    eos_ids: tuple[int, ...],
    shape: Shape,
    draft_vocab: Any,
    seed: int,
) -> Hamburger:
    """Return a HAMburger on this base with an untrained graft, or without one for groups of one token."""
    torch.manual_seed(seed)
    if shape.max_group_tokens == 1:
        plain = Hamburger(HamburgerConfig.plain(base, eos_ids))
        plain.base.load_state_dict(state)
        return plain
    config = HamburgerConfig(
        base=base,
        taps=shape.taps,
        eos_ids=eos_ids,
        max_group_tokens=shape.max_group_tokens,
        micro_layers=shape.micro_layers,
        merger_heads=shape.merger_heads,
        position_rule=shape.position_rule,
        merge_residual=shape.merge_residual,
        stop_rule=shape.stop_rule,
        draft_vocab_size=shape.draft_vocab_size,
    )
    model = Hamburger(config)
    model.base.load_state_dict(state)
    if shape.draft_vocab_size:
        model.draft_vocab.copy_(torch.as_tensor(draft_vocab))
    nn.init.normal_(model.embedder.places, std=0.02)
    nn.init.zeros_(model.embedder.output.weight)  # merging starts as the residual alone
    nn.init.zeros_(model.embedder.output.bias)
    if shape.initialise == "base":
        if shape.micro_layers > len(model.base.layers):
            raise ConfigError(
                f"shape.micro_layers is {shape.micro_layers}, but the base has only {len(model.base.layers)} "
                'layers to begin as: take fewer, or initialise = "random"'
            )
        for micro, layer in zip(model.micro.layers, model.base.layers[-shape.micro_layers :], strict=True):
            micro.load_state_dict(layer.state_dict())
        if model.micro.norm is not None:
            model.micro.norm.load_state_dict(model.base.norm.state_dict())
    else:
        for parameter in model.micro.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
    return model


def prepare(model: Hamburger, stage: Stage, *, bf16: bool) -> list[dict[str, Any]]:
    """Freeze and free parameters for a stage and return the optimizer's groups; may be repeated."""
    full = "base" in stage.learns and stage.lora_rank == 0
    if stage.lora_rank and not any(isinstance(m, LoraLinear) for m in model.base.modules()):
        add_lora(model.base.layers, stage.lora_rank)
    if bf16 and not full:
        for name, parameter in model.base.named_parameters():
            if not name.endswith((".up", ".down")):
                parameter.data = parameter.data.to(torch.bfloat16)  # enough for frozen weights
    model.requires_grad_(False)
    for part in ("micro", "stop_head", "embedder"):
        getattr(model, part).requires_grad_(part in stage.learns)
    if model.stop_evidence is not None:
        model.stop_evidence.requires_grad_("stop_head" in stage.learns)
    for name, parameter in model.base.named_parameters():
        lora = name.endswith((".up", ".down"))
        parameter.requires_grad_("base" in stage.learns and (full or lora))
    learning = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in learning if n.startswith("base.")], "peak": stage.base_learning_rate},
        {"params": [p for n, p in learning if not n.startswith("base.")], "peak": stage.learning_rate},
    ]
    return [group for group in groups if group["params"]]


def learned_state(model: Hamburger) -> dict[str, Tensor]:
    """Return the tensors that a run may change: the graft, and the base's LoRA updates or whole base."""
    lora = any(isinstance(m, LoraLinear) for m in model.base.modules())
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith("base.") or not lora or name.endswith((".up", ".down"))
    }
