"""Join shards, made in any order by any worker, into one data folder that does not depend on either.

A shard depends on (seed, number) alone. Everything that depends on other shards is decided here in the order
of their numbers: repeated questions, and whether there are enough tokens.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hamburger_edge.errors import ConfigError, HamburgerWarning
from hamburger_edge.models.distillation.conversations import Conversation
from hamburger_edge.models.distillation.data_manifest import NAME, DataManifest, Shard, read_data_manifest
from hamburger_edge.models.distillation.storage import Folder

MOST_USELESS = 64  # conversations


@dataclass(frozen=True)
class MadeConversation:
    """A conversation in the file, as joining needs it."""

    tokens: int
    answer_tokens: int
    made_up: tuple[str, ...]  # hashes of its invented questions


@dataclass(frozen=True)
class MadeShard:
    data: bytes  # the file
    conversations: tuple[MadeConversation, ...]
    questions: tuple[str, ...]  # hashes of all its questions, dropped conversations' too
    tried: int
    given_up: str  # the most frequent reason

    @classmethod
    def of(
        cls, data: bytes, kept: Iterable[Conversation], questions: Iterable[bytes], tried: list[Conversation]
    ) -> MadeShard:
        why = Counter(conversation.rejected or "unfinished" for conversation in tried).most_common(1)
        return cls(
            data,
            tuple(
                MadeConversation(len(c.ids), c.answer_tokens, tuple(key.hex() for key in c.made_up))
                for c in kept
            ),
            tuple(sorted(key.hex() for key in questions)),
            len(tried),
            why[0][0] if why else "unfinished",
        )


class Joining:
    """A data folder under construction."""

    def __init__(self, folder: Folder, manifest: DataManifest, tokens: int):
        """Continue the existing folder if it was made as in `manifest`."""
        self.folder, self.manifest, self.tokens = folder, manifest, tokens
        manifest.shards, self.gone = _resume(folder, manifest)
        self.following = len(manifest.shards)  # number of the next new shard to make
        self.in_progress = set[int]()  # shards
        self.waiting: dict[int, MadeShard] = {}  # made, while an earlier one is missing
        self.useless = 0  # consecutive conversations of which nothing was kept
        self.questions = {key for shard in manifest.shards for key in shard.questions}
        self.lacking = set(self.gone)

    @property
    def done(self) -> int:
        """Return the answer tokens in whole shards."""
        shards = enumerate(self.manifest.shards)
        return sum(shard.answer_tokens for number, shard in shards if number not in self.lacking)

    @property
    def finished(self) -> bool:
        return not self.lacking and self.done >= self.tokens

    def wanted(self) -> int | None:
        """Return the next shard to make; None: those in progress are probably enough."""
        if self.gone:
            number = self.gone.pop(0)
        elif self._in_sight() >= self.tokens:
            return None
        else:
            number = self.following
            self.following += 1
        self.in_progress.add(number)
        return number

    def add(self, number: int, shard: MadeShard) -> None:
        self.in_progress.discard(number)
        self.waiting[number] = shard
        for following in self._in_turn():
            self._write(following, self.waiting.pop(following))

    def _in_sight(self) -> float:
        """Estimate the answer tokens after all shards in progress, by the mean of finished ones."""
        known = [shard.answer_tokens for shard in self.manifest.shards]
        known += [sum(c.answer_tokens for c in shard.conversations) for shard in self.waiting.values()]
        waiting = sum(known[len(self.manifest.shards) :])
        mean = sum(known) / len(known) if known else 0.0
        return self.done + waiting + len(self.in_progress) * mean

    def _in_turn(self) -> Iterator[int]:
        yield from sorted(self.lacking & self.waiting.keys())
        while len(self.manifest.shards) in self.waiting and not self.finished:
            yield len(self.manifest.shards)

    def _write(self, number: int, result: MadeShard) -> None:
        shards = self.manifest.shards
        again = number < len(shards)
        before = {k for shard in shards[:number] for k in shard.questions} if again else self.questions
        repeated = [n for n, c in enumerate(result.conversations) if not before.isdisjoint(c.made_up)]
        kept = [c for n, c in enumerate(result.conversations) if n not in set(repeated)]
        self.useless = 0 if kept else self.useless + result.tried
        if self.useless >= MOST_USELESS:
            raise ConfigError(
                f"{self.folder}: nothing of {self.useless} conversations could be kept (most often: "
                f"{result.given_up}): give --prompts, or a base that was made to chat"
            )
        shard = Shard(
            file=f"shard-{number:05d}.safetensors",
            sha256=hashlib.sha256(result.data).hexdigest(),
            conversations=len(kept),
            tokens=sum(c.tokens for c in kept),
            answer_tokens=sum(c.answer_tokens for c in kept),
            questions=tuple(key for key in result.questions if key not in before),
            repeated=tuple(repeated),
        )
        self.folder.write(shard.file, result.data)
        self.manifest.shards = (*shards[:number], shard, *shards[number + 1 :])
        self.manifest.save(self.folder)
        self.lacking.discard(number)
        self.questions.update(shard.questions)


def _resume(folder: Folder, wanted: DataManifest) -> tuple[tuple[Shard, ...], list[int]]:
    """Return the existing shards, and the numbers of missing or damaged ones."""
    if not folder.exists(NAME):
        return (), []
    there = read_data_manifest(folder)
    stored = there.facts()
    for key, value in wanted.facts().items():
        if stored[key] != value:
            raise ConfigError(
                f"{folder}/{NAME}: was made with another {key}; give another folder or delete this one to "
                "start over"
            )
    gone = [number for number, shard in enumerate(there.shards) if not shard.whole(folder)]
    for number in gone:
        warnings.warn(
            f"{folder}/{there.shards[number].file}: missing or damaged, is made again",
            HamburgerWarning,
            stacklevel=4,
        )
    return there.shards, gone
