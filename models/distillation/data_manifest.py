"""`data.json`, the manifest of a data folder: written by `distill`, read by training."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation.storage import Folder, folder_at
from hamburger_edge.support.strict import from_mapping, parse_json

FORMAT = 1
NAME = "data.json"


@dataclass(frozen=True)
class Shard:
    file: str
    sha256: str
    conversations: int
    tokens: int
    answer_tokens: int
    questions: tuple[str, ...] = ()  # hashes of those that no earlier shard asked
    repeated: tuple[int, ...] = ()  # conversations of the file that are left out and not counted above: ...
    # ... an earlier shard asked one of their invented questions

    def whole(self, folder: str | Path | Folder) -> bool:
        """Whether the file is unchanged."""
        return folder_at(folder).sha256(self.file) == self.sha256


@dataclass
class DataManifest:
    format: int
    source: dict[str, Any]  # the base that wrote the answers: name and sha256
    shards: tuple[Shard, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    turns: dict[str, Any] = field(default_factory=dict)
    dtype: str = ""
    prompts_sha256: str = ""

    @property
    def base(self) -> str:
        """Identify the base: by its weights if they are known, else by its name."""
        return str(self.source.get("sha256") or self.source.get("base"))

    @property
    def answer_tokens(self) -> int:
        return sum(shard.answer_tokens for shard in self.shards)

    def facts(self) -> dict[str, Any]:
        """Return everything except the shards: how the data is made."""
        return {name: value for name, value in vars(self).items() if name != "shards"}

    def save(self, folder: str | Path | Folder) -> None:
        text = json.dumps(dataclasses.asdict(self), indent=1)
        folder_at(folder).write(NAME, text.encode())


def read_data_manifest(where: str | Path | Folder) -> DataManifest:
    folder = folder_at(where)
    path = f"{folder}/{NAME}"
    if not folder.exists(NAME):
        raise ConfigError(f"{folder}: no training data there: make it with  hamburger-edge distill")
    try:
        data = parse_json(folder.read(NAME), path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: is not of format {FORMAT}, which this program reads: update hamburger-edge, or distill "
            "into another folder"
        )
    manifest: DataManifest = from_mapping(DataManifest, data, path)
    for shard in manifest.shards:
        if Path(shard.file).name != shard.file:
            raise ConfigError(f"{path}: {shard.file!r} is not a file in this folder: run distill again")
    return manifest
