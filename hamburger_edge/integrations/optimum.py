"""Load bundles in optimum as one of its ONNX Runtime models: ORTHamburgerForCausalLM.

    from hamburger_edge.integrations.optimum import ORTHamburgerForCausalLM
    from hamburger_edge.integrations.transformers import HamburgerTokenizer

    model = ORTHamburgerForCausalLM.from_pretrained("my-bundle")
    tokenizer = HamburgerTokenizer.from_pretrained("my-bundle")

Optimum's other classes have one graph, a bundle has three graphs and a loop. So features of a single session
(`model.session`, IO binding, moving to another device) are missing.
"""

from __future__ import annotations

import shutil
from os import PathLike
from pathlib import Path
from typing import Any

from hamburger_edge.errors import require

require("optimum.onnxruntime", "optimum")

import torch  # noqa: E402
from optimum.onnxruntime import ORTModelForCausalLM  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import GenerationConfig, PretrainedConfig  # noqa: E402
from transformers.modeling_outputs import CausalLMOutput  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from hamburger_edge.bundle.manifest import FILE_NAME  # noqa: E402
from hamburger_edge.errors import InputError  # noqa: E402
from hamburger_edge.integrations.generation import HierarchicalGeneration, Loop  # noqa: E402
from hamburger_edge.integrations.transformers import HamburgerHFConfig, HamburgerTokenizer  # noqa: E402
from hamburger_edge.loading import load  # noqa: E402
from hamburger_edge.model import Model  # noqa: E402
from hamburger_edge.support.values import safe_repr  # noqa: E402

__all__ = ["ORTHamburgerForCausalLM"]

_GRAPHS = "onnx"  # optimum's own name of the subfolder for graphs
_PROVIDERS = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "CoreMLExecutionProvider": "coreml",
}
# Options of optimum that accept only these values.
_ONLY: dict[str, tuple[Any, ...]] = {
    "export": (False, None),
    "use_cache": (True, None),
    "use_merged": (False, None),
    "use_io_binding": (True, None),
    "session_options": (None,),
    "subfolder": ("", None),
    "torch_dtype": (None, "auto", "float32", torch.float32),
    "trust_remote_code": (False, None),
    "revision": ("main", None),
}


class ORTHamburgerForCausalLM(HierarchicalGeneration, ORTModelForCausalLM):  # type: ignore[misc]
    """An exported bundle with the interface of optimum's decoders.

    With equal settings it generates the same tokens as the model that `hamburger_edge.load` returns.
    """

    config_class = HamburgerHFConfig

    def __init__(self, bundle: Path, model: Model, config: HamburgerHFConfig) -> None:
        self.bundle, self.hamburger, self.config = bundle, model, config
        self.model_save_dir = bundle
        self.preprocessors = [HamburgerTokenizer.from_pretrained(bundle)]
        self._loop = Loop(model.inference)
        self._device, self._dtype = torch.device("cpu"), torch.float32  # of inputs and outputs
        self.generation_config = GenerationConfig(
            eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id, max_new_tokens=256
        )

    @classmethod
    def from_pretrained(
        cls,
        model_id: str | PathLike[str],
        config: PretrainedConfig | None = None,
        *,
        provider: str = "CPUExecutionProvider",
        provider_options: dict[str, Any] | None = None,
        generation_config: GenerationConfig | None = None,
        threads: int | None = None,
        cache_slots: int | None = None,
        **options: Any,
    ) -> ORTHamburgerForCausalLM:
        """Load a bundle's folder. `threads` and `cache_slots` are those of `hamburger_edge.load`."""
        for name, value in options.items():
            if name not in _ONLY:
                raise InputError(f"from_pretrained knows no {safe_repr(name)} for a bundle: leave it out")
            if value not in _ONLY[name]:
                raise InputError(
                    f"{name}={safe_repr(value)} is not for a bundle, which is run as it was exported"
                )
        folder = Path(model_id)
        bundle = folder / _GRAPHS if (folder / _GRAPHS / FILE_NAME).is_file() else folder
        model = load(
            bundle,
            "onnx",
            provider=_PROVIDERS.get(provider, provider),
            provider_options=provider_options,
            threads=threads,
            cache_slots=cache_slots,
        )
        if not isinstance(config, HamburgerHFConfig):
            config = HamburgerHFConfig.from_pretrained(folder)
        loaded = cls(bundle, model, config)
        if generation_config is not None:
            loaded.generation_config = generation_config
        elif (folder / "generation_config.json").exists():
            loaded.generation_config = GenerationConfig.from_pretrained(folder)
        return loaded

    @property
    def loop(self) -> Loop:
        return self._loop

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any
    ) -> CausalLMOutput:
        """Token ids [B, S] -> the base's logits [B, S, vocab], one token a slot; zero at padding."""
        for name, value in options.items():
            if value is not None and value is not False and name not in ("use_cache", "return_dict"):
                raise InputError(f"forward takes no {name}: pass input_ids and attention_mask")
        seen = (torch.ones_like(input_ids) if attention_mask is None else attention_mask).bool()
        logits = torch.zeros(*input_ids.shape, self.config.vocab_size)
        for row, ids, at in zip(logits, input_ids, seen, strict=True):
            row[at] = self.loop.read(ids[at].tolist())
        return CausalLMOutput(logits=logits)  # type: ignore[arg-type]

    def to(self, *places: Any, **named: Any) -> ORTHamburgerForCausalLM:
        """Accept the CPU only: `provider=` chooses the device on loading."""
        for device in (*places, *named.values()):
            if isinstance(device, str | torch.device) and torch.device(device).type != "cpu":
                raise InputError(
                    f"a loaded bundle stays where it is: load it with provider=, not to({device})"
                )
        return self

    def close(self) -> None:
        """Free the model."""
        self.hamburger.close()

    def _save_pretrained(self, save_directory: str | PathLike[str]) -> None:
        """Copy the bundle into a subfolder, because tokenizers write files with the same names."""
        shutil.copytree(self.bundle, Path(save_directory) / _GRAPHS, dirs_exist_ok=True)
        self.generation_config.save_pretrained(save_directory)


# Pipelines accept only class names in this mapping. No configuration has this key as its model type.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["hamburger-bundle"] = ORTHamburgerForCausalLM.__name__
