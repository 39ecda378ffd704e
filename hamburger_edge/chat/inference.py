"""Inference with one backend and its KV cache: prompts become groups, groups become an answer.

`Model` is its face for applications. Conversations, the server, evaluation and benchmarks use it directly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hamburger_edge.calls.call_grammar import CallGrammars
from hamburger_edge.calls.catalogue import NO_TOOLS, CallLimits, read_catalogue
from hamburger_edge.chat.messages import Transcript, read_messages
from hamburger_edge.chat.stream import AnswerInputs, Stream
from hamburger_edge.chat.task_queue import TaskQueue
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import TextStream, Tokenizer
from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.answer_run import MAX_TOKENS
from hamburger_edge.loop.backend import Backend
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.modes.engine import Driver, Engine, Reuse
from hamburger_edge.loop.sampling import Processor, Sampler
from hamburger_edge.loop.settings import Settings
from hamburger_edge.loop.turns import Turns
from hamburger_edge.structured.copied_fields import CopiedFields
from hamburger_edge.structured.edits import Edits
from hamburger_edge.structured.grammar import Grammars
from hamburger_edge.support.constraint import Constraint
from hamburger_edge.support.values import check_text, safe_repr

Prompt = str | bytes | Sequence[int]
Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Inference:
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    turns: Turns
    grammars: Grammars
    calls: CallGrammars | None = None  # of a model with tools
    tasks: TaskQueue = field(default_factory=TaskQueue)  # of the asynchronous methods

    @classmethod
    def of(cls, backend: Backend, tokenizer: Tokenizer, template: ChatTemplate) -> Inference:
        engine = Engine(backend, words=tokenizer.words())
        grammars = Grammars(tokenizer.to_json, engine.info.vocab_size, engine.info.eos_ids)
        calls = None
        if engine.info.tools:
            catalogue, encode = read_catalogue(engine.info.tools), tokenizer.encode_text
            vocabulary = engine.info.vocab_size, engine.info.eos_ids
            calls = CallGrammars(
                catalogue, tokenizer.token_bytes, encode, *vocabulary, engine.info.copied_fields
            )
        return cls(engine, tokenizer, template, Turns(backend), grammars, calls)

    def check_length(self, *texts: str) -> None:
        """Refuse texts with `characters > room * longest token`: they cannot fit.

        The check avoids tokenizing them: megabytes of text take seconds and a gigabyte of memory.
        """
        room = self.engine.ledger.room_behind(0)
        length = sum(map(len, texts))
        if length > room and length > room * self.tokenizer.longest:
            raise ContextFullError(
                f"the prompt has {length} characters, which are more than {room} tokens however it is cut: "
                "shorten it"
            )

    def prompt_groups(
        self,
        prompt: Prompt | None,
        *,
        messages: Messages | None = None,
        raw: bool = False,
        system: str | None = None,
    ) -> list[Group]:
        """Return the groups of a prompt or of messages, as `Model.stream` takes them: one token each."""
        system = None if system is None else check_text(system)
        if messages is not None:
            if prompt is not None or raw:
                raise InputError("give either messages, or a prompt (which alone can be raw)")
            return self._message_groups(read_messages(messages, system))
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
                return self.engine.check_groups((token,) for token in prompt)
            except TypeError as error:
                raise InputError(f"the prompt must be text or token ids ({error})") from error
        text = check_text(prompt)
        if not text:
            raise InputError("the prompt is empty: say something")
        self.check_length(text, system or "")
        ids = self.tokenizer.encode(text) if raw else self.turn(text, (), system)
        return self.engine.check_groups((token,) for token in ids)

    def _message_groups(self, transcript: Transcript) -> list[Group]:
        if len(transcript.turns) % 2 == 0:
            raise InputError("the last message must be of the user")
        self.check_length(transcript.system or "", *transcript.turns)
        return self.conversation(transcript)

    def turn(self, text: str, before: Sequence[Group], system: str | None) -> list[int]:
        """Return the tokens between a conversation's groups and the next answer.

        If the last group already ends with the end token, the end token is not repeated.
        """
        if not before:
            return self.tokenizer.encode_parts(self.template.first_turn(text, system))
        ids = self.tokenizer.encode_parts(self.template.next_turn(text))
        newest = before[-1][-1]
        return ids[1:] if ids[:1] == [newest] and newest in self.engine.info.eos_ids else ids

    def conversation(
        self, transcript: Transcript, known: Sequence[Group] = (), turns_known: int = 0
    ) -> list[Group]:
        """Return a conversation's groups: the known ones of its first turns, then groups of one token."""
        groups, turns = list(known), transcript.turns
        for index in range(turns_known, len(turns), 2):
            ids = self.turn(turns[index], groups, transcript.system)
            if index + 1 < len(turns) and turns[index + 1]:
                ids += self.tokenizer.encode_parts([(turns[index + 1], False)])
            groups += self.engine.check_groups((token,) for token in ids)
        return groups

    def sampler(
        self,
        settings: Settings,
        processors: Sequence[Processor] = (),
        eos_ids: Sequence[int] | None = None,  # tokens that end the answer; None: the model's
    ) -> Sampler:
        info = self.engine.info
        if settings.min_certainty is not None and info.certainty is None:
            raise InputError(
                f"min_certainty {settings.min_certainty:g} needs a model whose certainty was measured: leave "
                "it out, or measure this model with  hamburger-edge eval --certainty"
            )
        return Sampler(
            settings.sampling,
            info.vocab_size,
            info.draft_vocab,
            top_probabilities=settings.decoding.top_probabilities,
            constraint=self._constraint(settings, info.eos_ids if eos_ids is None else eos_ids),
            processors=processors,
            scores_answer=info.certainty is not None or settings.decoding.top_probabilities is not None,
        )

    def _constraint(self, settings: Settings, eos_ids: Sequence[int]) -> Constraint | None:
        """Return what an answer follows: its structure, else the model's tools, edits or copied fields."""
        structure, info = settings.structure, self.engine.info
        if structure is not None and structure.kind != "calls":
            return self.grammars.start(structure)
        if self.calls is not None:
            limits = CallLimits.of({} if structure is None else json.loads(structure.text))
            return self.calls.start(limits, settings.decoding.max_tokens or MAX_TOKENS)
        if structure is not None:
            raise InputError(NO_TOOLS)
        token_bytes = self.tokenizer.token_bytes
        if info.edits_prompt:
            return Edits(token_bytes, eos_ids)
        return CopiedFields(info.copied_fields, token_bytes, eos_ids) if info.copied_fields else None

    def answer(
        self,
        prompt: Sequence[Group],
        settings: Settings,
        *,
        reuse: Reuse = "tokens",
        processors: Sequence[Processor] = (),
        driver: Driver | None = None,  # instead of the mode's, for measurements
        eos_ids: Sequence[int] | None = None,  # tokens that end this answer; None: the model's
    ) -> Stream:
        """Answer a prompt that belongs to no `Chat`. `processors` change the scores of the base."""
        sampler = self.sampler(settings, processors, eos_ids)
        sampler.begin(token for group in prompt for token in group)
        text = self.text_stream(settings, eos_ids)
        inputs = AnswerInputs(prompt, settings, sampler, text, reuse=reuse, driver=driver, eos_ids=eos_ids)
        return Stream(self.engine, self.turns, inputs)

    def text_stream(self, settings: Settings, eos_ids: Sequence[int] | None = None) -> TextStream:
        structured = settings.structure is not None
        eos_ids = self.engine.info.eos_ids if eos_ids is None else eos_ids
        return TextStream(self.tokenizer, settings.stop, eos_ids, whole=structured)
