"""What a data folder says of itself: `data.json`, written by `distill`, read by whoever trains on it."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.files import sha256, write_atomically
from hamburger_edge.support.strict import from_mapping, read_json

FORMAT = 1
NAME = "data.json"


@dataclass(frozen=True)
class Shard:
    file: str
    sha256: str
    conversations: int
    tokens: int
    answer_tokens: int
    questions: tuple[str, ...] = ()  # hashes, by which none is asked twice

    def whole(self, folder: Path) -> bool:
        """Whether the file is as it was made; read once, however often a run asks."""
        path = (folder / self.file).absolute()
        if not path.is_file():
            return False
        facts = path.stat()
        return _digest(path, facts.st_ino, facts.st_size, facts.st_mtime_ns) == self.sha256


@dataclass
class DataManifest:
    format: int
    source: dict[str, Any]  # the base that said all this: name and sha256
    shards: tuple[Shard, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    turns: dict[str, Any] = field(default_factory=dict)
    dtype: str = ""
    prompts_sha256: str = ""

    @property
    def base(self) -> str:
        """Who said all this: by its weights, where they are known, else by its name."""
        return str(self.source.get("sha256") or self.source.get("base"))

    @property
    def answer_tokens(self) -> int:
        return sum(shard.answer_tokens for shard in self.shards)

    def facts(self) -> dict[str, Any]:
        """How the data is made: everything but the shards."""
        return {name: value for name, value in vars(self).items() if name != "shards"}

    def save(self, folder: Path) -> None:
        with write_atomically(folder / NAME) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")


@functools.cache
def _digest(path: Path, inode: int, size: int, modified: int) -> str:
    """A file's sha256, taken again only where the file is not the same any more."""
    return sha256(path)


def read_data_manifest(folder: Path) -> DataManifest:
    path = folder / NAME
    if not path.exists():
        raise ConfigError(f"{folder}: no training data there: make it with  hamburger-edge distill")
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: is not of format {FORMAT}, which this program reads: update hamburger-edge, or distill "
            "into another folder"
        )
    manifest: DataManifest = from_mapping(DataManifest, data, str(path))
    for shard in manifest.shards:
        if Path(shard.file).name != shard.file:
            raise ConfigError(f"{path}: {shard.file!r} is not a file in this folder: run distill again")
    return manifest
