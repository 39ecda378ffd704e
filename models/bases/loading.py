"""A base by its name or path, with what lies beside its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.chat.markup import markup_beside
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.fetch import fetch, is_fetched, known_bases, pinned_name, weights_sha256
from hamburger_edge.models.bases.gguf import load_gguf
from hamburger_edge.models.bases.huggingface import load_hf
from hamburger_edge.models.bases.weights import LoadedBase, check_tokenizer
from hamburger_edge.support.progress import Progress


def find_base(name: str, progress: Progress | None = None) -> tuple[LoadedBase, dict[str, Any]]:
    """A base by built-in name or path, and how a checkpoint refers to it."""
    if is_fetched(name):
        folder = fetch(name, progress=progress)
        reference = {"name": pinned_name(name, folder), "sha256": weights_sha256(folder)}
        return load_base(folder), {"kind": "fetch", **reference}
    path = Path(name)
    if not path.exists():
        raise CheckpointError(f"{name}: neither a base of that name ({known_bases()}) nor a path")
    base = load_base(path)
    return base, {"kind": "path", "path": str(path.absolute()), "sha256": base.sha256}


def load_base(path: str | Path) -> LoadedBase:
    """A Hugging Face folder, a GGUF file, or a folder holding one (as `fetch` leaves it).

    A tokenizer.json and a chat_markup.json that lie beside the weights count.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder")
    folder = path if path.is_dir() else path.parent
    if path.is_dir() and (path / "config.json").exists():
        base = load_hf(path)
    elif path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise CheckpointError(
                f"{path}: holds neither config.json nor exactly one .gguf file: not a base model"
            )
        base = load_gguf(files[0])
    else:
        base = load_gguf(path)
    if (tokenizer := folder / "tokenizer.json").exists():
        check_tokenizer(tokenizer, base.config.vocab_size)
        base.tokenizer = tokenizer
    base.chat_template = markup_beside(folder) or base.chat_template
    return base
