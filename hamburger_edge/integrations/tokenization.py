"""Load a checkpoint's or bundle's tokenizer for transformers, with a chat template of the model's markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.jinja import jinja_of
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.integrations.configuration import bundle_folder, checkpoint_folder
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint


def tokenizer_of(
    file: Path, template: Mapping[str, Any] | None, eos_ids: Sequence[int], length: int
) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer.json. Unlike in `hamburger_edge.Chat`, special tokens in a message's text count."""
    end = Tokenizer.from_file(str(file)).id_to_token(eos_ids[0]) if eos_ids else None
    return PreTrainedTokenizerFast(
        tokenizer_file=str(file),
        chat_template=None if template is None else jinja_of(ChatTemplate.from_json(template)),
        eos_token=end,
        pad_token=end,
        padding_side="left",
        model_max_length=length,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


class HamburgerTokenizer(PreTrainedTokenizerFast):
    """The class for AutoTokenizer. It also reads bundles, and checkpoints without a tokenizer_config.json."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | PathLike[str], *inputs: Any, **options: Any
    ) -> PreTrainedTokenizerFast:
        if (bundle := bundle_folder(pretrained_model_name_or_path)) is not None:
            manifest = load_manifest(bundle)
            file, model = manifest.tokenizer_in(bundle), manifest.model
            return tokenizer_of(file, manifest.chat_template, model.eos_ids, model.context_length)
        folder = checkpoint_folder(pretrained_model_name_or_path)
        if folder is None or (folder / "tokenizer_config.json").exists():
            source = pretrained_model_name_or_path if folder is None else folder
            saved: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
                source, *inputs, **options
            )
            return saved
        checkpoint = load_checkpoint(folder)  # with weights: a GGUF base contains the tokenizer
        config = checkpoint.model.config
        length = config.base.context_length
        return tokenizer_of(checkpoint.tokenizer, checkpoint.chat_template, config.eos_ids, length)
