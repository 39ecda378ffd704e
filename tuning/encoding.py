"""Examples as tokens: between which marks a prompt and its answer stand, and what of them is learned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hamburger_edge.chat.template import ChatTemplate, Part
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError
from hamburger_edge.tuning.examples import Example

if TYPE_CHECKING:
    from hamburger_edge.models.distillation.written import WrittenConversation


def brief(template: ChatTemplate, tokenizer: Tokenizer) -> ChatTemplate:
    """The base's own marks, as few as set a prompt and its answer apart: a request is short, and every token
    around it is read each time.

        <|im_start|>user\\nPlay jazz<|im_end|>\\n<|im_start|>assistant\\n{"intent" ...   ChatML
        <|im_start|>Play jazz<|im_end|>{"intent" ...                                   the same, brief
    """
    marks = [
        _first_mark(text, tokenizer)
        for text in (template.prefix, template.before_user, template.after_user, template.after_answer)
    ]
    prefix, before_user, after_user, after_answer = marks
    if not after_user or not after_answer:
        raise ConfigError(
            "this base's chat template has no mark between a prompt and its answer that could stand alone: "
            'set  template = "base"'
        )
    return ChatTemplate(
        prefix=prefix,
        before_user=before_user,
        after_user=after_user,
        after_answer=after_answer,
        trim=template.trim,
    )


def _first_mark(text: str, tokenizer: Tokenizer) -> str:
    """The special token that a text begins with, if it does."""
    return max((mark for mark in tokenizer.special_ids if text.startswith(mark)), key=len, default="")


@dataclass(frozen=True)
class Encoder:
    template: ChatTemplate
    tokenizer: Tokenizer
    end: int  # the token that an answer ends with

    @classmethod
    def of(cls, template: ChatTemplate, tokenizer: Tokenizer, eos_ids: tuple[int, ...]) -> Encoder:
        after = tokenizer.encode_parts([(template.after_answer, True)]) if template.after_answer else []
        end = after[0] if after else eos_ids[0]
        if end not in eos_ids:
            raise ConfigError(
                f"answers of this chat template end with token {end}, which ends no answer of this base "
                f"(those do: {', '.join(map(str, eos_ids))}): give the base's own template"
            )
        return cls(template, tokenizer, end)

    def encode(self, example: Example) -> WrittenConversation:
        """As a conversation feeds it, turn by turn; answers and the tokens that end them are learned."""
        from hamburger_edge.models.distillation.written import WrittenConversation

        written = WrittenConversation()
        for number, turn in enumerate(example.turns):
            if number:
                ids = self._ids(self.template.next_turn(turn.prompt))
                ids = ids[1:] if ids[:1] == [self.end] else ids  # the answer ended with it
            else:
                ids = self._ids(self.template.first_turn(turn.prompt, example.system or ""))
            written.add(ids)
            written.add([*self._ids([(turn.answer, False)]), self.end], learned=turn.learned)
        return written

    def question(self, example: Example) -> list[int]:
        """All that comes before the last answer."""
        *before, last = example.turns
        answered = self.encode(replace(example, turns=(*before, replace(last, answer=""))))
        return answered.ids[:-1]  # an empty answer is its end alone

    def _ids(self, parts: Iterable[Part]) -> list[int]:
        return self.tokenizer.encode_parts(list(parts))


def without_default_system(template: ChatTemplate) -> ChatTemplate:
    """An example says all that is said: a system text that the base's makers chose is no part of it."""
    return replace(template, default_system=None)
