"""A loaded model, the main object of an application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from os import PathLike
from typing import Unpack

from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.messages import read_messages
from hamburger_edge.chat.model_parts import Parts
from hamburger_edge.chat.stream import Chunk, Result, Stream, in_thread
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Backend, ModelInfo
from hamburger_edge.loop.engine import Engine, Reuse
from hamburger_edge.loop.grammar import Grammars
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.loop.turns import Turns
from hamburger_edge.support.values import check_text, flag, safe_repr

Prompt = str | bytes | Sequence[int]
Messages = Sequence[Mapping[str, str]]


class Model:
    """A loaded model. It makes one answer at a time; other uses raise BusyError meanwhile.

    `cancel`, `encode`, `decode` and `close` may be called from any thread at any time.
    """

    def __init__(self, backend: Backend, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.template = template
        self._engine = Engine(backend, words=tokenizer.words())
        self._turns = Turns(backend)
        grammars = Grammars(tokenizer.to_json, self.info.vocab_size, self.info.eos_ids)
        self._parts = Parts(self._engine, tokenizer, template, self._turns, grammars)

    @property
    def info(self) -> ModelInfo:
        return self._engine.info

    def encode(self, text: str | bytes) -> list[int]:
        """Tokenize a text; special tokens written in it become special tokens."""
        return self.tokenizer.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        raw: bool = False,
        system: str | None = None,
        reuse_prefix: bool = True,
        **options: Unpack[Options],
    ) -> Stream:
        """Answer a prompt or messages, one chunk per macro step.

        A text becomes a user turn of the model's chat template, after `system` if given. Token ids, and text
        with `raw`, are used without the template. `messages` are [{"role": "user", "content": "Hi"}, ...]:
        the last role is "user", the first may be "system". With `reuse_prefix` the beginning of the prompt
        that is in the KV cache is not computed again. In modes "hybrid" and "merge" below confidence 1 this
        includes merged slots of earlier answers.
        """
        settings = Settings.of(options, self.info.recommended)
        flag("raw", raw)
        groups = self._groups(prompt, messages, raw, system)
        reuse: Reuse = "tokens" if flag("reuse_prefix", reuse_prefix) else "none"
        return self._parts.answer(groups, settings, reuse=reuse)

    def generate(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        raw: bool = False,
        system: str | None = None,
        reuse_prefix: bool = True,
        **options: Unpack[Options],
    ) -> Result:
        """Like `stream`, but return the whole answer."""
        return self.stream(
            prompt, messages=messages, raw=raw, system=system, reuse_prefix=reuse_prefix, **options
        ).result()

    async def astream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        raw: bool = False,
        system: str | None = None,
        reuse_prefix: bool = True,
        **options: Unpack[Options],
    ) -> AsyncIterator[Chunk]:
        """Like `stream`, each step in a thread. Cancelling the task cancels the answer."""
        begin = partial(self.stream, messages=messages, raw=raw, system=system, reuse_prefix=reuse_prefix)
        stream = await in_thread(begin, prompt, **options)
        async with aclosing(aiter(stream)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def agenerate(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        raw: bool = False,
        system: str | None = None,
        reuse_prefix: bool = True,
        **options: Unpack[Options],
    ) -> Result:
        """Like `generate`, each step in a thread. Cancelling the task cancels the answer."""
        begin = partial(self.stream, messages=messages, raw=raw, system=system, reuse_prefix=reuse_prefix)
        stream = await in_thread(begin, prompt, **options)
        async with aclosing(aiter(stream)) as chunks:
            async for _ in chunks:
                pass
        return stream.result()

    def chat(
        self, system: str | None = None, *, messages: Messages | None = None, **options: Unpack[Options]
    ) -> Chat:
        """Begin a conversation, or continue `messages`, which end with the assistant's.

        An empty system text removes the template's default one.
        """
        history = read_messages(() if messages is None else messages, system)
        return Chat(self._parts, history, Settings.of(options, self.info.recommended))

    def resume(self, path: str | PathLike[str]) -> Chat:
        """Continue a conversation saved by `Chat.save`."""
        with self._turns.exclusive():
            return Chat.resume(self._parts, path)

    def cancel(self) -> None:
        """End the answer in progress, if any, after its current step."""
        if (answer := self._turns.answer) is not None:
            answer.cancel()

    def close(self) -> None:
        """End the answer in progress and free everything. Closing twice is harmless.

        A signal handler may call this while its thread is using the model: the model is then freed at the
        end of that use.
        """
        self._turns.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _groups(
        self, prompt: Prompt | None, messages: Messages | None, raw: bool, system: str | None
    ) -> list[Group]:
        system = None if system is None else check_text(system)
        if messages is not None:
            if prompt is not None or raw:
                raise InputError("give either messages, or a prompt (which alone can be raw)")
            transcript = read_messages(messages, system)
            if len(transcript.turns) % 2 == 0:
                raise InputError("the last message must be of the user")
            self._parts.check_length(transcript.system or "", *transcript.turns)
            return self._parts.conversation(transcript)
        if prompt is None:
            raise InputError("there is nothing to answer: give a prompt or messages")
        if isinstance(prompt, bytearray | memoryview):
            raise InputError("the prompt must be text or token ids: make bytes of it first")
        if system is not None and (raw or not isinstance(prompt, str | bytes)):
            raise InputError("raw text and token ids are taken as they are: leave system out")
        if not isinstance(prompt, str | bytes):
            if isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
                raise InputError(
                    f"the prompt is a list of messages ({safe_repr(prompt)}): pass it as messages="
                )
            try:
                return self._engine.check_groups((token,) for token in prompt)
            except TypeError as error:
                raise InputError(f"the prompt must be text or token ids ({error})") from error
        text = check_text(prompt)
        if not text:
            raise InputError("the prompt is empty: say something")
        self._parts.check_length(text, system or "")
        ids = self.encode(text) if raw else self._parts.turn(text, (), system)
        return self._engine.check_groups((token,) for token in ids)
