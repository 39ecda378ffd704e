"""A loaded model, the main object of an application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from os import PathLike
from typing import Any, Unpack

from hamburger_edge.calls.catalogue import NO_TOOLS, CallLimits, Catalogue
from hamburger_edge.calls.compact_form import Call, Calls, parse
from hamburger_edge.calls.from_python import plain, targets_of, tools_of, typed
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.inference import Inference, Messages, Prompt
from hamburger_edge.chat.messages import read_messages
from hamburger_edge.chat.stream import Chunk, Result, Stream
from hamburger_edge.chat.task_queue import answer_chunks, answering
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.backend import Backend, ModelInfo
from hamburger_edge.loop.modes.engine import Reuse
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.support.values import flag


class Model:
    """A loaded model. It makes one answer at a time; other uses raise BusyError meanwhile.

    The asynchronous methods wait for each other instead, in the order of their calls.
    `cancel`, `encode`, `decode` and `close` may be called from any thread at any time.
    """

    def __init__(self, backend: Backend, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.template = template
        self.inference = Inference.of(backend, tokenizer, template)

    @property
    def info(self) -> ModelInfo:
        return self.inference.engine.info

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
        groups = self.inference.prompt_groups(prompt, messages=messages, raw=raw, system=system)
        reuse: Reuse = "tokens" if flag("reuse_prefix", reuse_prefix) else "none"
        return self.inference.answer(groups, settings, reuse=reuse)

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
        """Like `stream`, each step in a thread, after the answers of other tasks.

        Cancelling the task cancels the answer.
        """
        named = {"messages": messages, "raw": raw, "system": system, "reuse_prefix": reuse_prefix}
        begin = partial(self.stream, prompt, **named, **options)  # type: ignore[arg-type]
        async with aclosing(answer_chunks(self.inference.tasks, begin)) as chunks:
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
        """Like `generate`, each step in a thread, after the answers of other tasks.

        Cancelling the task cancels the answer.
        """
        named = {"messages": messages, "raw": raw, "system": system, "reuse_prefix": reuse_prefix}
        begin = partial(self.stream, prompt, **named, **options)  # type: ignore[arg-type]
        async with answering(self.inference.tasks, begin) as stream:
            async for _ in stream:
                pass
        return stream.result()

    @property
    def tools(self) -> Catalogue | None:
        """The functions that its answers call; None: it answers with text."""
        calls = self.inference.calls
        return None if calls is None else calls.catalogue

    def call(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
        tools: Any = None,
        required: bool = False,
        several: bool = True,
        system: str | None = None,
        **options: Unpack[Options],
    ) -> Calls:
        """Answer with calls of the model's tools; an empty list stands for none.

        `names` limits texts to lists: {"area": ["Kitchen", "Hall"]} or {"TurnOn.area": [...]}. A value is
        returned as listed. `tools` limits the tools: names of them, or the module, functions and Pydantic
        models that they come from, with the same parameters. The arguments of a Pydantic model's tool are
        then an instance of it.
        `required` allows no empty list, `several=False` at most one call. The list has the `certainty` of
        the whole answer, also if it is empty.
        """
        if self.tools is None:
            raise InputError(NO_TOOLS)
        by_name = tools is None or (isinstance(tools, Sequence) and all(isinstance(t, str) for t in tools))
        targets = {} if by_name else targets_of(tools)
        chosen = tools if by_name else list(targets)
        if targets:
            self.tools.check_own(tools_of(list(targets.values())))
        limits = CallLimits.of({"names": names, "tools": chosen, "required": required, "several": several})
        catalogue = self.tools.limited(limits)
        limited: Options = {**options, "calls": limits.to_json()}
        answer = self.generate(prompt, messages=messages, system=system, **limited)
        if answer.finish_reason == "context":
            raise ContextFullError("the calls do not fit into the model's context: shorten the prompt")
        if not answer.complete:  # cancelled, or too few tokens for any answer
            return Calls((), answer.certainty, answer.unsure)
        calls = typed(parse(answer.text, catalogue, answer.certainty), targets)
        return Calls(calls, answer.certainty, answer.unsure)

    def result_text(self, calls: Sequence[Call], results: Sequence[Any]) -> str:
        """Return the answer to calls whose tools have run, a line for each call.

        It is the filled answer template of each tool, else the result as text. `results` has the result of
        each call: an object with the fields that the template names, its JSON, any other value of JSON, or
        None.
        """
        if self.tools is None:
            raise InputError(NO_TOOLS)
        if len(calls) != len(results):
            raise InputError(f"there are {len(calls)} calls and {len(results)} results: give one for each")
        return "\n".join(
            self.tools.tool(call.name, "calls").result_text(plain(call.arguments), plain(result))
            for call, result in zip(calls, results, strict=True)
        )

    def chat(
        self, system: str | None = None, *, messages: Messages | None = None, **options: Unpack[Options]
    ) -> Chat:
        """Begin a conversation, or continue `messages`, which end with the assistant's.

        An empty system text removes the template's default one.
        """
        history = read_messages(() if messages is None else messages, system)
        return Chat(self.inference, history, Settings.of(options, self.info.recommended))

    def resume(self, path: str | PathLike[str]) -> Chat:
        """Continue a conversation saved by `Chat.save`."""
        with self.inference.turns.exclusive():
            return Chat.resume(self.inference, path)

    def cancel(self) -> None:
        """End the answer in progress, if any, after its current step."""
        if (answer := self.inference.turns.answer) is not None:
            answer.cancel()

    def close(self) -> None:
        """End the answer in progress and free everything. Closing twice is harmless.

        A signal handler may call this while its thread is using the model: the model is then freed at the
        end of that use.
        """
        self.inference.turns.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
