"""Conversations of the base with itself: it invents a user's question, then answers it.

    conversation: prefix | user turn (sampled, or given) | answer | user turn (sampled) | answer ...

Many run together, one token each per step, each by its script; a finished one makes room for the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.models.distillation.logits import likeliest, uncertainty
from hamburger_edge.support.repetition import four_gram_repetition

TEMPLATE, QUESTION, ANSWER = 0, 1, 2  # roles: given tokens, sampled user text, learned text

LOOP_CHECK = 32  # tokens of an answer between checks for loops
# a looping answer is cut back in steps of this many tokens, to at least this many
CLEAN_STEP, MIN_BEGINNING = 16, 32

# name -> (share of conversations, temperature, nats taken off tokens of the answer's last 64)
ANSWER_STYLES = {
    "greedy": (0.40, 0.0, 0.0),
    "greedy-penalised": (0.20, 0.0, 0.6),  # continues where greedy decoding would loop
    "sampled": (0.40, 0.7, 0.0),
}


@dataclass(frozen=True)
class DistillSettings:
    tokens: int  # answer tokens to collect
    seed: int = 0
    rows: int = 128  # conversations generated together
    shard_conversations: int = 1024
    top_k: int = 16  # log-probabilities kept per token
    prompt_temperature: float = 0.9
    max_question: int = 160
    min_question: int = 4
    max_answer: int = 320
    multi_turn: float = 0.15  # share of conversations with a second question
    given: float = 0.4  # share that begins with a given prompt
    context: int = 640  # most tokens of a conversation
    max_repetition: float = 0.3  # four-gram repetition of a looping answer
    kept_repetition: float = 0.1  # a looping answer is cut back to this; 0: dropped


@dataclass(frozen=True)
class TurnTokens:
    """The chat template, cut where the base continues."""

    prefix: tuple[int, ...]  # up to where the user's text begins
    user_to_answer: tuple[int, ...]  # after the user's end token, up to where the answer begins
    answer_to_user: tuple[int, ...]  # after the answer's end token, up to where the user's text begins
    end: int  # the token that ends either text


@dataclass
class Conversation:
    """One row's script and its result."""

    number: int
    uniforms: np.ndarray  # one random number per chosen token
    given: tuple[int, ...] | None
    turns: int
    temperature: float
    penalty: float
    question: tuple[int, ...] = ()  # everything before the answer, all given
    ids: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)  # template or prompt tokens still to be fed
    role: int = QUESTION  # of the text being chosen
    text_start: int = 0  # index where that text began
    entropy: list[float] = field(default_factory=list)
    top: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    made_up: list[bytes] = field(default_factory=list)  # hashes of the base's invented questions
    rejected: str | None = None
    done: bool = False

    @property
    def answer_tokens(self) -> int:
        return self.roles.count(ANSWER)

    def add(self, token: int, role: int, entropy: float, top: tuple[np.ndarray, np.ndarray]) -> None:
        self.ids.append(token)
        self.roles.append(role)
        self.entropy.append(entropy)
        self.top.append(top)

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        del self.ids[length:], self.roles[length:], self.entropy[length:], self.top[length:]


class Given:
    """Prompts for the beginning of conversations: if its draw selects it, conversation `number` begins with
    prompt `number` modulo their count."""

    def __init__(self, prompts: Sequence[Sequence[int]], settings: DistillSettings):
        self.prompts, self.settings = [tuple(map(int, prompt)) for prompt in prompts], settings
        self.alike: dict[tuple[int, ...], list[int]] = {}  # one prompt may occur several times
        for index, prompt in enumerate(self.prompts):
            self.alike.setdefault(prompt, []).append(index)

    def at(self, number: int, drawn: float) -> tuple[int, ...] | None:
        """Return the prompt of conversation `number`; `drawn` is its number from `draws`."""
        if not self.prompts or drawn >= self.settings.given:
            return None
        return self.prompts[number % len(self.prompts)]

    def asked_before(self, number: int) -> bool:
        """Whether an earlier conversation begins with the same prompt, by (seed, number) alone."""
        alike = self.alike[self.prompts[number % len(self.prompts)]]
        for start in range(number - number % len(self.prompts), -1, -len(self.prompts)):
            for earlier in (start + index for index in alike if start + index < number):
                if draws(earlier, self.settings)[1][2] < self.settings.given:
                    return True
        return False


def draws(number: int, settings: DistillSettings) -> tuple[np.random.Generator, np.ndarray]:
    """Return a conversation's random generator and its first draws: style, turns, given."""
    draw = np.random.Generator(np.random.Philox(key=[settings.seed, number]))
    return draw, draw.random(3)


def plan(number: int, settings: DistillSettings, given: Given) -> Conversation:
    """Plan conversation `number` of a run, by (seed, number) alone."""
    draw, (choice, multi, begins) = draws(number, settings)
    for share, temperature, penalty in ANSWER_STYLES.values():  # noqa: B007 (read below)
        if choice < share:
            break
        choice -= share
    prompt = given.at(number, begins)
    # one greedy answer per prompt is enough
    again = prompt is not None and temperature == 0 and given.asked_before(number)
    return Conversation(
        number=number,
        uniforms=draw.random(4 * (settings.max_question + settings.max_answer)),
        given=prompt,
        turns=2 if multi < settings.multi_turn else 1,
        temperature=temperature,
        penalty=penalty,
        rejected="duplicate question" if again else None,
    )


class ShardRun:
    """Generate one shard's conversations."""

    def __init__(self, generator: BatchGenerator, settings: DistillSettings, turns: TurnTokens):
        self.generator, self.settings, self.turns = generator, settings, turns
        self.top = max(32, settings.top_k)

    def run(
        self, conversations: list[Conversation], seen: set[bytes], tick: Callable[[int], None]
    ) -> list[Conversation]:
        """Yield the conversations to keep; questions in `seen` are not invented again, and new ones are
        added."""
        waiting = [c for c in reversed(conversations) if c.rejected is None]
        for _ in range(len(conversations) - len(waiting)):
            tick(0)
        rows = [waiting.pop() for _ in range(min(self.settings.rows, len(waiting)))]
        started = len(rows)
        self.generator.reset(started)
        for row, conversation in enumerate(rows):
            self._open(row, conversation)
        finished: dict[int, Conversation] = {}
        while not all(c.done for c in rows):
            tokens = torch.tensor([c.ids[-1] for c in rows])
            self._choose(rows, self.generator.step(tokens), seen)
            for row, conversation in enumerate(rows):
                if conversation.done and conversation.number not in finished:
                    finished[conversation.number] = conversation
                    tick(conversation.answer_tokens if conversation.rejected is None else 0)
                    if waiting:
                        rows[row] = waiting.pop()
                        self._open(row, rows[row])
            busy = [row for row, conversation in enumerate(rows) if not conversation.done]
            if not waiting and len(busy) < started // 8:
                break  # a few long answers would delay everything: they stay unfinished
            if 0 < len(busy) <= 0.75 * len(rows):  # copying the cache costs more than a few idle rows
                self.generator.keep_rows(busy)
                rows = [rows[row] for row in busy]
        for c in rows:
            if not c.done and c.role == ANSWER and not c.forced:
                finished[c.number] = c
        return [c for _, c in sorted(finished.items()) if c.rejected is None]

    def _open(self, row: int, c: Conversation) -> None:
        self.generator.open_row(row)
        if c.question:
            first, *c.forced = c.question
            self._append(c, [first], TEMPLATE)
            c.role, c.text_start = ANSWER, len(c.question)
            return
        # the cache holds the prefix without its last token, which the first step feeds
        self._append(c, list(self.turns.prefix), TEMPLATE)
        c.text_start = len(c.ids)
        if c.given is not None:
            c.forced = [*c.given, self.turns.end]

    def _append(self, c: Conversation, ids: list[int], role: int) -> None:
        empty = np.zeros(self.settings.top_k, dtype=np.float32)
        nothing = empty.astype(np.int32), empty
        for token in ids:
            c.add(token, role, 0.0, nothing)

    def _choose(self, rows: list[Conversation], logits: Tensor, seen: set[bytes]) -> None:
        """Choose every row's next token: forced, or by the row's style."""
        normaliser, entropy = uncertainty(logits)
        values, ids = likeliest(logits, self.top)
        log_probabilities = (values - normaliser[:, None]).cpu().numpy()
        entropies, top_ids = entropy.cpu().numpy(), ids.cpu().numpy().astype(np.int32)
        for row, c in enumerate(rows):
            if c.done:
                continue
            if c.forced:
                token, role = c.forced.pop(0), TEMPLATE
            else:
                token, role = self._sample(c, log_probabilities[row], top_ids[row]), c.role
            k = self.settings.top_k
            c.add(token, role, float(entropies[row]), (top_ids[row, :k], log_probabilities[row, :k]))
            self._advance(c, seen)

    def _sample(self, c: Conversation, log_p: np.ndarray, ids: np.ndarray) -> int:
        temperature = self.settings.prompt_temperature if c.role == QUESTION else c.temperature
        if c.role == ANSWER and c.penalty:
            log_p = log_p - c.penalty * np.isin(ids, c.ids[c.text_start :][-64:])
        if temperature == 0.0:
            return int(ids[log_p.argmax()])
        weights = np.exp((log_p - log_p.max()) / temperature).cumsum()
        pick = np.searchsorted(weights, c.uniforms[len(c.ids) % len(c.uniforms)] * weights[-1], side="right")
        return int(ids[min(pick, len(ids) - 1)])

    def _advance(self, c: Conversation, seen: set[bytes]) -> None:
        """Continue the script after the newest token."""
        if c.forced:
            return
        text = c.ids[c.text_start :]
        if c.role == QUESTION:
            self._advance_question(c, text, seen)
        elif text:
            self._advance_answer(c, text)
        c.done = c.done or c.rejected is not None

    def _advance_question(self, c: Conversation, text: list[int], seen: set[bytes]) -> None:
        """Begin the answer if the question has ended; reject a question that should not be learned."""
        invented, ended = c.given is None, c.ids[-1] == self.turns.end
        key = hashlib.sha256(np.asarray(text, dtype=np.int32).tobytes()).digest()[:12]
        if self._is_full(c) or (invented and not ended and len(text) >= self.settings.max_question):
            c.rejected = "question too long"
        elif not ended:
            return
        elif invented and len(text) <= self.settings.min_question:
            c.rejected = "question too short"
        elif invented and key in seen:
            c.rejected = "duplicate question"
        else:
            seen.add(key)
            if invented:
                c.made_up.append(key)
            self._begin(c, self.turns.user_to_answer, ANSWER)

    def _advance_answer(self, c: Conversation, text: list[int]) -> None:
        """End a looping or complete answer, or begin the next question after it."""
        ended, full = c.ids[-1] == self.turns.end, self._is_full(c)
        over = ended or full or len(text) >= self.settings.max_answer
        checked = over or len(text) % LOOP_CHECK == 0
        if checked and four_gram_repetition(text) > self.settings.max_repetition:
            self._cut_back(c)
        elif ended and not full and c.turns > 1:
            c.turns, c.given = c.turns - 1, None
            self._begin(c, self.turns.answer_to_user, QUESTION)
        elif over:
            c.done = True

    def _is_full(self, c: Conversation) -> bool:
        return len(c.ids) >= self.generator.capacity

    def _cut_back(self, c: Conversation) -> None:
        """End the conversation before its answer began to loop, if enough tokens remain."""
        for length in range(len(c.ids) - c.text_start - CLEAN_STEP, 0, -CLEAN_STEP):
            beginning = c.ids[c.text_start : c.text_start + length]
            if length >= MIN_BEGINNING and four_gram_repetition(beginning) < self.settings.kept_repetition:
                c.cut(c.text_start + length)
                c.done = True
                return
        c.rejected = "repetition"

    def _begin(self, c: Conversation, template: tuple[int, ...], role: int) -> None:
        c.forced = list(template)
        c.role = role
        c.text_start = len(c.ids) + len(template)
