"""Bases from the Hugging Face hub, each at one commit."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.errors import FetchError, require

PREFIX, PATTERN = "hf:", "hf:ORG/NAME[@REVISION]"
# of weights only safetensors, and no code
_WANTED = [
    "config.json",
    "adapter_config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
]
_WANTED += [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "LICENSE*",
    "NOTICE",
    "README.md",
]
_TWICE = ["*consolidated*.safetensors", "original/*"]  # the same weights under their authors' names


@dataclass(frozen=True)
class Repository:
    organisation: str
    name: str
    revision: str | None = None  # commit, tag or branch; None: the newest at the first fetch

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return f"{PREFIX}{self.organisation}/{self.name}" + (f"@{self.revision}" if self.revision else "")

    def folder_name(self, *, pinned: bool = True) -> str:
        parts = ["hf", self.organisation, self.name]
        if self.revision and pinned:
            parts.append(self.revision.replace("/", "--"))
        return "--".join(parts)


def parse(name: str) -> Repository:
    repository, at, revision = name.removeprefix(PREFIX).partition("@")
    parts = repository.split("/")
    plain = all(part.strip(".") and re.fullmatch(r"[^\\:]+", part) for part in parts)
    if len(parts) != 2 or not plain:
        raise FetchError(f"{name!r} does not name a repository: write {PATTERN}")
    if at and not (re.fullmatch(r"[\w./-]+", revision) and ".." not in revision):
        raise FetchError(f"{name!r} names no revision after the @: write a commit, a tag or a branch")
    return Repository(parts[0], parts[1], revision if at else None)


def download(wanted: Repository, commit: str | None, folder: Path) -> dict[str, Any]:
    """Download into `folder` from the given commit, or else from the revision's current one.

    A killed fetch's files there are used only if they are of the same commit.
    """
    hub = require("huggingface_hub", "hub")
    identity, commit_file = f"{wanted.organisation}/{wanted.name}", folder / "begun-commit"
    try:
        commit = commit or str(hub.HfApi().model_info(identity, revision=wanted.revision).sha)
        if not (commit_file.exists() and commit_file.read_text() == commit):
            shutil.rmtree(folder)
            folder.mkdir()
            commit_file.write_text(commit)
        hub.snapshot_download(
            identity, revision=commit, local_dir=folder, allow_patterns=_WANTED, ignore_patterns=_TWICE
        )
    except Exception as error:  # requests, urllib3, hub and validation errors share no base class
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FetchError(
            f"{wanted} could not be fetched ({reason}): check the name, the network and any access token, or "
            "copy the folder here yourself and pass its path"
        ) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the hub client's bookkeeping
    commit_file.unlink()
    if not any((folder / name).exists() for name in ("config.json", "adapter_config.json")):
        raise FetchError(f"{wanted} holds no config.json: it is not a transformers model")
    return {"source": f"{PREFIX}{identity}", "commit": commit}
