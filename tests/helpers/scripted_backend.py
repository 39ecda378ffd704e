"""A backend without a model: a toy language whose next token depends only on the tokens so far.

It is strict about the protocol (positions, rows, order of micro calls) and counts its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hamburger_edge.errors import SessionError
from hamburger_edge.loop.backend import Floats, MicroReadout, ModelInfo, Readout, Snapshot
from hamburger_edge.loop.dial import Recommended

EOS = 2
Groups = list[tuple[int, ...]]


@contextmanager
def failing(
    backend: ScriptedBackend, slots: int = 0, left: Callable[[Groups], Groups] = list
) -> Iterator[None]:
    """Calls that meet so many slots fail, and leave others in their place."""

    def fail(it: ScriptedBackend) -> None:
        if it.slots >= slots:
            it.context = left(it.context)
            raise RuntimeError("out of memory")

    backend.before_macro = fail
    with pytest.raises(RuntimeError, match="out of memory"):
        yield
    backend.before_macro = None


def info(**changes: Any) -> ModelInfo:
    fields = {
        "backend": "scripted",
        "provider": "cpu",
        "precision": "fp32",
        "vocab_size": 40,
        "hidden_size": 8,
        "max_group_tokens": 4,
        "position_rule": "token",
        "stop_rule": "before",
        "cache_slots": 512,
        "context_length": 512,
        "eos_ids": (EOS,),
        "draft_vocab": None,
        "kv_bytes_per_slot": 100,
        "fingerprint": "toy",
        "recommended": Recommended.of("merge"),
    }
    return ModelInfo(**{**fields, **changes})


@dataclass
class ScriptedBackend:
    info: ModelInfo = field(default_factory=info)
    agreement: float = 1.0  # how often a micro step wants what the base would say
    eos_rate: float = 0.05
    p_stop: float | None = None  # None: any chance, depending on the text
    context: list[tuple[int, ...]] = field(default_factory=list)  # one group a slot
    macro_calls: list[int] = field(default_factory=list)  # groups of each call
    micro_calls: int = 0
    closed: bool = False
    before_macro: Any = None  # called first, to interfere from a test
    _draft: list[int] | None = None

    @property
    def slots(self) -> int:
        return len(self.context)

    def macro(self, groups: Any, positions: Any, rows: Any) -> Readout:
        assert not self.closed
        if self.before_macro:
            self.before_macro(self)
        assert groups, "a macro step appends at least one slot"
        assert all(0 <= row < len(groups) for row in rows)
        gaps = list(positions) != [*range(self.slots, self.slots + len(groups))]
        assert self.slots or not gaps or len(groups) < self.info.cache_slots, "gaps, and no slot is left free"
        self.macro_calls.append(len(groups))
        contexts = []
        for group, position in zip(groups, positions, strict=True):
            assert 1 <= len(group) <= self.info.max_group_tokens
            before = len(self.text)
            expected = self.slots if self.info.position_rule == "slot" else before + len(group) - 1
            assert position == expected < self.info.context_length
            assert self.slots < self.info.cache_slots
            self.context.append(tuple(group))
            contexts.append(self.text)
        self._draft = None
        chosen = [contexts[row] for row in rows]
        return Readout(
            np.stack([self.scores(text) for text in chosen]),
            np.array([self.stop(text) for text in chosen], dtype=np.float32),
            chosen,
        )

    def micro_begin(self, features: Any) -> None:
        self._draft = list(features)

    def micro(self, token: int) -> MicroReadout:
        assert self._draft is not None, "micro_begin comes first"
        self.micro_calls += 1
        self._draft.append(token)
        text = tuple(self._draft)
        agrees = np.random.default_rng([3, *text]).random() < self.agreement
        scores = self.scores(text) if agrees else self.scores(text, salt=4)
        if self.info.draft_vocab is not None:
            scores = scores[self.info.draft_vocab]
        return MicroReadout(scores, self.stop(text))

    def truncate(self, slots: int) -> None:
        assert 0 <= slots <= self.slots
        del self.context[slots:]
        self._draft = None

    def snapshot(self) -> Snapshot:
        sizes = np.array([len(group) for group in self.context], dtype=np.int32)
        return {"sizes": sizes, "tokens": np.array(self.text, dtype=np.int32)}

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        sizes, tokens = snapshot["sizes"], snapshot["tokens"].tolist()
        if sizes.shape != (slots,):
            raise SessionError(f"{sizes.shape} sizes of {slots} slots")
        ends = np.cumsum(sizes)
        self.context = [tuple(tokens[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
        self._draft = None

    def close(self) -> None:
        self.closed = True

    @property
    def text(self) -> tuple[int, ...]:
        return tuple(token for group in self.context for token in group)

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Floats:
        random = np.random.default_rng([salt, *text])
        scores = random.normal(size=self.info.vocab_size).astype(np.float32)
        scores[EOS] = 9.0 if random.random() < self.eos_rate else -9.0
        return scores

    def stop(self, text: tuple[int, ...]) -> float:
        return float(np.random.default_rng([1, *text]).random()) if self.p_stop is None else self.p_stop

    def say(self, script: list[int], prompt: int) -> None:
        """From now on these tokens follow a prompt of so many, whatever it is, and then the end."""

        def scores(text: tuple[int, ...], salt: int = 0) -> Floats:
            scores = np.full(self.info.vocab_size, -20.0, np.float32)
            place = len(text) - prompt
            scores[script[place] if place < len(script) else EOS] = 20.0
            return scores

        self.scores = scores  # type: ignore[method-assign]

    def plain(self, prompt: list[int], max_tokens: int) -> list[int]:
        """The obvious simulation: greedy, one token after the other, no groups."""
        said: list[int] = []
        while len(said) < max_tokens and EOS not in said:
            said.append(int(self.scores((*prompt, *said)).argmax()))
        return said
