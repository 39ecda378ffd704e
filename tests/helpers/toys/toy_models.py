"""Small random HAMburgers for tests."""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import pad_sequence

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

    def padded(rows: list[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [rows, slots, m] of groups, and their sizes [rows, slots]."""
        tokens = [torch.tensor([group + [0] * (m - len(group)) for group in row]) for row in rows]
        sizes = [torch.tensor([len(group) for group in row]) for row in rows]
        return pad_sequence(tokens, batch_first=True), pad_sequence(sizes, batch_first=True)

    groups, sizes = padded([[[token] for token in prompt] + answer for prompt, answer in sequences])
    # a slot's target is the next group, if it is of the answer
    targets = [[[]] * (len(prompt) - 1) + answer + [[]] for prompt, answer in sequences]
    return GroupBatch(groups, sizes, *padded(targets))
