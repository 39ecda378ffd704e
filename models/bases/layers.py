"""A base without some of its layers: the others are numbered anew.

layers of the base   0 1 2 3 4 5
kept                 0 1   3   5
numbers              0 1   2   3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hamburger_edge.errors import CheckpointError

if TYPE_CHECKING:
    from hamburger_edge.models.architecture.config import BaseConfig
    from hamburger_edge.models.bases.weights import LoadedBase

_PREFIX = "layers."


def kept_weights(names: Iterable[str], layers: Sequence[int], source: object) -> dict[str, str]:
    """Return new name -> name in the whole base, for the weights that remain."""
    weights = list(names)
    total = 1 + max((_layer(name) for name in weights), default=-1)
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= total:
        raise CheckpointError(
            f"{source}: the layers kept of the base must be increasing numbers in 0..{total - 1}, got "
            f"{list(layers)}: list some of these"
        )
    numbers = {layer: number for number, layer in enumerate(layers)}
    kept = {}
    for name in weights:
        if (layer := _layer(name)) in numbers:
            _, _, rest = name.removeprefix(_PREFIX).partition(".")
            kept[f"{_PREFIX}{numbers[layer]}.{rest}"] = name
        elif layer < 0:
            kept[name] = name
    return kept


def keep_layers(base: LoadedBase, layers: Sequence[int], source: object) -> LoadedBase:
    """Return the base with these layers only. No layer numbers stand for all layers."""
    if not layers:
        return base
    names = kept_weights(base.state, layers, source)
    state = {name: base.state[original] for name, original in names.items()}
    return replace(base, config=kept_config(base.config, layers), state=state)


def kept_config(config: BaseConfig, layers: Sequence[int]) -> BaseConfig:
    """Return the configuration of a base with these layers only."""

    def renumbered(some: Iterable[int]) -> tuple[int, ...]:
        return tuple(number for number, layer in enumerate(layers) if layer in some)

    return replace(
        config,
        num_layers=len(layers),
        windowed_layers=renumbered(config.windowed_layers),
        unrotated_layers=renumbered(config.unrotated_layers),
    )


def _layer(name: str) -> int:
    """Return the layer number of a weight, or -1."""
    return int(name.split(".")[1]) if name.startswith(_PREFIX) else -1
