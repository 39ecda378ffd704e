"""The configuration of a HAMburger in transformers: a config.json that contains `hamburger.json`'s."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from hamburger_edge.bundle.manifest import FILE_NAME, KIND, ModelSpec
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture import config as architecture
from hamburger_edge.models.checkpoints.built_in import NAMES, resolve
from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest
from hamburger_edge.support.strict import read_json

# transformers' name -> the base's
_OF_BASE = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
}

# Options for files of the hub: ignored for local folders.
_OF_HUB = {"revision", "token", "cache_dir", "local_files_only", "force_download", "resume_download"}
_OF_HUB |= {"proxies", "subfolder", "trust_remote_code", "_from_auto", "_from_pipeline", "_commit_hash"}


class HamburgerHFConfig(PretrainedConfig):
    """`hamburger` is the configuration of `hamburger_edge.models.architecture` as JSON.

    Sizes with a name in transformers are read from it and are not stored separately.
    """

    model_type = "hamburger"
    has_no_defaults_at_init = True

    def __init__(self, hamburger: Mapping[str, Any] | None = None, **settings: Any) -> None:
        if hamburger:  # a bundle's has none
            self.hamburger = dict(hamburger)
            shape = self.shape
            settings = {
                "eos_token_id": list(shape.eos_ids),
                "tie_word_embeddings": shape.base.tied_head,
                **settings,
            }
        super().__init__(**settings)

    @property
    def shape(self) -> architecture.HamburgerConfig:
        if "hamburger" not in self.__dict__:  # an Auto class read a folder without config.json
            raise CheckpointError(
                "the configuration is not of a checkpoint: load its folder with HamburgerForCausalLM; its "
                "save_pretrained writes a folder for the Auto classes"
            )
        return architecture.HamburgerConfig.from_json(self.hamburger)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_BASE and (base := self.__dict__.get("hamburger", {}).get("base")):
            return base[_OF_BASE[name]]
        raise AttributeError(f"HamburgerHFConfig has no {name}")

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | PathLike[str], **options: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the configuration from a checkpoint's or bundle's manifest.

        For a checkpoint, the other keys come from its config.json if there is one.
        """
        if (bundle := bundle_folder(pretrained_model_name_or_path)) is not None:
            settings = _of_bundle(load_manifest(bundle).model)
            return settings, {name: value for name, value in options.items() if name not in _OF_HUB}
        folder = checkpoint_folder(pretrained_model_name_or_path)
        if folder is None:
            return super().get_config_dict(pretrained_model_name_or_path, **options)
        settings = {"architectures": ["HamburgerForCausalLM"]}
        if (folder / "config.json").exists():
            settings, options = super().get_config_dict(folder, **options)
        options = {name: value for name, value in options.items() if name not in _OF_HUB}
        shape = read_manifest(folder / MANIFEST).config
        return {**settings, "model_type": cls.model_type, "hamburger": shape.to_json()}, options


def _of_bundle(model: ModelSpec) -> dict[str, Any]:
    """Return the sizes in a bundle's manifest. Unlike a checkpoint's, they cannot rebuild the layers."""
    return {
        "model_type": HamburgerHFConfig.model_type,
        "architectures": ["ORTHamburgerForCausalLM"],
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_layers,
        "max_position_embeddings": model.context_length,
        "max_group_tokens": model.max_group_tokens,
        "eos_token_id": list(model.eos_ids),
        "tie_word_embeddings": model.tied_head,
    }


def bundle_folder(name: str | PathLike[str]) -> Path | None:
    """Return the folder if it is a bundle without a config.json of `save_pretrained`, else None."""
    folder = Path(name)
    if not (folder / FILE_NAME).is_file() or (folder / "config.json").exists():
        return None
    data = read_json(folder / FILE_NAME)
    return folder if isinstance(data, dict) and data.get("kind") == KIND else None


def checkpoint_folder(name: str | PathLike[str]) -> Path | None:
    """Return the folder of a local or built-in checkpoint, else None."""
    return resolve(str(name)) if str(name) in NAMES or (Path(name) / MANIFEST).exists() else None
