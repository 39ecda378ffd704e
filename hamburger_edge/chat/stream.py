"""A streamed answer: the engine's steps with their text. The model is reserved for it until it ends."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from hamburger_edge.chat.tokenizer import TextStream
from hamburger_edge.errors import BusyError
from hamburger_edge.loop.answer_run import Steps
from hamburger_edge.loop.certainty import is_whole, negative_log_likelihood
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.modes.engine import Driver, Engine, Reuse
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.scores import TopToken
from hamburger_edge.loop.settings import Settings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import FinishReason, Step
from hamburger_edge.loop.turns import Flag, Turns

Answered = TypeVar("Answered")


class Chunk(NamedTuple):
    """One macro step. The concatenated texts of all chunks are the answer's text."""

    tokens: Group  # includes the end token; no tokens after a stop string
    text: str  # without end token and stop string; an unfinished character comes with a later chunk
    probabilities: tuple[float, ...]  # of each token; empty unless requested
    stop_probabilities: tuple[float, ...]  # of each token: the probability that the group ends with it
    finish_reason: (
        FinishReason | None
    )  # set on the last chunk; the last chunk of a cancelled answer may have no tokens
    # of each token: the base's likeliest tokens at its place; empty for a token that the base did not choose
    # or check (drafted and merged unchecked, or forced by a structure). Empty unless requested.
    top_probabilities: tuple[tuple[TopToken, ...], ...]
    certainty: float | None = None  # of the last chunk: as in the result
    unsure: bool = False


@dataclass(frozen=True)
class Result:
    """An answer with its statistics."""

    text: str  # of an unsure correction (of a model that edits its prompt): the prompt's own text
    tokens: list[int]  # includes the end token
    groups: list[list[int]]  # the same tokens, one list per macro step
    finish_reason: FinishReason
    stats: Stats
    complete: bool | None = None  # of a structured answer: whether its structure is complete
    probabilities: list[float] = field(default_factory=list)  # as in the chunks; empty unless requested
    top_probabilities: list[tuple[TopToken, ...]] = field(default_factory=list)
    # calibrated probability that the whole answer is right; 0 if it was cut or repeats itself at its end;
    # None: not measured for this model
    certainty: float | None = None
    # whether the certainty is below `min_certainty`, or a correction was cut or repeats itself at its end
    unsure: bool = False


@dataclass(frozen=True)
class AnswerInputs:
    """What an answer is made from."""

    prompt: Sequence[Group]
    settings: Settings
    sampler: Sampler
    text: TextStream | None  # None: chunks have no text
    reuse: Reuse = "tokens"
    owner: object = None  # the conversation that may use slots from its session
    resumable: bool = False  # keep the held-back text of a cut answer: it may be continued
    driver: Driver | None = None  # instead of the mode's, for measurements
    eos_ids: Sequence[int] | None = None  # tokens that end the answer; None: the model's


