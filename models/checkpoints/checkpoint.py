"""Load HAMburgers. saving.py writes them.

A checkpoint is a folder:

    hamburger.json            its manifest: see manifest.py
    graft.safetensors         embedder.*, micro.*, stop_head.*, and draft vocabulary if there is one; no such
                              file beside max_group_tokens 1
    base_delta.safetensors    optional changes to the base: <weight>.lora_a [r, in] with <weight>.lora_b
                              [out, r] (already scaled), or <weight>.delta
    base.safetensors          the base itself, if the manifest has "embedded"
    tokenizer.json            if it is not the base's; may have some of the base's tokens only
    calibration.jsonl         optional text to calibrate its weights: see calibration_text.py
    assembly/                 optional: an export's graphs, to make its bundle without PyTorch
    LICENSE, NOTICE, ...      terms of the base, if it came with any

A Lightning file of the paper's authors is a checkpoint too: its folder holds the base's config.json and
tokenizer.json, and may hold calibration text and terms. So is an ordinary model: a plain one, without
graft.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.chat.template import ChatTemplate, markup_beside
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.chat_template import template_beside
from hamburger_edge.models.bases.huggingface import read_config, read_eos
from hamburger_edge.models.bases.layers import keep_layers
from hamburger_edge.models.bases.loading import find_base, load_base
from hamburger_edge.models.bases.sources.fetch import base_folder, fetch, weights_sha256
from hamburger_edge.models.bases.vocabulary import keep_tokens
from hamburger_edge.models.bases.weights import base_shapes, check_state, check_tokenizer, shapes
from hamburger_edge.models.checkpoints.arrays import read_arrays
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.delta import add_delta
from hamburger_edge.models.checkpoints.lightning import load_lightning
from hamburger_edge.models.checkpoints.manifest import (
    BASE,
    DELTA,
    FORMAT,
    GRAFT,
    MANIFEST,
    BaseReference,
    CheckpointManifest,
    is_lightning,
    read_manifest,
)
from hamburger_edge.models.checkpoints.ordinary import is_ordinary
from hamburger_edge.models.checkpoints.rows import load_rows
from hamburger_edge.support.progress import Progress


@dataclass
class Checkpoint:
    model: Hamburger  # float32 (layers of the base may hold 16 bits, see `load_checkpoint`), in eval mode
    tokenizer: Path
    chat_template: dict[str, Any] | None
    manifest: dict[str, Any]
    path: Path  # the folder; or a Lightning file, or that of an ordinary model
    folder: Path  # that holds its other files: of a Lightning file, that of the base's configuration

    @property
    def is_task(self) -> bool:
        """Whether it was tuned to single requests: see `ChatTemplate.is_task`."""
        return ChatTemplate.from_json(self.chat_template).is_task

    def file(self, name: str) -> Path | None:
        """Return a further file of the checkpoint, if it has one of this name."""
        path = self.folder / name
        return path if path.is_file() else None


def load_checkpoint(
    source: str | Path,
    *,
    base: str | Path | None = None,
    half: bool = False,
    progress: Progress | None = None,
) -> Checkpoint:
    """Load a checkpoint folder or name, or an ordinary model as a plain one; fetch the base if needed.

    With `half`, matrices of the base's layers that are stored in 16 bits stay so: the same numbers in half
    the memory, widened for every product.

    The paper authors' `.ckpt` files are supported: `base` is then the folder with the base's config.json and
    tokenizer.json, by default the file's folder.
    """
    if is_lightning(source):
        return _load_reference(Path(source), Path(base) if base else Path(source).parent)
    if is_ordinary(source):
        return _load_ordinary(str(source), half, progress)
    folder = resolve(source)
    manifest = read_manifest(folder / MANIFEST)
    config = manifest.config
    state, tokenizer, chat_template = _base_of(folder, manifest, half, progress)
    if (folder / DELTA).exists():
        add_delta(state, read_arrays(folder / DELTA), folder / DELTA)
    graft = load_rows(folder / GRAFT) if config.has_graft else {}
    draft_vocab = _draft_vocab(graft.pop("draft_vocab", None), config, folder / GRAFT)
    check_state(graft, graft_shapes(config), folder / GRAFT)
    if manifest.tokenizer is not None:
        tokenizer = folder / manifest.tokenizer
    if tokenizer is None:
        raise CheckpointError(
            f"{folder}: neither it nor its base has a tokenizer.json: add one to the checkpoint"
        )
    check_tokenizer(tokenizer, config.base.vocab_size)
    state = {f"base.{name}": state.pop(name) for name in list(state)} | graft | {"draft_vocab": draft_vocab}
    return Checkpoint(
        model=build(config, state),
        tokenizer=tokenizer,
        chat_template=manifest.chat_template or chat_template,
        manifest=manifest.to_json(),
        path=folder,
        folder=folder,
    )


def _load_ordinary(source: str, half: bool, progress: Progress | None) -> Checkpoint:
    there = Path(source).absolute()  # it may have the name of a base to fetch
    base, reference = find_base(str(there) if there.exists() else source, progress, half=half)
    path = there if there.exists() else base_folder(source)
    if base.tokenizer is None:
        raise CheckpointError(f"{path}: has no tokenizer.json: put the model's beside its weights")
    config = HamburgerConfig.plain(base.config, base.eos_ids)
    license = {"graft": None, "base": base.license}
    manifest = CheckpointManifest(FORMAT, config, BaseReference(**reference), license=license)
    state = {f"base.{name}": tensor for name, tensor in base.state.items()}
    model = build(config, state | {"draft_vocab": torch.arange(config.base.vocab_size)})
    folder = path if path.is_dir() else path.parent
    return Checkpoint(model, base.tokenizer, base.chat_template, manifest.to_json(), path, folder)


def build(config: HamburgerConfig, state: dict[str, Tensor]) -> Hamburger:
    """Build a model around these tensors, without allocating, initialising or copying any."""
    with torch.device("meta"):
        model = Hamburger(config)
    model.load_state_dict(state, assign=True)
    model.register_rotary()
    return model.eval()


def graft_shapes(config: HamburgerConfig) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        model = Hamburger(config)
    return {n: s for n, s in shapes(model).items() if not n.startswith("base.") and n != "draft_vocab"}


def _base_of(
    folder: Path, manifest: CheckpointManifest, half: bool, progress: Progress | None
) -> tuple[dict[str, Tensor], Path | None, dict[str, Any] | None]:
    """Return the base's state, tokenizer and chat template."""
    reference, config = manifest.base, manifest.config.base
    if reference.kind == "embedded":
        state = load_rows(folder / BASE, half=half)
        check_state(state, base_shapes(config), folder / BASE)
        return state, None, None
    if reference.kind == "fetch":
        where = fetch(str(reference.name), progress=progress)
        if reference.sha256 not in (None, weights_sha256(where)):
            raise CheckpointError(
                f"{where}: not the weights that {folder} was trained on: delete that folder to fetch again"
            )
    else:
        where = folder / str(reference.path)
        if not where.exists():
            raise CheckpointError(
                f"{where}: no such file or folder, and {folder} needs it: put the base back there, or "
                f"write its path into {MANIFEST}, as base.path"
            )
    base = load_base(where, chat_template=manifest.chat_template, half=half)
    if reference.kind == "path" and reference.sha256 not in (None, base.sha256):
        raise CheckpointError(f"{where}: not the weights that {folder} was trained on: put those back there")
    base = keep_layers(base, reference.layers, folder / MANIFEST)
    if reference.cut_vocabulary:
        base = keep_tokens(base, folder / str(manifest.tokenizer))
    _same_base(config, base.config, where, folder)
    return base.state, base.tokenizer, base.chat_template


def _same_base(wanted: BaseConfig, base: BaseConfig, where: Path, folder: Path) -> None:
    """Check that both bases agree in everything except the context length."""
    for entry in fields(BaseConfig):
        ours, theirs = getattr(wanted, entry.name), getattr(base, entry.name)
        if ours != theirs and entry.name not in ("family", "context_length"):
            raise CheckpointError(
                f"{where}: its {entry.name} is {theirs}, but {folder} needs a base with {ours}: wrong base"
            )


def _draft_vocab(tensor: Tensor | None, config: HamburgerConfig, source: object) -> Tensor:
    size, vocab = config.draft_vocab_size, config.base.vocab_size
    if not size and tensor is None:
        return torch.arange(vocab)
    if tensor is None:
        raise CheckpointError(f"{source}: missing tensor draft_vocab, {size} token ids")
    if not size:
        raise CheckpointError(
            f"{source}: unknown tensor draft_vocab: the configuration has draft_vocab_size 0"
        )
    if tensor.dtype != torch.int64 or tensor.shape != (size,):
        raise CheckpointError(
            f"{source}: tensor draft_vocab is {tensor.dtype} {list(tensor.shape)}, "
            f"expected torch.int64 [{size}]"
        )
    if tensor.unique().numel() != size or tensor.min() < 0 or tensor.max() >= vocab:
        raise CheckpointError(
            f"{source}: tensor draft_vocab repeats token ids or leaves the vocabulary of {vocab}"
        )
    return tensor


def _load_reference(path: Path, folder: Path) -> Checkpoint:
    """Load a Lightning file, with its base's config.json and tokenizer.json in `folder`."""
    if not (folder / "config.json").exists():
        raise CheckpointError(
            f"{path}: a Lightning checkpoint has no base configuration: put the base's config.json beside it"
        )
    if not (tokenizer := folder / "tokenizer.json").exists():
        raise CheckpointError(f"{folder}: has no tokenizer.json: put the base's beside its config.json")
    base = read_config(folder / "config.json", has_head=False)
    config, state = load_lightning(path, base, read_eos(folder))
    expected = {f"base.{name}": shape for name, shape in base_shapes(base).items()} | graft_shapes(config)
    check_state(state, expected, path)
    check_tokenizer(tokenizer, base.vocab_size)
    manifest = CheckpointManifest(FORMAT, config, BaseReference("embedded"), provenance={"source": path.name})
    model = build(config, state | {"draft_vocab": torch.arange(base.vocab_size)})
    template = markup_beside(folder)
    if template is None and (jinja := template_beside(folder)) is not None:
        template = jinja.markup()
    return Checkpoint(model, tokenizer, template, manifest.to_json(), path, folder)
