"""Encode examples as tokens, with the template's marks and a flag for the tokens to learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hamburger_edge.chat.template import ChatTemplate, Part
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError
from hamburger_edge.tuning.data.examples import Example

if TYPE_CHECKING:
    from hamburger_edge.models.distillation.written import WrittenConversation


def brief(template: ChatTemplate, tokenizer: Tokenizer) -> ChatTemplate:
    """Return a template with the fewest of the base's marks that separate a prompt from its answer.

    Requests are short, and each mark costs a token of prefill per request.

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
    """Return the longest special token that `text` begins with, or ''."""
    return max((mark for mark in tokenizer.special_ids if text.startswith(mark)), key=len, default="")


@dataclass(frozen=True)
class Encoder:
    template: ChatTemplate
    tokenizer: Tokenizer
    end: int  # the token that ends an answer

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
        """Encode an example turn by turn. Answers and their end tokens are learned."""
        from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
        from hamburger_edge.models.distillation.written import WrittenConversation

        written = WrittenConversation()
        for ids, learned in self._turns(example):
            written.add(ids, ANSWER if learned else TEMPLATE)
        return written

    def pair(self, example: Example) -> tuple[list[int], list[int]]:
        """Return the tokens before the first answer, and those of the answers."""
        question: list[int] = []
        answer: list[int] = []
        for ids, learned in self._turns(example):
            if learned:
                answer += ids
            elif not answer:
                question += ids
        return question, answer

    def _turns(self, example: Example) -> Iterator[tuple[list[int], bool]]:
        """Yield tokens and whether they are learned."""
        for number, turn in enumerate(example.turns):
            if number:
                ids = self._ids(self.template.next_turn(turn.prompt))
                ids = ids[1:] if ids[:1] == [self.end] else ids  # the answer already has its end token
            else:
                ids = self._ids(self.template.first_turn(turn.prompt, example.system or ""))
            yield ids, False
            yield [*self._ids([(turn.answer, False)]), self.end], turn.learned

    def question(self, example: Example) -> list[int]:
        """Return the tokens before the last answer."""
        *before, last = example.turns
        answered = self.encode(replace(example, turns=(*before, replace(last, answer=""))))
        return answered.ids[:-1]  # an empty answer is only its end token

    def _ids(self, parts: Iterable[Part]) -> list[int]:
        return self.tokenizer.encode_parts(list(parts))


def without_default_system(template: ChatTemplate) -> ChatTemplate:
    """Remove the base's default system text: an example contains its whole prompt."""
    return replace(template, default_system=None)
