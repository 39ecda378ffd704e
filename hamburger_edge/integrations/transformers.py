"""Register HAMburgers with transformers' Auto classes and pipelines on import.

from hamburger_edge.integrations.transformers import HamburgerForCausalLM, HamburgerTokenizer

model = HamburgerForCausalLM.from_pretrained("my-checkpoint")

The Auto classes and pipelines load folders of `save_pretrained`, because they need a config.json.
"""

from __future__ import annotations

from hamburger_edge.errors import require

require("transformers", "optimum")

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from hamburger_edge.integrations.configuration import (  # noqa: E402
    HamburgerHFConfig,
)
from hamburger_edge.integrations.modeling import HamburgerForCausalLM  # noqa: E402
from hamburger_edge.integrations.tokenization import HamburgerTokenizer  # noqa: E402

__all__ = ["HamburgerForCausalLM", "HamburgerHFConfig", "HamburgerTokenizer"]

AutoConfig.register(HamburgerHFConfig.model_type, HamburgerHFConfig)
AutoModelForCausalLM.register(HamburgerHFConfig, HamburgerForCausalLM)
AutoTokenizer.register(HamburgerHFConfig, fast_tokenizer_class=HamburgerTokenizer)
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[HamburgerHFConfig.model_type] = (
    HamburgerForCausalLM.__name__
)  # for pipelines
