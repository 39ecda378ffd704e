"""Load a base by name or path, with the files beside its weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hamburger_edge.chat.template import markup_beside
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.adapter import base_of_adapter, is_adapter, merge_adapter
from hamburger_edge.models.bases.chat_template import template_beside
from hamburger_edge.models.bases.gguf import load_gguf
from hamburger_edge.models.bases.huggingface import load_hf
from hamburger_edge.models.bases.layers import keep_layers
from hamburger_edge.models.bases.sources.fetch import (
    fetch,
    is_fetched,
    known_bases,
    pinned_name,
    weights_sha256,
)
from hamburger_edge.models.bases.sources.hub import PREFIX
from hamburger_edge.models.bases.vocabulary import keep_tokens
from hamburger_edge.models.bases.weights import LoadedBase, check_tokenizer
from hamburger_edge.support.progress import Progress


def find_base(
    name: str,
    progress: Progress | None = None,
    *,
    layers: Sequence[int] = (),
    tokenizer: Path | None = None,
    half: bool = False,
) -> tuple[LoadedBase, dict[str, Any]]:
    """Return a base by built-in name or path, and a checkpoint's reference to it.

    `layers`, and a `tokenizer` with some of its tokens, leave parts of the base out: see layers.py and
    vocabulary.py.
    """
    base, reference = _find(name, progress, half)
    if layers:
        base, reference = keep_layers(base, layers, name), {**reference, "layers": list(layers)}
    if tokenizer is not None:
        base, reference = keep_tokens(base, tokenizer), {**reference, "cut_vocabulary": True}
    return base, reference


def _find(name: str, progress: Progress | None, half: bool) -> tuple[LoadedBase, dict[str, Any]]:
    if is_fetched(name):
        folder = fetch(name, progress=progress)
        reference = {"name": pinned_name(name, folder), "sha256": weights_sha256(folder)}
        return load_base(folder, half=half), {"kind": "fetch", **reference}
    path = Path(name)
    if not path.exists():
        raise CheckpointError(f"{name}: neither a base of that name ({known_bases()}) nor a path")
    base = load_base(path, half=half)
    return base, {"kind": "path", "path": str(path.absolute()), "sha256": base.sha256}


def load_base(
    path: str | Path, *, chat_template: dict[str, Any] | None = None, half: bool = False
) -> LoadedBase:
    """Load a Hugging Face folder, a GGUF file, a folder with one, or a PEFT adapter's folder.

    A tokenizer.json and a chat_markup.json beside the weights are used. With a given `chat_template` the
    base's template is not read. With `half`, layers' matrices stored in 16 bits stay so.
    """
    base = _load(Path(path), half)
    base.chat_template = chat_template or base.chat_template
    if base.chat_template is None and base.jinja is not None:
        base.chat_template = base.jinja.markup()
    return base


def _load(path: Path, half: bool) -> LoadedBase:
    """Load it with the markup of `chat_markup.json`; the base's template stays unread."""
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder")
    folder = path if path.is_dir() else path.parent
    if path.is_dir() and (path / "config.json").exists():
        base = load_hf(path, half=half)
    elif path.is_dir() and is_adapter(path):
        base = _load_below(path, half)
    elif path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise CheckpointError(
                f"{path}: holds neither config.json nor exactly one .gguf file: not a base model"
            )
        base = load_gguf(files[0])
    else:
        base = load_gguf(path)
    if path.is_dir() and is_adapter(path):
        merge_adapter(base, path)
        own = template_beside(path)
        if own is not None and (base.jinja is None or own.text != base.jinja.text):
            base.jinja, base.chat_template = own, None
        base.name = path.resolve().name
    if (tokenizer := folder / "tokenizer.json").exists():
        check_tokenizer(tokenizer, base.config.vocab_size)
        base.tokenizer = tokenizer
    base.chat_template = markup_beside(folder) or base.chat_template
    return base


def _load_below(adapter: Path, half: bool) -> LoadedBase:
    """Load an adapter's base: a path relative to the adapter or to here, a built-in name, or a repository."""
    name, revision = base_of_adapter(adapter)
    for path in (adapter / name, Path(name)):
        if path.exists() and path.resolve() != adapter.resolve():
            return _load(path, half)
    if not is_fetched(name):
        if Path(name).is_absolute() or name.count("/") != 1:
            raise CheckpointError(
                f"{name}: no such file or folder, and {adapter} was trained on it: put the base there, or "
                "write its path into adapter_config.json, as base_model_name_or_path"
            )
        name = f"{PREFIX}{name}" + (f"@{revision}" if revision else "")
    return _load(fetch(name), half)
