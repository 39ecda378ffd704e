"""Load and save HAMburgers.

A checkpoint is a folder:

    hamburger.json            its manifest: see manifest.py
    graft.safetensors         embedder.*, micro.*, stop_head.*, and draft vocabulary if there is one
    base_delta.safetensors    optional changes to the base: <weight>.lora_a [r, in] with <weight>.lora_b
                              [out, r] (already scaled), or <weight>.delta
    base.safetensors          the base itself, if the manifest has "embedded"
    tokenizer.json            if it is not the base's; may have some of the base's tokens only
    calibration.jsonl         optional text to calibrate its weights: see calibration_text.py
    assembly/                 optional: an export's graphs, to make its bundle without PyTorch
    LICENSE, NOTICE, ...      terms of the base, if it came with any

A Lightning file of the paper's authors is a checkpoint too: its folder holds the base's config.json and
tokenizer.json, and may hold calibration text and terms.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.chat.template import markup_beside
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.chat_template import template_beside
from hamburger_edge.models.bases.huggingface import read_config, read_eos
from hamburger_edge.models.bases.layers import keep_layers
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.sources.fetch import base_folder, fetch, notice_of, weights_sha256
from hamburger_edge.models.bases.sources.terms import NOTICE, copy_terms, terms_in
from hamburger_edge.models.bases.vocabulary import keep_tokens
from hamburger_edge.models.bases.weights import base_shapes, check_state, check_tokenizer, shapes
from hamburger_edge.models.checkpoints.arrays import read_arrays
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION
from hamburger_edge.models.checkpoints.delta import add_delta, check_delta
from hamburger_edge.models.checkpoints.lightning import load_lightning
from hamburger_edge.models.checkpoints.manifest import (
    BASE,
    DELTA,
    FORMAT,
    GRAFT,
    MANIFEST,
    PARTS,
    BaseReference,
    CheckpointManifest,
    is_lightning,
    read_manifest,
)
from hamburger_edge.models.checkpoints.rows import RowPrecision, load_rows, save_rows
from hamburger_edge.support.files import DRAFT_INDEX
from hamburger_edge.support.folders import publish, unexpected_files
from hamburger_edge.support.progress import Progress
from hamburger_edge.support.strict import from_mapping

CARD = "README.md"  # for people; `tune` writes one ...
PICTURE = "reliability.svg"  # ... and the pictures beside it
CURVES = "curves.png"


@dataclass
class Checkpoint:
    model: Hamburger  # float32 (layers of the base may hold 16 bits, see `load_checkpoint`), in eval mode
    tokenizer: Path
    chat_template: dict[str, Any] | None
    manifest: dict[str, Any]
    path: Path  # the folder, or a Lightning file
    folder: Path  # that holds its other files: of a Lightning file, that of the base's configuration

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
    """Load a checkpoint folder or name; fetch its base if needed.

    With `half`, matrices of the base's layers that are stored in 16 bits stay so: the same numbers in half
    the memory, widened for every product.

    The paper authors' `.ckpt` files are supported: `base` is then the folder with the base's config.json and
    tokenizer.json, by default the file's folder.
    """
    if is_lightning(source):
        return _load_reference(Path(source), Path(base) if base else Path(source).parent)
    folder = resolve(source)
    manifest = read_manifest(folder / MANIFEST)
    config = manifest.config
    state, tokenizer, chat_template = _base_of(folder, manifest, half, progress)
    if (folder / DELTA).exists():
        add_delta(state, read_arrays(folder / DELTA), folder / DELTA)
    graft = load_rows(folder / GRAFT)
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


def _from_here(base: BaseReference, folder: Path) -> BaseReference:
    """Make a base's path relative to the checkpoint, so that both can move together."""
    if base.path is None or not Path(base.path).is_absolute():
        return base
    try:
        path = os.path.relpath(Path(base.path).resolve(), folder.resolve())
    except ValueError:  # on another drive
        return base
    return replace(base, path=Path(path).as_posix())


def _beside_base(base: Mapping[str, Any]) -> Path | None:
    """Return the folder of a base's files."""
    if base.get("kind") == "fetch":
        return base_folder(str(base["name"]))
    if base.get("kind") == "path":
        path = Path(str(base["path"]))
        return path if path.is_dir() else path.parent
    return None


def check_target(folder: str | Path) -> Path:
    """Check the target before work begins: a new folder, or one that holds nothing else."""
    folder = Path(folder).absolute()
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: is a file, which saving would delete: choose another folder")
    ours = {
        MANIFEST,
        GRAFT,
        DELTA,
        BASE,
        "tokenizer.json",
        CALIBRATION,
        DRAFT_INDEX,
        CARD,
        PICTURE,
        CURVES,
        PARTS,
        *terms_in(folder),
    }
    if others := unexpected_files(folder, ours):
        raise CheckpointError(
            f"{folder}: holds {others[0]}, which saving would delete: choose another folder"
        )
    there = next((parent for parent in folder.parents if parent.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder}: {there} is not a writable folder: choose another")
    return folder


def save_checkpoint(
    folder: str | Path,
    model: Hamburger,
    *,
    base: Mapping[str, Any],
    tokenizer: Path | None,
    chat_template: Mapping[str, Any] | None,
    provenance: Mapping[str, Any],
    license: Mapping[str, str | None],
    base_delta: Mapping[str, Tensor] | None = None,
    rows: RowPrecision = "fp16",
) -> Path:
    """Write a whole checkpoint folder or none. `base` is a `BaseReference` as a dictionary."""
    folder = check_target(folder)
    if base_delta and base.get("kind") == "embedded":
        raise CheckpointError(
            f"{folder}: an embedded base already holds its changes: save without base_delta"
        )
    manifest = CheckpointManifest(
        format=FORMAT,
        config=model.config,
        base=_from_here(from_mapping(BaseReference, dict(base), "base"), folder),
        tokenizer=None if tokenizer is None else "tokenizer.json",
        chat_template=None if chat_template is None else dict(chat_template),
        provenance=dict(provenance),
        license=dict(license),
    )
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        state = model.state_dict()
        graft = {name: tensor for name, tensor in state.items() if not name.startswith("base.")}
        if not model.config.draft_vocab_size:
            del graft["draft_vocab"]
        save_rows(partial / GRAFT, graft, rows)
        if manifest.base.kind == "embedded":
            save_rows(partial / BASE, {n: state[f"base.{n}"] for n in shapes(model.base)}, rows)
        if (terms := _beside_base(base)) is not None:
            copy_terms(terms, partial)
        if base.get("kind") == "fetch" and (notice := notice_of(str(base["name"]))):
            (partial / NOTICE).write_text(notice, encoding="utf-8")
        if base_delta:
            check_delta(base_delta, shapes(model.base), "base_delta")
            save_rows(partial / DELTA, base_delta, rows)
        if tokenizer is not None:
            check_tokenizer(Path(tokenizer), model.config.base.vocab_size)
            shutil.copyfile(tokenizer, partial / "tokenizer.json")
        text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False)
        (partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def copy_checkpoint(source: Path, folder: str | Path, *, card: str) -> Path:
    """Copy a checkpoint with its card, whole or not at all."""
    folder = check_target(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(source, partial)
        manifest = read_manifest(source / MANIFEST)
        base = manifest.base
        if base.path is not None:  # relative to the copy
            base = _from_here(replace(base, path=str((source / base.path).absolute())), folder)
        text = json.dumps(replace(manifest, base=base).to_json(), indent=1, ensure_ascii=False)
        (partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        (partial / CARD).write_text(card, encoding="utf-8")
        publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder
