"""Clean English that the base writes itself, by shards.

A shard is one kind of text about many topics: its examples are the prefix that all rows share, a row's prompt
is a topic, and most rows are given the first words of their answer. Only tokens that clean text is made of
can be chosen. A shard's random numbers come from (seed, shard), so a killed run redoes one shard at most.

    prefix: what to write, examples | topic | first words | text to the third end of a line
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from hamburger_edge.chat.markup import Markup
from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.support.files import write_atomically
from hamburger_edge.tasks.proofreading.openers import openers_for
from hamburger_edge.tasks.proofreading.text_kinds import KINDS, Kind
from hamburger_edge.tasks.proofreading.topics import TOPICS

LINES = 3  # of an answer, as the examples have them
MOST_TOKENS = 72  # of an answer
MOST_PROMPT = 48  # of a topic, and markup
CONTEXT = 384  # of prefix, topic and answer
OPENED = 0.75  # share of answers whose first words are given
CHOICES = 64  # most probable tokens, among which is drawn
HELD_OUT = 10  # every so many topics, one is for the dev set only
CLEAN_TOKEN = re.compile(r" ?([A-Z]?[a-z]+|I|A|TV|OK|'(s|t|re|ve|ll|d|m)|[0-9])|[-:,.!?']| \$|\n")


@dataclass(frozen=True)
class Line:
    """A line of an answer as the base wrote it."""

    shard: int
    topic: int  # index into TOPICS
    text: str
    mean: float  # of its tokens' log-probabilities
    lowest: float

    @property
    def held_out(self) -> bool:
        return self.topic % HELD_OUT == HELD_OUT - 1


@dataclass
class Row:
    topic: int
    forced: list[int]  # still to be fed
    uniforms: np.ndarray
    ids: list[int] = field(default_factory=list)  # of the answer
    log_probabilities: list[float] = field(default_factory=list)  # as many; 0 where the token was given
    last: int = 0  # token to be fed next
    opening: int = 0  # tokens of the answer that are given
    done: bool = False


class SentenceWriter:
    def __init__(self, loaded: LoadedBase, *, seed: int, rows: int, temperature: float, least: float):
        """`least`: a token is chosen only if it is at least so probable, beside the most probable one."""
        if loaded.tokenizer is None or loaded.chat_template is None:
            raise ConfigError("the base needs a tokenizer and a chat template: take one that chats")
        self.tokenizer = Tokenizer.from_file(str(loaded.tokenizer))
        self.markup = Markup(**loaded.chat_template)
        self.seed, self.rows, self.temperature, self.least = seed, rows, temperature, least
        base = Base(loaded.config)
        base.load_state_dict(loaded.state)
        self.generator = BatchGenerator(base, CONTEXT)
        self.end, self.new_line = self._ids(self.markup.after_answer)[0], self._ids("\n")[0]
        size = base.config.vocab_size
        texts = {i: self.tokenizer.decode([i], skip_special_tokens=False) for i in range(size)}
        clean = [i for i, text in texts.items() if CLEAN_TOKEN.fullmatch(text)]
        self.allowed = torch.tensor(sorted({*clean, self.end}))  # [allowed]
        self.generator.head = self.generator.head[self.allowed]  # other tokens have no logits at all

    def write(self, shard: int, tick: Callable[[int], None] = lambda tokens: None) -> list[Line]:
        """Every line of one shard; `tick` is told the tokens of each step."""
        draw = np.random.Generator(np.random.Philox(key=[self.seed, shard]))
        kind = KINDS[shard % len(KINDS)]
        prefix = self._prefix(kind, draw)
        if (needed := len(prefix) + MOST_PROMPT + MOST_TOKENS) > self.generator.capacity:
            raise ConfigError(
                f"the base's tokenizer makes {len(prefix)} tokens of two examples: {needed} positions are "
                f"needed, and there are {self.generator.capacity}: take another base"
            )
        rows = [self._row(int(topic), kind, draw) for topic in draw.permutation(len(TOPICS))[: self.rows]]
        self.generator.set_prefix(prefix[:-1])
        self.generator.reset(len(rows))
        for index, row in enumerate(rows):
            self.generator.open_row(index)
            row.last = prefix[-1]
        busy = rows
        while busy and 8 * sum(not row.done for row in busy) > len(rows):  # the longest few stay unfinished
            self._step(busy)
            tick(len(busy))
            going = [index for index, row in enumerate(busy) if not row.done]
            if len(going) <= 0.75 * len(busy):
                self.generator.keep_rows(going)
                busy = [busy[index] for index in going]
        return [line for row in rows for line in self._lines(shard, row)]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _prefix(self, kind: Kind, draw: np.random.Generator) -> list[int]:
        markup = self.markup
        text = f"You write {kind.what}. You get a topic and write three of them, each on a line of its own."
        text = markup.prefix + markup.before_system + text + markup.after_system
        for index in draw.permutation(len(kind.examples))[:2]:
            topic, answer = kind.examples[index]
            text += markup.before_user + topic + markup.after_user
            text += markup.before_answer + answer + markup.after_answer
        return self._ids(text + markup.before_user)

    def _row(self, topic: int, kind: Kind, draw: np.random.Generator) -> Row:
        openers = openers_for(kind.what)
        opener = openers[int(draw.integers(len(openers)))] if draw.random() < OPENED else ""
        first = self._ids(opener)
        given = self._ids(TOPICS[topic] + self.markup.after_user + self.markup.before_answer)
        return Row(topic, [*given, *first], draw.random(MOST_TOKENS), opening=len(first))

    def _step(self, rows: list[Row]) -> None:
        logits = self.generator.step(torch.tensor([row.last for row in rows]))  # [B, allowed]
        picks, log_probabilities = self._choose(logits, rows)
        for row, pick, log_probability in zip(rows, picks, log_probabilities, strict=True):
            if row.done:
                continue
            if row.forced:
                row.last = row.forced.pop(0)
                if len(row.forced) < row.opening:
                    row.ids.append(row.last)
                    row.log_probabilities.append(0.0)
                continue
            row.last = pick
            if pick != self.end:
                row.ids.append(pick)
                row.log_probabilities.append(log_probability)
            ended = pick == self.end or row.ids.count(self.new_line) == LINES
            row.done = ended or len(row.ids) == MOST_TOKENS

    def _choose(self, logits: Tensor, rows: list[Row]) -> tuple[list[int], list[float]]:
        """A token for every row, and its log-probability at temperature 1."""
        values, index = logits.topk(CHOICES, dim=-1)  # [B, CHOICES]
        weights = ((values - values[:, :1]) / self.temperature).exp()
        weights = torch.where(weights < self.least, 0.0, weights).cumsum(-1)
        uniforms = torch.tensor([row.uniforms[min(len(row.ids), MOST_TOKENS - 1)] for row in rows])
        picks = torch.searchsorted(
            weights, (uniforms[:, None] * weights[:, -1:]).to(weights.dtype), right=True
        )
        picks = picks.clamp(max=CHOICES - 1)
        log_probabilities = values.gather(1, picks)[:, 0] - logits.logsumexp(-1)
        return self.allowed[index.gather(1, picks)[:, 0]].tolist(), log_probabilities.tolist()

    def _lines(self, shard: int, row: Row) -> Iterator[Line]:
        """The lines that came to their end."""
        start = 0
        ends = [i for i, token in enumerate(row.ids) if token == self.new_line]
        if row.last == self.end:
            ends.append(len(row.ids))
        for end in ends:
            ids, chosen = row.ids[start:end], row.log_probabilities[start:end]
            start = end + 1
            if text := self.tokenizer.decode(ids).strip():
                mean, lowest = round(float(np.mean(chosen)), 3), round(min(chosen), 3)
                yield Line(shard, row.topic, text, mean, lowest)


def shard_file(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.jsonl"


def save_lines(path: Path, lines: list[Line]) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text("".join(json.dumps(vars(line)) + "\n" for line in lines), encoding="utf-8")


def read_shard(path: Path) -> list[Line]:
    return [Line(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
