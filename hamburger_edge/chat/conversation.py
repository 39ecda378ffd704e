"""Conversations of many turns; their answers stay compressed in the KV cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, Unpack

from hamburger_edge.chat import session
from hamburger_edge.chat.forgetting import fits, newest_turns
from hamburger_edge.chat.inference import Inference
from hamburger_edge.chat.messages import Transcript
from hamburger_edge.chat.stream import AnswerInputs, Chunk, Stream
from hamburger_edge.chat.task_queue import answer_chunks
from hamburger_edge.chat.tokenizer import TextStream
from hamburger_edge.errors import BusyError, InputError
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.structured.structure import Structure
from hamburger_edge.support.values import check_text, whole_in


class Message(NamedTuple):
    role: str  # "user" or "assistant"
    text: str


class Chat:
    """A conversation of many turns.

    Several conversations may share a model, but each switch between them costs a prefill.
    If the context has no room for a turn and its answer, the oldest turns leave it; `forgotten` counts their
    messages, which `messages` still lists.
    If an answer ends before its first step (an error, or a cancelled prefill), its turn is discarded.
    A model of one task (`ChatTemplate.is_task`) answers each message on its own: it was tuned to single
    requests, and earlier ones would change its answers. `messages` then lists all turns, `groups` the last.
    """

    def __init__(self, inference: Inference, history: Transcript, settings: Settings) -> None:
        self._inference = inference
        self.system = None if history.system is None else check_text(history.system)
        self.settings = settings
        self._history = history.turns  # `reset` returns to it
        if len(self._history) % 2:
            raise InputError("the last message is of the user: give it to send, and those before it to chat")
        inference.check_length(*self._history)
        self._owner = object()  # slots loaded from a session belong to this conversation alone
        self._start()

    def _start(self) -> None:
        sampler, text = self._inference.sampler(self.settings), self._inference.text_stream(self.settings)
        self._sampling, self._text = sampler, text  # after both calls succeeded: an error changes nothing
        roles = ("user", "assistant")
        self.messages = [Message(roles[index % 2], text) for index, text in enumerate(self._history)]
        # all groups of the conversation, template included, as the cache stores them
        self.groups = self._inference.conversation(Transcript(self.system, self._history))
        self.forgotten = 0  # oldest messages that the model does not see any more: the context has no room
        self.stats = Stats()  # statistics of the last answer
        self.unfinished = False  # True: the last answer was cut, and `continue_answer` can resume it
        self._structure = self.settings.structure  # structure of the last answer

    def send(
        self,
        text: str,
        *,
        max_tokens: int | None = None,
        json_schema: Any = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> Stream:
        """Send a user message and return the answer as a stream of chunks.

        A structure given here replaces the chat's structure for this answer only.
        """
        given = Structure.of(json_schema=json_schema, regex=regex, grammar=grammar)
        structure = given or self.settings.structure
        text = check_text(text)
        if not text:
            raise InputError("the message is empty: say something")
        self._inference.check_length(text, "" if self.groups else self.system or "")
        known, forgotten = self.groups, self.forgotten
        before = [] if self._inference.template.is_task else known
        ids = self._inference.turn(text, before, self.system)
        limit = max_tokens or self.settings.decoding.max_tokens
        settled = self._settled()
        if before and not fits(self._inference.engine.info, before, len(ids), limit):
            turns = tuple(message.text for message in settled[forgotten:])
            count, before = newest_turns(self._inference, Transcript(self.system, turns), text)
            forgotten += count
            ids = self._inference.turn(text, before, self.system)
        turn = self._inference.engine.check_groups((token,) for token in ids)
        prompt = [*before, *turn]
        sampler = self._sampler(structure)
        sampler.begin(token for group in prompt for token in group)
        messages = [*settled, Message("user", text), Message("assistant", "")]
        output = self._inference.text_stream(replace(self.settings, structure=structure))
        return self._answer(known, prompt, messages, sampler, output, max_tokens, structure, forgotten)

    async def asend(
        self,
        text: str,
        *,
        max_tokens: int | None = None,
        json_schema: Any = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> AsyncIterator[Chunk]:
        """Like `send`, each step in a thread, after the answers of other tasks. Cancelling cancels."""
        structure = {"json_schema": json_schema, "regex": regex, "grammar": grammar}
        begin = partial(self.send, text, max_tokens=max_tokens, **structure)
        async with aclosing(answer_chunks(self._inference.tasks, begin)) as chunks:
            async for chunk in chunks:
                yield chunk

    def continue_answer(self, *, max_tokens: int | None = None) -> Stream:
        """Continue an answer that was cancelled or reached max_tokens.

        The continuation equals an uncut answer if the answer was cancelled, if the confidence is 1, or in
        verify mode. Otherwise max_tokens may have shortened the last group. That group occupies one slot, so
        the tokens after it may differ from those of an uncut answer.
        """
        if not self.unfinished:
            raise InputError("there is no unfinished answer to go on with: send a message")
        before = self.groups
        sampler = self._sampler(self._structure)
        sampler.follow()
        held, structure = self._held(), self._structure
        return self._answer(
            before, before, self.messages, sampler, held, max_tokens, structure, self.forgotten
        )

    def reset(self) -> None:
        """Restore the initial messages and the initial random state."""
        with self._inference.turns.exclusive():
            self._start()

    def configure(self, **options: Unpack[Options]) -> None:
        """Change options from the next answer on; a new seed restarts the random draws.

        The mode stays unless a new one is given. A new mode without a confidence uses its recommended or
        default confidence (see `loop/dial.py`).
        """
        with self._inference.turns.exclusive():
            kept, recommended = self.settings.to_options(), self._inference.engine.info.recommended
            current = Recommended(kept.pop("mode"), kept.pop("confidence"))
            settings = Settings.of({**kept, **options}, recommended, current)
            sampler, state = self._inference.sampler(settings), self._sampling.state()
            if options.get("seed") is not None:
                state |= {"seed": sampler.seed, "draws": 0}
            sampler.restore(state)
            self.settings, self._sampling = settings, sampler  # all values are valid

    def save(self, path: str | PathLike[str]) -> None:
        """Write the conversation and its cache; `Model.resume` continues it bit for bit."""
        with self._inference.turns.exclusive():
            conversation = {
                "groups": self.groups,
                "unfinished": self.unfinished,
                "messages": self.messages,
                "forgotten": self.forgotten,
                "system": self.system,
                "options": self.settings.to_options(),
                "sampler": self._sampling.state(),
                "text": self._text.state(),
                "structure": self._structure.to_options() if self._structure else None,
            }
            session.save(path, conversation, self._inference.engine, self._owner)

    @classmethod
    def resume(cls, inference: Inference, path: str | PathLike[str]) -> Chat:
        """Load a conversation that `save` wrote; on any failure the cache is left empty."""
        owner = object()
        with session.opened(path, inference.engine, owner=owner) as saved:
            chat = cls(inference, Transcript(saved["system"], ()), Settings.from_json(saved["options"]))
            chat._owner = owner
            chat._sampling.restore(saved["sampler"])
            chat._text.restore(saved["text"])
            chat.groups = saved["groups"]
            chat.messages = [Message(str(role), str(text)) for role, text in saved["messages"]]
            chat.forgotten = whole_in("forgotten", saved.get("forgotten", 0), 0, len(chat.messages))
            chat.unfinished = bool(saved["unfinished"])
            chat._structure = Structure.of(**saved["structure"]) if saved["structure"] else None
            if chat.unfinished:
                chat._sampler(chat._structure).follow()
        return chat

    def _sampler(self, structure: Structure | None) -> Sampler:
        """Return a copy of the sampler, so that a failed turn does not change the original."""
        sampler = self._inference.sampler(replace(self.settings, structure=structure))
        sampler.restore(self._sampling.state())
        return sampler

    def _held(self) -> TextStream:
        """Return a copy of the last answer's text stream, with its held-back text."""
        text = self._inference.text_stream(self.settings)
        text.restore(self._text.state())
        return text

    def _settled(self) -> list[Message]:
        """Return the messages, with the held-back text of an unfinished answer appended to it."""
        if not self.unfinished:
            return self.messages
        *before, last = self.messages
        return [*before, last._replace(text=last.text + self._held().flush())]

    def _answer(
        self,
        before: list[Group],
        prompt: list[Group],
        messages: list[Message],
        sampler: Sampler,
        text: TextStream,
        max_tokens: int | None,
        structure: Structure | None,
        forgotten: int,
    ) -> Stream:
        def commit(stream: Stream) -> None:
            if stream.stats.macro_steps:
                self.groups = self._inference.engine.sequence
                self.messages = [*messages[:-1], Message("assistant", messages[-1].text + stream.text)]
                self.unfinished = stream.finish_reason in ("length", "cancelled")
                self._sampling, self._text, self.stats = sampler, text, stream.stats
                self._structure = structure
                self.forgotten = forgotten

        settings = self.settings
        if max_tokens is not None:
            settings = replace(settings, decoding=replace(settings.decoding, max_tokens=max_tokens))
        inputs = AnswerInputs(
            prompt, settings, sampler, text, reuse="groups", owner=self._owner, resumable=True
        )
        stream = Stream(self._inference.engine, self._inference.turns, inputs, on_close=commit)
        if self.groups is not before:  # another thread finished an answer since `before` was read
            stream.close()
            raise BusyError("another thread went on with this conversation: send the message again")
        return stream
