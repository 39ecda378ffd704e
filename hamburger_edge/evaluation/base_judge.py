"""Generate answers with the engine, then score their tokens with a judge, one token a slot.

    prompt --engine, at some confidence--> groups of tokens, and the micro decoder's proposals
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
from hamburger_edge.loop.backend import Backend, Floats, MicroReadout
from hamburger_edge.loop.ledger import Ledger
from hamburger_edge.loop.step import FinishReason
from hamburger_edge.model import Model
from hamburger_edge.support.repetition import four_gram_repetition

LOOP = 0.3  # an answer with this share of repeated 4-grams counts as looping
CHUNK = 128  # slots per forward of the judge: its logits take CHUNK x vocabulary floats

Ints = npt.NDArray[np.int64]


class Reading(NamedTuple):
    """The judge's scores of the tokens of an answer."""

    nll: Floats  # [tokens] nats
    choices: Ints  # [tokens] the judge's greedy choice after the same text


@dataclass(frozen=True)
class Judge:
    """Scores tokens with a model's base, one token a slot as in plain decoding."""

    model: Model
    name: str = ""
    description: str = ""

    def read(self, prompt: Sequence[int], answer: Sequence[int]) -> Reading:
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
        return Reading(np.concatenate(nll), np.concatenate(choices))

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


class _Watched:
    """A backend that records the proposals of its micro steps."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.calls: list[tuple[int, float]] = []  # per micro step: likeliest token and p_stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def micro(self, token: int) -> MicroReadout:
        readout = self._backend.micro(token)
        index = int(readout.logits.argmax())
        draft_vocab = self._backend.info.draft_vocab
        self.calls.append((index if draft_vocab is None else int(draft_vocab[index]), float(readout.p_stop)))
        return readout


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer with the judge's scores."""

    number: int  # of its prompt
    kind: str
    text: str
    groups: list[list[int]]
    finish_reason: FinishReason
    prompt_tokens: int
    slots: int  # KV entries of the answer, including the newest group's
    nll: float  # nats, sum over its tokens
    agrees: list[bool]  # per token: it equals the judge's choice
    # per token that the micro decoder proposed, also if the stop head refused it:
    sure: list[float]  # the stop head's probability that the base would choose the same token
    held: list[bool]  # it equals the judge's choice
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
    """Answer a prompt and let the judge score the answer. `options` are those of `Model.stream`."""
    ids = prompt_ids(model, prompt.text)
    after = model.info.stop_rule == "after"
    groups: list[list[int]] = []
    proposals: list[tuple[int, int, float]] = []  # index in the answer, token, `sure`
    said = 0
    with (
        _watching(model) as watched,
        model.stream(ids, reuse_prefix=False, **options) as stream,
    ):
        for chunk in stream:
            for i, (token, p_stop) in enumerate(watched.calls):
                # with rule "before" the stop probability of a token comes from the step before it
                stop = p_stop if after else chunk.stop_probabilities[i]
                proposals.append((said + 1 + i, token, 1 - stop))
            watched.calls.clear()
            if chunk.tokens:
                groups.append(list(chunk.tokens))
                said += len(chunk.tokens)
        slots = model.inference.engine.ledger.slots + len(model.inference.engine.unread) - len(ids)
    tokens = [token for group in groups for token in group]
    reading = judge.read(ids, tokens)
    proposals = [each for each in proposals if each[0] < len(tokens)]  # the judge has no choice after the end
    return JudgedAnswer(
        number=number,
        kind=prompt.kind,
        text=stream.text,
        groups=groups,
        finish_reason=stream.finish_reason or "cancelled",
        prompt_tokens=len(ids),
        slots=slots,
        nll=float(reading.nll.sum(dtype=np.float64)),
        agrees=(reading.choices == np.array(tokens)).tolist(),
        sure=[sure for _, _, sure in proposals],
        held=[bool(reading.choices[at] == token) for at, token, _ in proposals],
        right=None if prompt.check is None else prompt.check.passes(stream.text),
    )


@contextmanager
def _watching(model: Model) -> Iterator[_Watched]:
    engine = model.inference.engine
    watched = _Watched(engine.backend)
    engine.backend = watched
    try:
        yield watched
    finally:
        engine.backend = watched._backend
