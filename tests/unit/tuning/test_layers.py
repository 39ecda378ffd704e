"""The layers of a base that a task keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.toys.toy_models import toy_model

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.bases.layers import keep_layers
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.tuning.layers import layer_similarity, most_active_layers

EXAMPLES = [[5, 6, 7, 8], [40, 3, 9]]


def base(*idle: int) -> LoadedBase:
    """A base of six layers. Those that are `idle` return their input."""
    model = toy_model(num_layers=6).base
    for layer in idle:
        torch.nn.init.zeros_(model.layers[layer].self_attn.o_proj.weight)
        torch.nn.init.zeros_(model.layers[layer].mlp.down_proj.weight)
    return LoadedBase(model.config, dict(model.state_dict()), None, None, (2,), "toy", None)


def test_layers_that_change_nothing_are_dropped() -> None:
    assert most_active_layers(base(1, 3, 4), EXAMPLES, 3) == (0, 2, 5)
    assert layer_similarity(base(1, 3, 4), EXAMPLES)[[1, 3, 4]].tolist() == pytest.approx([1, 1, 1])


def test_first_and_last_layer_are_kept() -> None:
    assert most_active_layers(base(0, 5), EXAMPLES, 2) == (0, 5)
    assert most_active_layers(base(0, 5), EXAMPLES, 6) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("count", [1, 7])
def test_number_of_layers_that_the_base_lacks_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"layers is {count}, but this base has 6: give 2 to 6"):
        most_active_layers(base(), EXAMPLES, count)


def test_kinds_of_layers_are_renumbered() -> None:
    whole = base()
    config = replace(whole.config, window=4, windowed_layers=(0, 1, 3), unrotated_layers=(2, 5))
    kept = keep_layers(replace(whole, config=config), (0, 3, 5), "toy").config
    assert (kept.num_layers, kept.windowed_layers, kept.unrotated_layers) == (3, (0, 1), (2,))
