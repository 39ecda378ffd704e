"""Written answers as training data, stored like distilled ones of a base that was certain of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import save_file

from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
from hamburger_edge.models.distillation.data_manifest import FORMAT, DataManifest, Shard
from hamburger_edge.support.files import library_writes, sha256, write_atomically


@dataclass
class WrittenConversation:
    """Tokens and their roles, part by part."""

    ids: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)

    def add(self, tokens: Iterable[int], role: int = TEMPLATE) -> None:
        self.ids.extend(tokens)
        self.roles.extend([role] * (len(self.ids) - len(self.roles)))

    @property
    def question(self) -> NDArray[np.int32]:
        return question_of(np.array(self.ids, np.int32), np.array(self.roles, np.uint8))


def question_of(ids: NDArray[np.int32], roles: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return the tokens before a conversation's first answer."""
    answers = np.flatnonzero(roles == ANSWER)
    return ids[: answers[0] if len(answers) else 0]


def write_conversations(
    folder: Path, name: str, conversations: Iterable[WrittenConversation], source: Mapping[str, Any]
) -> DataManifest:
    """Write a data folder of one shard."""
    ids: list[int] = []
    roles: list[int] = []
    starts = [0]
    for conversation in conversations:
        ids += conversation.ids
        roles += conversation.roles
        starts.append(len(ids))
    return write_shard(folder, name, certain(starts, ids, roles), source)


def certain(starts: ArrayLike, ids: ArrayLike, roles: ArrayLike) -> dict[str, np.ndarray]:
    """Return a shard's arrays, as if a base had been certain of every token."""
    tokens = np.asarray(ids, dtype=np.int32)
    return {
        "starts": np.asarray(starts, dtype=np.int64),
        "ids": tokens,
        "roles": np.asarray(roles, dtype=np.uint8),
        "entropies": np.zeros(len(tokens), dtype=np.float16),
        "top_ids": tokens[:, None],
        "top_log_probabilities": np.zeros((len(tokens), 1), dtype=np.float16),
    }


def write_shard(
    folder: Path,
    name: str,
    arrays: dict[str, np.ndarray],
    source: Mapping[str, Any],
    before: tuple[Shard, ...] = (),
) -> DataManifest:
    """Write the next shard of a data folder, after those in `before`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    with write_atomically(path) as temporary, library_writes(temporary):
        save_file(arrays, temporary)
    shard = Shard(
        file=path.name,
        sha256=sha256(path),
        conversations=len(arrays["starts"]) - 1,
        tokens=len(arrays["ids"]),
        answer_tokens=int((arrays["roles"] == ANSWER).sum()),
    )
    manifest = DataManifest(FORMAT, dict(source), (*before, shard))
    manifest.save(folder)
    return manifest