class Stream(Iterator[Chunk]):
    """An iterator over chunks, also with `async for`.

    The model is busy until the last chunk, `close`, or garbage collection.
    """

    def __init__(
        self,
        engine: Engine,
        turns: Turns,
        inputs: AnswerInputs,
        on_close: Callable[[Stream], None] | None = None,
    ) -> None:
        self.stats = Stats()
        self.finish_reason: FinishReason | None = None
        self.text = ""  # text so far; of an ended unsure correction: the prompt's own text
        self.reverted = False  # whether that is so
        self.groups: list[list[int]] = []  # tokens so far, one list per macro step
        self._probabilities: list[float] = []
        self._top: list[tuple[TopToken, ...]] = []
        # A signal handler may call `close` in the middle of any method here, in the same thread. The lock is
        # therefore reentrant, and the interrupted method ends the stream.
        self._stepping = threading.RLock()
        self.stepper: int | None = threading.get_ident()  # the thread that makes the current step
        self._closing = False
        self._open = False
        self._cancel = Flag()
        self._engine, self._turns = engine, turns
        self._sampler, self._output = inputs.sampler, inputs.text
        self._min_certainty = inputs.settings.min_certainty
        self._resumable = inputs.resumable
        self._on_close = on_close
        try:
            self._turn = turns.begin(self)
            try:
                self._steps = self._run(inputs)
                self._open = True
            except BaseException:
                self._turn.over = True
                turns.free_if_closing()
                raise
        finally:
            self.stepper = None
        if self._closing:
            self.close()

    def _run(self, inputs: AnswerInputs) -> Steps:
        return self._engine.run(
            inputs.prompt,
            inputs.settings.decoding,
            inputs.sampler,
            cancel=self._cancel,
            stats=self.stats,
            reuse=inputs.reuse,
            owner=inputs.owner,
            driver=inputs.driver,
            eos_ids=inputs.eos_ids,
        )

    @property
    def complete(self) -> bool | None:
        """Whether the structure of the answer so far is complete; None without a structure."""
        return self._sampler.constraint.complete

    @property
    def nll(self) -> float | None:
        """The negative log-likelihood of the answer so far; None if it was not recorded.

        It is recorded for a model with a measured certainty, and if probabilities are requested.
        """
        logprobs = self._sampler.logprobs
        return None if logprobs is None else negative_log_likelihood(logprobs)

    @property
    def certainty(self) -> float | None:
        """The certainty of the ended answer; None before its end, or if this model's was not measured."""
        fit, nll = self._engine.info.certainty, self.nll
        if fit is None or nll is None or self.finish_reason is None:
            return None
        return fit.of(nll) if self._is_whole else 0.0

    @property
    def unsure(self) -> bool:
        """Whether the ended answer is not shown to have the certainty `min_certainty`.

        A correction of the prompt is also unsure if it was cut or repeats itself at its end.
        """
        if self.finish_reason is None:
            return False
        if self._sampler.constraint.fallback is not None and not self._is_whole:
            return True
        if self._min_certainty is None:
            return False
        certainty = self.certainty
        return certainty is None or certainty < self._min_certainty

    @property
    def _is_whole(self) -> bool:
        return is_whole(self._sampler.answer, self.finish_reason)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Chunk:
        here = threading.get_ident()
        if self.stepper == here or not self._stepping.acquire(blocking=False):
            if self.stepper == here or not self._closing:
                raise BusyError("another thread is reading this answer: read it from one thread")
            self._stepping.acquire()
        try:
            self.stepper = here
            if not self._open:
                raise StopIteration
            begin = perf_counter()
            chunk = self._advance()
            self._count(perf_counter() - begin)
            if chunk.finish_reason:
                self._finish()
            return chunk
        except BaseException:
            self._finish()
            raise
        finally:
            self.stepper = None
            if self._closing:
                self._finish()
            self._stepping.release()

    async def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        """Make each step in a thread. Cancelling the task cancels the answer."""
        try:
            while (chunk := await in_thread(next, self, None)) is not None:
                yield chunk
        finally:
            self.cancel()
            await in_thread(self.close)

    def result(self) -> Result:
        """Read the answer to its end and return it with its statistics."""
        with self:
            for _ in self:
                pass
        tokens = [token for group in self.groups for token in group]
        finish = self.finish_reason or "cancelled"
        shown = self._probabilities, self._top, self.certainty, self.unsure
        return Result(self.text, tokens, self.groups, finish, self.stats, self.complete, *shown)

    def cancel(self) -> None:
        """End the answer after the current step. Any thread may call this."""
        self._cancel.set()

    def close(self) -> None:
        """Free the model, after the current step of another thread.

        If a signal handler calls `close` during a step of the same thread, that step is the last one.
        """
        self._closing = True
        self._cancel.set()
        if self.stepper == threading.get_ident():
            return
        with self._stepping:
            self._finish()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()

    def _advance(self) -> Chunk:
        step = next(self._steps, Step((), (), (), "cancelled"))
        tokens, probabilities, stops, finish, _forced, _groups, top = step
        text, stopped = self._output.push(tokens) if self._output else ("", None)
        if self._closing and finish is None:
            finish = "cancelled"
        if stopped is not None:
            finish = "stop"
            dropped = len(tokens) - stopped
            if dropped:
                self._engine.drop(dropped)
                self._sampler.rewind(dropped)
                self.stats.tokens -= dropped
                tokens, probabilities, stops = tokens[:stopped], probabilities[:stopped], stops[:stopped]
                top = top[:stopped]
        elif self._output and (finish in ("eos", "stop", "context") or (finish and not self._resumable)):
            text += self._output.flush()
        self.finish_reason = finish
        self.text += text
        if tokens:
            self.groups.append(list(tokens))
        self._probabilities += probabilities
        self._top += top
        return Chunk(tokens, text, probabilities, stops, finish, top, self.certainty, self.unsure)

    def _revert(self) -> None:
        """Replace the text of an unsure correction. A conversation keeps it, since it may be continued."""
        original = self._sampler.constraint.fallback
        if original is not None and self.unsure and not self._resumable:
            self.text, self.reverted = original, True

    def _count(self, seconds: float) -> None:
        stats, ledger = self.stats, self._engine.ledger
        stats.first_tokens = min(stats.first_tokens, stats.tokens)  # tokens after a stop string were dropped
        if stats.decode_s == 0 and stats.first_tokens == stats.tokens:
            stats.ttft_s += seconds
        else:
            stats.decode_s += seconds
        stats.slots, stats.kv_bytes, stats.kv_bytes_uncompressed = (
            ledger.slots,
            ledger.bytes,
            ledger.bytes_uncompressed,
        )

    def _finish(self) -> None:
        if self._open:
            self._open = False
            self.finish_reason = self.finish_reason or "cancelled"
            try:
                self._steps.close()
                self._revert()
                if self._on_close is not None:
                    self._on_close(self)
            finally:
                self._turn.over = True
                self._turns.free_if_closing()


async def in_thread(call: Callable[..., Answered], *words: Any, **named: Any) -> Answered:
    """Run the call in a thread. It runs to its end even if the task is cancelled."""
    import asyncio  # here, because applications without an event loop do not need it

    return await asyncio.shield(asyncio.to_thread(call, *words, **named))
