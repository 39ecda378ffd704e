"""Keep conversations in memory with their KV cache, so that the next request reuses them.

A client sends its whole conversation with every request. Two lookups match its prefix:

    texts   replace an earlier answer by the groups that the model generated
    slots   skip the prompt groups that a cache snapshot already holds
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import NamedTuple

from hamburger_edge.chat.messages import read_messages
from hamburger_edge.loop.backend import Snapshot
from hamburger_edge.loop.ledger import Group, match
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.model import Model
from hamburger_edge.serve.requests import AnswerRequest


class ServedPrompt(NamedTuple):
    groups: list[Group]
    texts: tuple[str, ...]  # system, then turns; empty for a raw prompt
    marks: Mapping[int, int]  # at each end of an answer: number of texts -> number of tokens


@dataclass(frozen=True, eq=False)
class Kept:
    owner: str  # owner of the API key; other owners get no access
    texts: tuple[str, ...]
    marks: Mapping[int, int]
    groups: tuple[Group, ...]
    slots: int  # number of groups in the snapshot
    snapshot: Snapshot

    def goes_on_from(self, other: Kept) -> bool:
        """Return whether this conversation extends the other, which is then redundant."""
        return (
            self.owner == other.owner
            and self.texts[: len(other.texts)] == other.texts
            and self.groups[: other.slots] == other.groups[: other.slots]
        )


class Conversations:
    """The most recently used conversations. Thread-safe; snapshots are read-only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[Kept] = []  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(array.nbytes for kept in self._kept for array in kept.snapshot.values())

    def recall(self, owner: str, texts: Sequence[str]) -> tuple[int, list[Group], dict[int, int]]:
        """Return the longest known prefix of these texts that ends with an answer.

        The result is its number of texts, its groups, and its marks.
        """
        best: tuple[int, list[Group], dict[int, int]] = 0, [], {}
        with self._lock:
            for kept in self._kept:
                if kept.owner != owner:
                    continue
                alike = _alike(kept.texts, texts)
                ends = {count: tokens for count, tokens in kept.marks.items() if best[0] < count <= alike}
                groups = _cut(kept.groups, ends[max(ends)]) if ends else None
                if groups is not None:
                    known = {count: tokens for count, tokens in kept.marks.items() if count <= alike}
                    best = max(ends), groups, known
        return best

    def nearest(self, owner: str, prompt: list[Group], merged: bool) -> tuple[Kept | None, int]:
        """Return the conversation whose snapshot shares the most slots with a prompt, and that number.

        The conversation becomes the most recently used.
        """
        with self._lock:
            best, slots = None, 0
            for kept in self._kept:
                if kept.owner == owner:
                    shared = match(kept.groups[: kept.slots], prompt, merged=merged).slots
                    if shared > slots:
                        best, slots = kept, shared
            if best is not None:
                self._kept.remove(best)
                self._kept.append(best)
        return best, slots

    def keep(self, new: Kept) -> None:
        if not self._limit:
            return
        with self._lock:
            others = [kept for kept in self._kept if not new.goes_on_from(kept)]
            self._kept = [*others, new][-self._limit :]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


def prompt_of(model: Model, request: AnswerRequest, conversations: Conversations, owner: str) -> ServedPrompt:
    """Return a request's prompt: that of `Model.stream`, but for earlier answers, which are as generated."""
    messages = request.messages_for(model.template.default_system)
    if messages is None:
        return ServedPrompt(
            model.inference.prompt_groups(request.prompt, raw=isinstance(request.prompt, str)), (), {}
        )
    transcript = read_messages(messages)
    texts = (transcript.system or "", *transcript.turns)
    model.inference.check_length(*texts)
    known, groups, marks = conversations.recall(owner, texts)
    if request.settings.decoding.exact:  # exact decoding uses no merged slots
        groups = [(token,) for group in groups for token in group]
    return ServedPrompt(model.inference.conversation(transcript, groups, max(0, known - 1)), texts, marks)


def keep(
    conversations: Conversations, engine: Engine, owner: str, prompt: ServedPrompt, answer: str | None
) -> None:
    """Keep the conversation after an answer.

    `answer` is None if its text does not match the generated groups, for example after a stop string.
    """
    groups = tuple(engine.sequence)
    tokens = sum(map(len, groups))
    texts, marks = prompt.texts, {count: end for count, end in prompt.marks.items() if end <= tokens}
    if texts and answer is not None:
        texts = (*texts, answer)
        marks[len(texts)] = tokens
    slots = engine.ledger.slots
    conversations.keep(Kept(owner, texts, marks, groups, slots, engine.backend.snapshot()))


def _alike(these: Sequence[str], those: Sequence[str]) -> int:
    """Return the length of the common prefix."""
    return len(list(takewhile(bool, map(eq, these, those))))


def _cut(groups: Sequence[Group], tokens: int) -> list[Group] | None:
    """Return the first groups, with exactly `tokens` tokens; None if no group ends there."""
    first = []
    for group in groups:
        if tokens <= 0:
            break
        first.append(group)
        tokens -= len(group)
    return first if tokens == 0 else None
