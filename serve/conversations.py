"""What was said, kept in memory with the cache that holds it, so that a conversation goes on where it was.

A client sends its whole conversation with every request. Its beginning is looked up twice:

    texts   an earlier answer, sent back as it was given, stands for the groups that it was said in
    slots   of the prompt made with those groups, what a cache holds need not be read again
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hamburger_edge.chat.messages import Transcript
from hamburger_edge.loop.backend import Snapshot
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.ledger import Group, match
from hamburger_edge.model import Model
from hamburger_edge.serve.requests import Asked, Conversation


class Prompt(NamedTuple):
    groups: list[Group]
    said: tuple[str, ...]  # the texts: system, then turns; nothing where the prompt is no conversation
    marks: Mapping[int, int]  # so many of these texts -> the tokens that they are, where an answer ended


@dataclass(frozen=True, eq=False)
class Kept:
    owner: str  # whose key it was: others never see it
    said: tuple[str, ...]
    marks: Mapping[int, int]
    groups: tuple[Group, ...]
    slots: int  # the snapshot holds this many of the groups
    snapshot: Snapshot

    def goes_on_from(self, other: Kept) -> bool:
        """Whether everything that the other is good for is in this one."""
        return (
            self.owner == other.owner
            and self.said[: len(other.said)] == other.said
            and self.groups[: other.slots] == other.groups[: other.slots]
        )


class Conversations:
    """The newest of them; safe to use from several threads. A snapshot is never written to."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Kept] = []  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(array.nbytes for kept in self._kept for array in kept.snapshot.values())

    def recall(self, owner: str, said: Sequence[str]) -> tuple[int, list[Group], dict[int, int]]:
        """How many of these texts were said before, up to the end of an answer, and in which groups."""
        best: tuple[int, list[Group], dict[int, int]] = 0, [], {}
        with self._lock:
            for kept in self._kept:
                if kept.owner != owner:
                    continue
                alike = _alike(kept.said, said)
                ends = {texts: tokens for texts, tokens in kept.marks.items() if best[0] < texts <= alike}
                groups = _cut(kept.groups, ends[max(ends)]) if ends else None
                if groups is not None:
                    known = {texts: tokens for texts, tokens in kept.marks.items() if texts <= alike}
                    best = max(ends), groups, known
        return best

    def nearest(self, owner: str, prompt: list[Group], merged: bool) -> tuple[Kept | None, int]:
        """Whose cache holds most of a prompt, and how many slots of it; it counts as used."""
        with self._lock:
            best, slots = None, 0
            for kept in self._kept:
                if kept.owner == owner:
                    found = match(kept.groups[: kept.slots], prompt, merged=merged).slots
                    if found > slots:
                        best, slots = kept, found
            if best is not None:
                self._kept.remove(best)
                self._kept.append(best)
        return best, slots

    def keep(self, new: Kept) -> None:
        if not self._most:
            return
        with self._lock:
            others = [kept for kept in self._kept if not new.goes_on_from(kept)]
            self._kept = [*others, new][-self._most :]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


def prompt_of(model: Model, asked: Asked, conversations: Conversations, owner: str) -> Prompt:
    """A request as groups: what the model said earlier as it said it, everything else token by token."""
    if not isinstance(asked.prompt, Conversation):
        if isinstance(asked.prompt, str):
            model._parts.check_length(asked.prompt)
        tokens = model.encode(asked.prompt) if isinstance(asked.prompt, str) else asked.prompt
        return Prompt(model._engine.check_groups((token,) for token in tokens), (), {})
    system, turns = _system(model, asked), asked.prompt.turns
    said = (system, *turns)
    model._parts.check_length(*said)
    texts, groups, marks = conversations.recall(owner, said)
    exact = asked.settings.decoding.exact
    if exact:  # plain decoding reads no merged slots
        groups = [(token,) for group in groups for token in group]
    groups = model._parts.conversation(Transcript(system, turns), groups, max(0, texts - 1))
    return Prompt(groups, said, marks)


def keep(
    conversations: Conversations, engine: Engine, owner: str, prompt: Prompt, answer: str | None
) -> None:
    """After an answer; None: its text does not stand for what was said, as after a stop string."""
    groups = tuple(engine.sequence)
    tokens = sum(map(len, groups))
    said, marks = prompt.said, {texts: end for texts, end in prompt.marks.items() if end <= tokens}
    if said and answer is not None:
        said = (*said, answer)
        marks[len(said)] = tokens
    slots = engine.ledger.slots
    conversations.keep(Kept(owner, said, marks, groups, slots, engine.backend.snapshot()))


def _system(model: Model, asked: Asked) -> str:
    """The system text, the model's own where none is given, with the functions that there are to call."""
    assert isinstance(asked.prompt, Conversation)
    system = asked.prompt.system
    text = (model.template.default_system or "") if system is None else system
    if asked.tools is not None:
        text = f"{text}\n\n{asked.tools.described()}".strip()
    return text


def _alike(these: Sequence[str], those: Sequence[str]) -> int:
    """How many texts they have in common, from the first on."""
    count = 0
    for mine, other in zip(these, those, strict=False):
        if mine != other:
            break
        count += 1
    return count


def _cut(groups: Sequence[Group], tokens: int) -> list[Group] | None:
    """The groups that hold so many tokens; None where one of them goes on beyond."""
    found = []
    for group in groups:
        if tokens <= 0:
            break
        found.append(group)
        tokens -= len(group)
    return found if tokens == 0 else None
