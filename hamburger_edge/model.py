"""A loaded model: what an application holds on to."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Unpack

from hamburger_edge.chat import session
from hamburger_edge.chat.conversation import Chat, ChatTemplate
from hamburger_edge.chat.stream import Stream
from hamburger_edge.chat.tokenizer import TextStream, Tokenizer
from hamburger_edge.errors import BusyError, InputError
from hamburger_edge.loop.backend import Backend, ModelInfo
from hamburger_edge.loop.engine import Engine, FinishReason
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.support.values import check_text

_CLOSED = "this model is closed: load it again"


@dataclass(frozen=True)
class Result:
    text: str
    tokens: list[int]  # the end token included
    groups: list[list[int]]  # the same tokens, by macro step
    finish_reason: FinishReason
    stats: Stats


@dataclass(eq=False)
class Use:
    """A turn at a model, which is busy until its newest one is over.

    To begin and to end one are plain assignments: Ctrl-C comes before or after, and leaves no model that is
    busy with nobody to end it.
    """

    thread: int  # that began it
    stream: weakref.ref[Stream] | None = None  # the answer that it is for, if it is for one
    over: bool = False


class Model:
    """One sequence at a time: while an answer is being made, other uses raise BusyError.

    `cancel`, `encode`, `decode` and `close` may be called from any thread at any time.
    """

    def __init__(self, backend: Backend, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.template = template
        self.engine = Engine(backend)
        self._use = Use(0, over=True)  # the newest
        self._door = threading.RLock()  # to begin a use, and to free everything, one thread at a time
        self._closing = self._closed = False

    @property
    def info(self) -> ModelInfo:
        return self.engine.info

    def encode(self, text: str | bytes) -> list[int]:
        """A whole text as written: special tokens in it count."""
        return self.tokenizer.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def stream(
        self,
        prompt: str | bytes | Sequence[int],
        *,
        raw: bool = False,
        system: str | None = None,
        reuse_prefix: bool = True,
        **options: Unpack[Options],
    ) -> Stream:
        """Answer a prompt, one record for each macro step.

        Text becomes a user turn of the model's chat template, after `system` if given; with `raw`, and for
        token ids, it is taken as it is. What the cache already holds of the prompt is not computed again;
        unless the answer has to equal plain decoding, that includes earlier answers in their merged slots.
        """
        settings = Settings.of({"probabilities": True, **options})
        groups = self._prompt(prompt, raw, system)
        sampler = self.sampler(settings)
        sampler.begin(token for group in groups for token in group)
        text = self.text_stream(settings)
        return Stream(self, groups, settings, sampler, text, reuse="tokens" if reuse_prefix else "none")

    def generate(
        self,
        prompt: str | bytes | Sequence[int],
        *,
        raw: bool = False,
        system: str | None = None,
        reuse_prefix: bool = True,
        **options: Unpack[Options],
    ) -> Result:
        """Like `stream`, all at once."""
        plain: Options = {"probabilities": False, **options}
        with self.stream(prompt, raw=raw, system=system, reuse_prefix=reuse_prefix, **plain) as stream:
            records = list(stream)
        groups = [list(record.tokens) for record in records if record.tokens]
        tokens = [token for group in groups for token in group]
        return Result(stream.text, tokens, groups, stream.finish_reason or "cancelled", stream.stats)

    def chat(self, system: str | None = None, **options: Unpack[Options]) -> Chat:
        """A conversation; an empty system text leaves out the template's own."""
        return Chat(self, system, Settings.of(options))

    def resume(self, path: str | PathLike[str]) -> Chat:
        """A conversation from where `Chat.save` left it."""
        with self.exclusive():
            return session.resume(self, path)

    def cancel(self) -> None:
        """End the answer that is being made, if any, after its current step."""
        if (stream := self._active()) is not None:
            stream.cancel()

    def _active(self) -> Stream | None:
        use = self._use
        return None if use.over or use.stream is None else use.stream()

    def close(self) -> None:
        """Free everything, ending an answer first. Closing twice is harmless. Called by a signal's handler in
        the middle of a use by the same thread, it takes effect when that use ends."""
        self._closing = True
        stream, here = self._active(), threading.get_ident()
        if stream is not None:
            stream.close()
        while not self._use.over:
            if here in (self._use.thread, stream.stepper if stream else None):
                return
            time.sleep(0.01)  # nobody calls: who ends a use may be interrupted before doing so
        self.free_if_closing()

    def free_if_closing(self) -> None:
        """To be called at the end of every use."""
        if self._closing:
            with self._door:
                if self._use.over and not self._closed:
                    self._closed = True
                    self.backend.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sampler(self, settings: Settings) -> Sampler:
        info = self.info
        asked = settings.decoding.probabilities
        return Sampler(settings.sampling, info.vocab_size, info.shortlist, probabilities=asked)

    def text_stream(self, settings: Settings) -> TextStream:
        return TextStream(self.tokenizer, settings.stop, self.info.eos_ids)

    def acquire(self, stream: Stream | None = None) -> Use:
        """Make the model busy, until the use is over."""
        use = Use(threading.get_ident(), None if stream is None else weakref.ref(stream))
        try:
            with self._door:
                if not self._use.over:
                    raise BusyError(
                        "this model is in the middle of an answer: read it to the end, close it or cancel it "
                        "first, or load a second model"
                    )
                self._use = use
            if self._closing:  # `close` may not have seen this use
                raise InputError(_CLOSED)
        except BaseException:
            use.over = True
            self.free_if_closing()
            raise
        return use

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        use = self.acquire()
        try:
            yield
        finally:
            use.over = True
            self.free_if_closing()

    def _prompt(self, prompt: str | bytes | Sequence[int], raw: bool, system: str | None) -> list[Group]:
        if isinstance(prompt, bytearray | memoryview):
            raise InputError("the prompt must be text or token ids: make bytes of it first")
        if system is not None and (raw or not isinstance(prompt, str | bytes)):
            raise InputError("raw text and token ids are taken as they are: leave system out")
        if not isinstance(prompt, str | bytes):
            try:
                return self.engine.check_groups((token,) for token in prompt)
            except TypeError as error:
                raise InputError(f"the prompt must be text or token ids ({error})") from error
        text = check_text(prompt)
        if not text:
            raise InputError("the prompt is empty: say something")
        parts = self.template.first_turn(text, system)
        ids = self.encode(text) if raw else self.tokenizer.encode_parts(parts)
        return self.engine.check_groups((token,) for token in ids)
