"""Small random HAMburgers for tests."""

from __future__ import annotations

import torch

from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger


def toy_config(**changes: object) -> HamburgerConfig:
    base_fields = {k: changes.pop(k) for k in list(changes) if k in BaseConfig.__dataclass_fields__}
    base = BaseConfig(
        **{  # type: ignore[arg-type]
            "family": "llama",
            "vocab_size": 97,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_layers": 3,
            "num_heads": 4,
            "num_kv_heads": 2,
            "head_dim": 16,
            "context_length": 128,
            **base_fields,
        }
    )
    fields = {"taps": (0, 1), "eos_ids": (2,), "max_group_tokens": 4, "micro_layers": 2, "merger_heads": 4}
    return HamburgerConfig(base=base, **{**fields, **changes})  # type: ignore[arg-type]


def toy_model(seed: int = 0, **changes: object) -> Hamburger:
    """Every parameter random and large enough that a wrong path shows in the numbers."""
    generator = torch.Generator().manual_seed(seed)
    model = Hamburger(toy_config(**changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight") or "layernorm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
        model.base.embed_tokens.weight.mul_(3)
        if model.config.draft_vocab_size:
            ids = torch.randperm(model.config.base.vocab_size, generator=generator)
            model.draft_vocab.copy_(ids[: model.config.draft_vocab_size].sort().values)
    return model


def toy_batch(model: Hamburger, sequences: list[tuple[list[int], list[list[int]]]]) -> GroupBatch:
    """(prompt tokens, answer groups) pairs -> a right-padded batch, one sequence a row."""
    m = model.config.max_group_tokens
    slots = [[[t] for t in prompt] + groups for prompt, groups in sequences]
    longest = max(map(len, slots))
    shape = (len(slots), longest)
    batch = GroupBatch(
        groups=torch.zeros(*shape, m, dtype=torch.long),
        sizes=torch.zeros(shape, dtype=torch.long),
        targets=torch.zeros(*shape, m, dtype=torch.long),
        target_sizes=torch.zeros(shape, dtype=torch.long),
    )
    for row, (sequence, (prompt, _)) in enumerate(zip(slots, sequences, strict=True)):
        for slot, group in enumerate(sequence):
            batch.groups[row, slot, : len(group)] = torch.tensor(group)
            batch.sizes[row, slot] = len(group)
        answer = slice(len(prompt), len(sequence))
        before = slice(len(prompt) - 1, len(sequence) - 1)
        batch.targets[row, before] = batch.groups[row, answer]
        batch.target_sizes[row, before] = batch.sizes[row, answer]
    return batch
