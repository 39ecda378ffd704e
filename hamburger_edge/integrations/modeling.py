"""Wrap the modules of `models/architecture` as a transformers model, stored in checkpoint folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from hamburger_edge.chat.inference import Inference
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import CheckpointError, InputError
from hamburger_edge.integrations.configuration import HamburgerHFConfig, checkpoint_folder
from hamburger_edge.integrations.generation import HierarchicalGeneration, Loop
from hamburger_edge.integrations.model_card import model_card
from hamburger_edge.integrations.tokenization import tokenizer_of
from hamburger_edge.loop.answer_facts import AnswerFacts
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import WholeSequence
from hamburger_edge.models.bases.sources.terms import copy_terms
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.models.checkpoints.saving import CARD, save_checkpoint
from hamburger_edge.runtimes.torch.torch_backend import DEFAULT_CACHE_SLOTS, TorchBackend
from hamburger_edge.support.values import safe_repr

# Options of `from_pretrained`: those for the hub, and those that accept only these values.
_OF_HUB = {"revision", "token", "cache_dir", "local_files_only", "force_download", "proxies"}
_ONLY: dict[str, tuple[Any, ...]] = {
    "torch_dtype": (None, "auto", "float32", torch.float32),
    "dtype": (None, "auto", "float32", torch.float32),
    "device_map": (None, "auto", "cpu", {"": "cpu"}),
    "attn_implementation": (None, "sdpa"),
    "use_safetensors": (None, True),
    "adapter_kwargs": (None, {}),
}
_UNUSED = {"trust_remote_code", "low_cpu_mem_usage", "code_revision", "_from_auto", "_commit_hash"}
_UNUSED |= {"_from_pipeline", "weights_only"}
# Options of `save_pretrained` for files that a checkpoint does not have.
_OF_WEIGHT_FILES = {"max_shard_size", "safe_serialization", "is_main_process", "save_function", "tags"}
_OF_TRAINERS = {"num_items_in_batch", "return_dict", "use_cache"}


class HamburgerForCausalLM(HierarchicalGeneration, PreTrainedModel):  # type: ignore[misc]
    """`generate` generates groups of tokens (`confidence=`, `mode=`, ...); `forward` reads one token a slot.

    `generate` runs on the CPU in float32. It is the reference for exported bundles, not the fast way.
    """

    config_class = HamburgerHFConfig
    base_model_prefix = "hamburger"
    main_input_name = "input_ids"
    _supports_sdpa = True
    config: HamburgerHFConfig

    def __init__(self, config: HamburgerHFConfig, checkpoint: Checkpoint | None = None) -> None:
        super().__init__(config)
        self.hamburger = Hamburger(config.shape) if checkpoint is None else checkpoint.model
        self.checkpoint = checkpoint  # for its tokenizer, chat template and licences
        self._loop: Loop | None = None
        recommended = (checkpoint.manifest.get("recommended") if checkpoint else None) or {}
        self.generation_config = GenerationConfig(
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
            max_new_tokens=256,
            **recommended,
        )

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *inputs: Any,
        config: PretrainedConfig | str | PathLike[str] | None = None,
        generation_config: GenerationConfig | None = None,
        **options: Any,
    ) -> HamburgerForCausalLM:
        """Load a checkpoint folder, a built-in checkpoint by name, or a repository of the hub."""
        for name, value in options.items():
            if name in _ONLY and value not in _ONLY[name]:
                raise InputError(f"{name}={safe_repr(value)}: this loads on the CPU in float32: leave it out")
            if name not in {*_ONLY, *_OF_HUB, *_UNUSED}:
                raise InputError(f"from_pretrained knows no {safe_repr(name)} for a HAMburger: leave it out")
        hub = {name: value for name, value in options.items() if name in _OF_HUB}
        folder = checkpoint_folder(pretrained_model_name_or_path)
        if folder is None and not Path(pretrained_model_name_or_path).exists():
            from huggingface_hub import snapshot_download

            folder = Path(snapshot_download(str(pretrained_model_name_or_path), **hub))
        checkpoint = load_checkpoint(resolve(folder or Path(pretrained_model_name_or_path)))
        if not isinstance(config, HamburgerHFConfig):
            config = HamburgerHFConfig.from_pretrained(config or checkpoint.folder)
        if config.shape != checkpoint.model.config:
            raise CheckpointError(
                f"{checkpoint.path}: is not of the configuration that came along: leave it out"
            )
        config.name_or_path = str(pretrained_model_name_or_path)
        model = cls(config, checkpoint)
        if generation_config is not None:
            model.generation_config = generation_config
        elif checkpoint.file("generation_config.json"):
            model.generation_config = GenerationConfig.from_pretrained(checkpoint.folder)
        model.train(False)
        return model

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | PathLike[str],
        *,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        **options: Any,
    ) -> None:
        """Write a self-contained checkpoint folder with the files of the Auto classes and the hub.

        Other files in the folder, and an existing model card, are kept.
        """
        folder = Path(save_directory)
        self._save(folder, folder.resolve().name)
        if push_to_hub:
            self.push_to_hub(repo_id or folder.name, **options)

    def _save(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = self.checkpoint
        if checkpoint is None:
            raise InputError("there is no tokenizer to save: begin with from_pretrained")
        self.config.architectures = [type(self).__name__]
        with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as partial:
            saved = save_checkpoint(
                Path(partial) / "checkpoint",
                self.hamburger,
                base={"kind": "embedded"},
                tokenizer=checkpoint.tokenizer,
                chat_template=checkpoint.chat_template,
                provenance=checkpoint.manifest.get("provenance", {}),
                license=checkpoint.manifest.get("license", {}),
                rows="fp32",
            )
            write_into(saved, **{name: checkpoint.manifest.get(name) for name in AnswerFacts.names()})
            copy_terms(checkpoint.folder, saved)
            if text := checkpoint.file(CALIBRATION):
                shutil.copyfile(text, saved / CALIBRATION)
            config, base = self.config.shape, self.config.shape.base
            tokenizer_of(
                checkpoint.tokenizer, checkpoint.chat_template, config.eos_ids, base.context_length
            ).save_pretrained(saved)
            shutil.copyfile(checkpoint.tokenizer, saved / "tokenizer.json")  # keep the original bytes
            self.config.save_pretrained(saved)
            self.generation_config.save_pretrained(saved)
            if not (folder / CARD).exists():
                (saved / CARD).write_text(model_card(name, self.config, checkpoint), encoding="utf-8")
            for path in saved.iterdir():
                os.replace(path, folder / path.name)

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:  # type: ignore[override]
        """Upload the files of `save_pretrained` in one commit, and create the repository if necessary."""
        from huggingface_hub import HfApi

        api = HfApi(token=options.pop("token", None))
        message = options.pop("commit_message", None) or "A HAMburger"
        where = {name: options.pop(name) for name in ("revision", "create_pr") if name in options}
        url = api.create_repo(repo_id, private=options.pop("private", None), exist_ok=True)
        if unknown := sorted(set(options) - _OF_WEIGHT_FILES):
            raise InputError(f"push_to_hub knows no {safe_repr(unknown[0])} for a HAMburger: leave it out")
        with tempfile.TemporaryDirectory() as folder:
            self._save(Path(folder), url.repo_id)
            return api.upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message=message, **where)

    @property
    def loop(self) -> Loop:
        if self.device.type != "cpu" or self.dtype != torch.float32:
            raise InputError(
                f"generate runs on the CPU in float32, and this model is {self.dtype} on {self.device}: "
                "move it there, or export it"
            )
        if self._loop is None:
            checkpoint = self.checkpoint
            if checkpoint is None:
                raise InputError("there is no tokenizer: begin with from_pretrained")
            cache_slots = min(DEFAULT_CACHE_SLOTS, self.config.max_position_embeddings)
            backend = TorchBackend(
                self.hamburger,
                cache_slots=cache_slots,
                facts=AnswerFacts.of(checkpoint.manifest),
            )
            template = ChatTemplate.from_json(checkpoint.chat_template)
            self._loop = Loop(Inference.of(backend, Tokenizer(checkpoint.tokenizer), template))
        return self._loop

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> CausalLMOutput:
        """Token ids [B, S] -> the base's logits [B, S, vocab], one token a slot."""
        for name, value in options.items():
            if value is not None and value is not False and name not in _OF_TRAINERS:
                raise InputError(f"forward takes no {name}: pass input_ids, attention_mask and labels")
        base = self.hamburger.base
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        positions = (seen.cumsum(1) - 1).clamp(min=0)
        mask = None
        if attention_mask is not None and not bool(seen.all()):
            rows = torch.arange(input_ids.shape[1], device=input_ids.device)
            mask = (rows[:, None] >= rows) & seen[:, None, None].bool() | torch.eye(
                len(rows), dtype=torch.bool
            )
        attend = WholeSequence(base.config, self.hamburger.base_rotary(positions), mask)
        logits = base.logits(base(base.embed(input_ids), attend)[:, :, -1])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=base.config.vocab_size)
        return CausalLMOutput(loss=loss, logits=logits)  # type: ignore[arg-type]

    def get_input_embeddings(self) -> nn.Module:
        return self.hamburger.base.embed_tokens

    def get_output_embeddings(self) -> nn.Module | None:
        return self.hamburger.base.lm_head
