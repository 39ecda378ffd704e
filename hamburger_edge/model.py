"""A loaded model: what an application holds on to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Unpack

from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.parts import Parts
from hamburger_edge.chat.stream import Stream
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Backend, ModelInfo
from hamburger_edge.loop.engine import Engine, Reuse
from hamburger_edge.loop.grammar import Grammars
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import FinishReason
from hamburger_edge.loop.turns import Turns
from hamburger_edge.support.values import check_text, flag


@dataclass(frozen=True)
class Result:
    text: str
    tokens: list[int]  # the end token included
    groups: list[list[int]]  # the same tokens, by macro step
    finish_reason: FinishReason
    stats: Stats
    complete: bool | None = None  # of a structured answer: whether it has all that its structure asks for


class Model:
    """One sequence at a time: while an answer is being made, other uses raise BusyError.

    `cancel`, `encode`, `decode` and `close` may be called from any thread at any time.
    """

    def __init__(self, backend: Backend, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.template = template
        self.engine = Engine(backend)
        self.turns = Turns(backend)
        grammars = Grammars(tokenizer.to_json, self.info.vocab_size, self.info.eos_ids)
        self.parts = Parts(self.engine, tokenizer, template, self.turns, grammars)

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
        """Answer a prompt, one chunk for each macro step.

        Text becomes a user turn of the model's chat template, after `system` if given; with `raw`, and for
        token ids, it is taken as it is. What the cache already holds of the prompt is not computed again;
        unless the answer has to equal plain decoding, that includes earlier answers in their merged slots.
        """
        settings = Settings.of(options, self.info.recommended)
        flag("raw", raw)
        groups = self._prompt(prompt, raw, system)
        sampler = self.parts.sampler(settings)
        sampler.begin(token for group in groups for token in group)
        text = self.parts.text_stream(settings)
        reuse: Reuse = "tokens" if flag("reuse_prefix", reuse_prefix) else "none"
        return Stream(self.engine, self.turns, groups, settings, sampler, text, reuse=reuse)

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
        with self.stream(prompt, raw=raw, system=system, reuse_prefix=reuse_prefix, **options) as stream:
            chunks = list(stream)
        groups = [list(chunk.tokens) for chunk in chunks if chunk.tokens]
        tokens = [token for group in groups for token in group]
        finish = stream.finish_reason or "cancelled"
        return Result(stream.text, tokens, groups, finish, stream.stats, stream.complete)

    def chat(self, system: str | None = None, **options: Unpack[Options]) -> Chat:
        """A conversation; an empty system text leaves out the template's own."""
        return Chat(self.parts, system, Settings.of(options, self.info.recommended))

    def resume(self, path: str | PathLike[str]) -> Chat:
        """Continue a conversation from where `Chat.save` left it."""
        with self.turns.exclusive():
            return Chat.resume(self.parts, path)

    def cancel(self) -> None:
        """End the answer that is being made, if any, after its current step."""
        if (answer := self.turns.answer) is not None:
            answer.cancel()

    def close(self) -> None:
        """Free everything, ending an answer first. Closing twice is harmless. Called by a signal's handler in
        the middle of a use by the same thread, it takes effect when that use ends."""
        self.turns.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prompt(self, prompt: str | bytes | Sequence[int], raw: bool, system: str | None) -> list[Group]:
        if isinstance(prompt, bytearray | memoryview):
            raise InputError("the prompt must be text or token ids: make bytes of it first")
        system = None if system is None else check_text(system)
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
        self.parts.check_length(text, system or "")
        parts = self.template.first_turn(text, system)
        ids = self.encode(text) if raw else self.tokenizer.encode_parts(parts)
        return self.engine.check_groups((token,) for token in ids)
