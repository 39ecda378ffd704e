"""Choose the layers of a base that a task needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.llama import Base, WholeSequence, rotary_tables
from hamburger_edge.models.bases.weights import LoadedBase


def most_active_layers(base: LoadedBase, examples: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """Return the layers to keep: first, last and those that change the tokens of these examples most."""
    total = base.config.num_layers
    if not 2 <= count <= total:
        raise ConfigError(f"layers is {count}, but this base has {total}: give 2 to {total}")
    inner = range(1, total - 1)
    similarity = layer_similarity(base, examples)
    least_similar = sorted(inner, key=lambda layer: float(similarity[layer]))[: count - 2]
    return (0, *sorted(least_similar), total - 1)


@torch.no_grad()
def layer_similarity(base: LoadedBase, examples: Sequence[Sequence[int]]) -> Tensor:
    """Return the mean cosine of each layer's input and output over all tokens -> [layers]"""
    with torch.device("meta"):
        model = Base(base.config)
    model.load_state_dict(base.state, assign=True)
    rotary = rotary_tables(base.config, max(map(len, examples)))
    totals = torch.zeros(base.config.num_layers)
    for ids in examples:
        attend = WholeSequence(base.config, rotary[None, None, : len(ids)])
        x = model.embed(torch.tensor([ids]))
        for number, layer in enumerate(model.layers):
            output = layer(x, attend)
            totals[number] += F.cosine_similarity(x, output, dim=-1).sum()
            x = output
    return totals / sum(map(len, examples))
