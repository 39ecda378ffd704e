"""Checkpoint folders of toys, written and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.checkpoints.saving import save_checkpoint
from helpers.toys.toy_models import toy_batch, toy_model
from helpers.toys.toy_tokenizers import byte_level

BATCH = [([5, 6, 7], [[8], [9, 10], [11, 12, 13, 14]])]
TEMPLATE = {"before_user": "<user>"}
LIGHTNING = {
    "base.": "model.model.",
    "embedder.places": "comp_embedder.merger.pos",
    "embedder.query": "comp_embedder.merger.q_proj",
    "embedder.key": "comp_embedder.merger.k_proj",
    "embedder.value": "comp_embedder.merger.v_proj",
    "embedder.output": "comp_embedder.out_proj",
    "micro.layers": "micro_step_decoder.decoders",
    "stop_head": "micro_step_decoder.stop_head",
}


def write_tokenizer(path: Path, ids: int) -> Path:
    Tokenizer(models.WordLevel({f"t{i}": i for i in range(ids)}, unk_token="t0")).save(str(path))
    return path


def save(folder: Path, model: Hamburger, **changes: Any) -> Path:
    tokenizer = write_tokenizer(folder.parent / "tokenizer.json", model.config.base.vocab_size)
    options: dict[str, Any] = {
        "base": {"kind": "embedded"},
        "tokenizer": tokenizer,
        "chat_template": TEMPLATE,
        "provenance": {"steps": 12, "note": "é"},
        "license": {"graft": "Apache-2.0", "base": None},
        "rows": "fp32",
    }
    return save_checkpoint(folder, model, **{**options, **changes})


def write_hf(folder: Path, model: Hamburger, **changes: Any) -> Path:
    """The base of a toy as a Hugging Face folder."""
    base = model.config.base
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": base.family,
        "vocab_size": base.vocab_size,
        "hidden_size": base.hidden_size,
        "intermediate_size": base.intermediate_size,
        "num_hidden_layers": base.num_layers,
        "num_attention_heads": base.num_heads,
        "num_key_value_heads": base.num_kv_heads,
        "head_dim": base.head_dim,
        "max_position_embeddings": base.context_length,
        "rms_norm_eps": base.rms_norm_eps,
        "rope_theta": base.rope_theta,
        "tie_word_embeddings": base.tied_head,
        "eos_token_id": 2,
    }
    config = {key: value for key, value in {**config, **changes}.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({f"model.{k}": v for k, v in model.base.state_dict().items()}, folder / "model.safetensors")
    write_tokenizer(folder / "tokenizer.json", base.vocab_size)
    return folder


def lightning_model(**changes: Any) -> Hamburger:
    """As deep as the reference, and with its fixed number of merger heads."""
    shape = {"hidden_size": 128, "num_layers": 16, "taps": (3, 7, 11), "merger_heads": 64}
    return toy_model(**{**shape, "micro_layers": 4, "micro_final_norm": False, **changes})


def lightning_state(model: Hamburger) -> dict[str, torch.Tensor]:
    """Tensors by the reference implementation's names."""
    state = {}
    for name, tensor in model.state_dict().items():
        for ours, theirs in LIGHTNING.items():
            if name.startswith(ours):
                state[theirs + name.removeprefix(ours)] = tensor.to(torch.bfloat16)
    state["model.lm_head.weight"] = state["model.model.embed_tokens.weight"]
    state["comp_embedder.embedding.weight"] = state["model.model.embed_tokens.weight"]
    state["teacher.model.lm_head.weight"] = torch.zeros(2)
    return state


def write_lightning(path: Path, **changes: Any) -> Path:
    """A Lightning file in a folder with its base's configuration, tokenizer and markup."""
    path.parent.mkdir(parents=True)
    tokenizer = byte_level(path.parent)
    vocab_size = Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    model = lightning_model(vocab_size=vocab_size, **changes)
    write_hf(path.parent, model)
    (path.parent / "model.safetensors").unlink()
    tokenizer.rename(path.parent / "tokenizer.json")
    (path.parent / "chat_markup.json").write_text('{"kind": "chatml"}')
    torch.save({"state_dict": lightning_state(model)}, path)
    return path


def same_weights(a: Hamburger, b: Hamburger, tolerance: float = 0.0) -> None:
    ours, other = a.state_dict(), b.state_dict()
    assert ours.keys() == other.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], other[name], atol=tolerance, rtol=0, msg=name)


def same_outputs(a: Hamburger, b: Hamburger) -> None:
    with torch.no_grad():
        for one, other in zip(*(vars(m(toy_batch(m, BATCH))).values() for m in (a, b)), strict=True):
            torch.testing.assert_close(one, other)


def edit_json(name: str, **changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = json.loads((folder / name).read_text()) | changes
        (folder / name).write_text(json.dumps({k: v for k, v in data.items() if v != "absent"}))

    return edit


def edit_tensors(name: str, **changes: Any) -> Callable[[Path], None]:
    """Replace (by a function of the tensor), add or drop (None) tensors; `__` stands for a dot."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / name)
        for key, change in changes.items():
            key = key.replace("__", ".")
            tensors[key] = change(tensors.get(key)).contiguous() if change else None
        save_file({k: v for k, v in tensors.items() if v is not None}, folder / name)

    return edit


def with_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.flatten()[1] = float("nan")
    return tensor


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def holding(name: str, text: str) -> Callable[[Path], None]:
    """The file says this instead, or is there now."""

    def edit(folder: Path) -> None:
        (folder / name).write_text(text)

    return edit


def cut(name: str, share: float) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * share)])

    return edit
