"""Small exported bundles, with a tokenizer, for tests that need a model on disk."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

from hamburger_edge import export_checkpoint as export
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.models.bases.layers import keep_layers
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.vocabulary import cut_tokenizer, keep_tokens
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.strict import read_json
from hamburger_edge.tuning.vocabulary import frequent_tokens
from helpers.toys import toy_tokenizers
from helpers.toys.toy_checkpoints import save, write_hf
from helpers.toys.toy_models import toy_model

# The exporter reads its table of operators again for each graph: a quarter of a toy's export time.
ONNXRegistry.from_torchlib = classmethod(functools.cache(ONNXRegistry.from_torchlib.__func__))  # type: ignore[attr-defined, method-assign]

# changes of a toy checkpoint that most tests of exporting use, so that they share bundles
CHANGES = {"draft_vocab_size": 40, "context_length": 2600, "num_layers": 2}
EXPORTED = ("precision", "flavor", "kv_cache_dtype")  # options of the export
ONE_LAYER = {"num_layers": 1, "micro_layers": 1, "taps": (0,)}
# layers as Gemma 3's: one wide key head, and a window, here of 4 slots
GEMMA = {
    "family": "gemma3_text",
    "num_kv_heads": 1,
    "head_dim": 256,
    "qk_norm": True,
    "output_norms": True,
    "activation": "gelu_tanh",
    "embedding_scale": 5.0,
    "attention_scale": 0.1,
    "window": 4,
    "windowed_layers": (0, 2),
    "window_rope_theta": 100.0,
}
# other toys that tests share, each exported once: on standard operators; by slots and merging (the stop head
# is sure); and a Gemma that merges
PORTABLE = {"draft_vocab_size": 100, "flavor": "portable"}
PORTABLE_BY_SLOT = {"position_rule": "slot", "flavor": "portable", "stop_rule": "after"}
PLAIN = {"max_group_tokens": 1, "micro_layers": 0, "taps": (), "draft_vocab_size": 0}  # without a graft
MERGING = {"position_rule": "slot", "stop_bias": -2.5}
MERGING_GEMMA = {**GEMMA, "window": 8, "draft_vocab_size": 100, "stop_bias": -2.5}


def toy_checkpoint(folder: Path, *, stop_bias: float = 0.0, **changes: object) -> Checkpoint:
    """A random HAMburger with the byte-level toy tokenizer and ChatML. Its stop head returns chances of about
    a half; `stop_bias` shifts them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = toy_tokenizers.byte_level(folder)
    vocab_size = Tokenizer(tokenizer).vocab_size
    model = toy_model(**{"vocab_size": vocab_size, "head_dim": 16, "context_length": 512, **changes})  # type: ignore[arg-type]
    if model.config.has_graft:
        model.stop_head[-1].bias.data += stop_bias
    return Checkpoint(model, tokenizer, ChatTemplate.preset("chatml").to_json(), {}, folder, folder)


def saved_toy(folder: Path, **changes: object) -> Path:
    """As small as a checkpoint may be, on disk, with its tokenizer and markup."""
    smallest = {"num_layers": 2, "micro_layers": 1, "taps": (0,), "draft_vocab_size": 100, "head_dim": 32}
    return save_toy(folder, toy_checkpoint(folder.parent, **{**smallest, **changes}))


def save_toy(folder: Path, toy: Checkpoint, **changes: object) -> Path:
    return save(folder, toy.model, tokenizer=toy.tokenizer, chat_template=toy.chat_template, **changes)


def saved_with_fewer_layers(folder: Path, layers: tuple[int, ...] = (0, 2, 4), **changes: object) -> Path:
    """A checkpoint that keeps these of its base's five layers and changes one; the base is another folder."""
    whole = toy_checkpoint(folder.parent, num_layers=5, **changes)
    base = write_hf(folder.parent / "base", whole.model)
    few = toy_checkpoint(folder.parent, num_layers=len(layers), seed=1, **changes)
    kept = keep_layers(load_base(base), layers, base)
    weight = "layers.1.self_attn.q_proj.weight"
    delta = torch.full_like(kept.state[weight], 0.01)
    few.model.base.load_state_dict({**kept.state, weight: kept.state[weight] + delta})
    reference = {"kind": "path", "path": "../base", "layers": list(layers)}
    return save_toy(folder, few, base=reference, base_delta={f"{weight}.delta": delta})


def saved_with_fewer_tokens(folder: Path, size: int = 290, **changes: object) -> Path:
    """A checkpoint that keeps so many tokens of its base, which is another folder."""
    whole = toy_checkpoint(folder.parent, **changes)
    base = write_hf(folder.parent / "base", whole.model)
    content = read_json(whole.tokenizer)
    (base / "tokenizer.json").write_text(json.dumps(content))
    cut = folder.parent / "cut.json"
    cut.write_text(json.dumps(cut_tokenizer(content, frequent_tokens(content, [], size, base))))
    kept = keep_tokens(load_base(base), cut)
    few = toy_checkpoint(folder.parent, vocab_size=size, seed=1, **changes)
    few.model.base.load_state_dict(kept.state)
    reference = {"kind": "path", "path": "../base", "cut_vocabulary": True}
    return save_toy(folder, replace(few, tokenizer=cut), base=reference)


def toy_bundle(folder: Path, **changes: object) -> Path:
    """Exported without the parity gate, which has its own tests. Other names are of the checkpoint."""
    asked = {"precision": "fp32", **{name: changes.pop(name) for name in EXPORTED if name in changes}}
    checkpoint = toy_checkpoint(folder / "checkpoint", **changes)  # type: ignore[arg-type]
    return export(checkpoint, folder / "bundle", verify=False, **asked)  # type: ignore[arg-type]
