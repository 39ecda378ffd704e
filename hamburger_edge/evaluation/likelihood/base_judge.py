"""Generate answers with a model, then score their tokens with a judge, one token a slot.

    prompt --model, at some confidence--> groups of tokens
    prompt + tokens --judge, un-merged---> negative log-likelihood and greedy choice of the judge per token

The judge is a plain base: every group has one token. It needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hamburger_edge.evaluation.checks import Prompt
from hamburger_edge.loop.backend import Backend, Floats
from hamburger_edge.loop.ledger import Ledger
from hamburger_edge.model import Model
from hamburger_edge.support.repetition import four_gram_repetition

LOOP = 0.3  # an answer with this share of repeated 4-grams counts as looping
CHUNK = 128  # slots per forward of the judge: its logits take CHUNK x vocabulary floats

Ints = npt.NDArray[np.int64]


class JudgeReading(NamedTuple):
    """The judge's scores of the tokens of an answer."""

    nll: Floats  # [tokens] nats
    choices: Ints  # [tokens] the judge's greedy choice after the same text


@dataclass(frozen=True)
class Judge:
    """Scores tokens with a model's base, one token a slot as in plain decoding."""

    model: Model
    name: str = ""
    description: str = ""

    def read(self, prompt: Sequence[int], answer: Sequence[int]) -> JudgeReading:
        """Score the tokens of `answer`. `prompt` holds at least one token."""
        ids = [*prompt, *answer]
        targets = np.array(ids[1:], dtype=np.int64)  # [slots]: the token after each slot
        first = len(prompt) - 1  # the slot that predicts the answer's first token
        nll, choices = [], []
        with self._emptied() as backend:
            ledger = Ledger.of(backend.info)
            for start in range(0, len(targets), CHUNK):
                groups = [(token,) for token in ids[start : min(start + CHUNK, len(targets))]]
                positions = [ledger.append(group) for group in groups]
                rows = range(max(0, first - start), len(groups))
                readout = backend.macro(groups, positions, rows or [len(groups) - 1])
                if rows:
                    losses, best = _judged(readout.logits, targets[start + rows[0] : start + len(groups)])
                    nll.append(losses)
                    choices.append(best)
        return JudgeReading(np.concatenate(nll), np.concatenate(choices))

    @contextmanager
    def _emptied(self) -> Iterator[Backend]:
        """Yield the model's backend with an empty cache, and empty the cache afterwards."""
        with self.model.inference.turns.exclusive():
            backend = self.model.backend
            backend.truncate(0)
            try:
                yield backend
            finally:
                backend.truncate(0)


def _judged(logits: Floats, targets: Ints) -> tuple[Floats, Ints]:
    """Logits [rows, vocab] and target tokens [rows] -> nats [rows], greedy choices [rows]"""
    best = logits.argmax(1)
    rows = np.arange(len(targets))
    top = logits[rows, best]
    total = np.exp(logits - top[:, None]).sum(1, dtype=np.float64)
    return (np.log(total) + top - logits[rows, targets]).astype(np.float32), best.astype(np.int64)


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer with the judge's scores."""

    number: int  # of its prompt
    kind: str
    text: str
    groups: list[list[int]]
    nll: float  # nats, sum over its tokens
    agrees: list[bool]  # per token: it equals the judge's choice
    right: bool | None  # None: the prompt has no check

    @property
    def tokens(self) -> list[int]:
        return [token for group in self.groups for token in group]

    @property
    def repetition(self) -> float:
        return four_gram_repetition(self.tokens)

    @property
    def loops(self) -> bool:
        return self.repetition >= LOOP


def prompt_ids(model: Model, text: str) -> list[int]:
    return model.tokenizer.encode_parts(model.template.first_turn(text))


def ask(model: Model, judge: Judge, prompt: Prompt, number: int = 0, **options: Any) -> JudgedAnswer:
    """Answer a prompt and let the judge score the answer. `options` are those of `Model.generate`."""
    ids = prompt_ids(model, prompt.text)
    answer = model.generate(ids, reuse_prefix=False, **options)
    reading = judge.read(ids, answer.tokens)
    return JudgedAnswer(
        number=number,
        kind=prompt.kind,
        text=answer.text,
        groups=[list(group) for group in answer.groups],
        nll=float(reading.nll.sum(dtype=np.float64)),
        agrees=(reading.choices == np.array(answer.tokens)).tolist(),
        right=None if prompt.check is None else prompt.check.passes(answer.text),
    )
