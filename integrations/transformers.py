"""HAMburgers in transformers: importing this module makes its Auto classes and pipelines know them.

import hamburger_edge.integrations.transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

model = AutoModelForCausalLM.from_pretrained("my-checkpoint")
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from os import PathLike
from typing import Any

from hamburger_edge.errors import require

require("transformers", "optimum")

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from hamburger_edge.integrations.configuration import (  # noqa: E402
    HamburgerHFConfig,
    bundle_folder,
    checkpoint_folder,
)
from hamburger_edge.integrations.modeling import HamburgerForCausalLM  # noqa: E402
from hamburger_edge.integrations.tokenization import HamburgerTokenizer  # noqa: E402
from hamburger_edge.models.checkpoints.built_in import NAMES  # noqa: E402

__all__ = ["HamburgerForCausalLM", "HamburgerHFConfig", "HamburgerTokenizer"]

AutoConfig.register(HamburgerHFConfig.model_type, HamburgerHFConfig)
AutoModelForCausalLM.register(HamburgerHFConfig, HamburgerForCausalLM)
AutoTokenizer.register(HamburgerHFConfig, fast_tokenizer_class=HamburgerTokenizer)
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[HamburgerHFConfig.model_type] = (
    HamburgerForCausalLM.__name__
)  # for pipelines

_of_others = AutoConfig.from_pretrained


def _from_pretrained(name: str | PathLike[str], **options: Any) -> PretrainedConfig:
    """Checkpoints and bundles have no config.json until transformers saves them: their manifests will do."""
    if checkpoint_folder(name) is not None or bundle_folder(name) is not None:
        return HamburgerHFConfig.from_pretrained(name, **options)
    found: PretrainedConfig = _of_others(name, **options)
    return found


def _from_here(load: Callable[..., Any]) -> Callable[..., Any]:
    """A built-in name is its folder: the hub, which may have something of that name, is not asked."""

    @functools.wraps(load)
    def from_pretrained(name: str | PathLike[str], *inputs: Any, **options: Any) -> Any:
        return load(checkpoint_folder(name) if str(name) in NAMES else name, *inputs, **options)

    return from_pretrained


# the one place where all Auto classes ask what a model is
AutoConfig.from_pretrained = _from_pretrained  # type: ignore[method-assign, assignment]
AutoModelForCausalLM.from_pretrained = _from_here(  # type: ignore[method-assign]
    AutoModelForCausalLM.from_pretrained
)
AutoTokenizer.from_pretrained = _from_here(AutoTokenizer.from_pretrained)  # type: ignore[method-assign]
