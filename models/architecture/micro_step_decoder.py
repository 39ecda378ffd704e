"""The micro-step decoder: from one base step's features to the rest of the group."""

from __future__ import annotations

import dataclasses
import itertools

from torch import Tensor, nn

from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.llama import Attend, DecoderLayer, RMSNorm


def micro_base_config(config: HamburgerConfig) -> BaseConfig:
    """The base's dimensions with the micro layers only, over positions 0..F+max_group_tokens-2."""
    return dataclasses.replace(
        config.base,
        num_layers=config.micro_layers,
        context_length=config.num_features + config.max_group_tokens,
        windowed_layers=(),  # so few positions have no need of windows
        unrotated_layers=(),
    )


class MicroStepDecoder(nn.Module):
    """Ordinary decoder layers over [F feature vectors, embedding(token 0), embedding(token 1), ...].

    The row of token i - 1 gives the hidden state that scores token i.
    """

    def __init__(self, config: HamburgerConfig):
        super().__init__()
        base = config.base
        self.layers = nn.ModuleList(DecoderLayer(base, i) for i in range(config.micro_layers))
        normed = config.micro_final_norm and config.has_graft
        self.norm = RMSNorm(base.hidden_size, base.rms_norm_eps) if normed else None

    def forward(self, rows: Tensor, attend: Attend) -> Tensor:
        """[G, S, d] -> hidden states [G, S, d]"""
        for layer in self.layers:
            rows = layer(rows, attend)
        return rows if self.norm is None else self.norm(rows)


def stop_head(widths: tuple[int, ...]) -> nn.Sequential:
    """Hidden state -> logit of "the group ends with this token"; SiLU between the layers.

    Modules 0, 2, 4, ... hold the weights.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*layers[:-1])
