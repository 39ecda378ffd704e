"""Make more training examples by exchanging the texts that answers copy from their prompts.

A text that an answer copies is replaced, in prompt and answer, by one from the same field of another example:

    play jazz by Miles Davis        {"genre": "jazz", "artist": "Miles Davis"}
    play polka by Mike Tramp        {"genre": "polka", "artist": "Mike Tramp"}

In answers of calls only texts that an argument takes freely are exchanged, never a choice or a number.

A model that sees many names in one sentence learns to copy them. A model that sees few memorises them.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue
from hamburger_edge.calls.compact_form import Call, encode, parse
from hamburger_edge.calls.parameters import Parameter
from hamburger_edge.tuning.data.examples import Example, Turn

Path = tuple[str | int, ...]
Span = tuple[int, int]
KEPT = 0.3  # probability that a text is kept
# A field's texts are exchanged if distinct / all >= OPEN. A field with fewer distinct texts is a category.
OPEN = 0.25


@dataclass(frozen=True)
class Augmented:
    """New examples, and for how many copies there was a reason against them."""

    examples: tuple[Example, ...]
    left_out: dict[str, int]

    def without(self, reason: str, refused: Callable[[Example], bool]) -> Augmented:
        kept = tuple(one for one in self.examples if not refused(one))
        return Augmented(kept, {**self.left_out, reason: len(self.examples) - len(kept)})

    def __str__(self) -> str:
        tries = len(self.examples) + sum(self.left_out.values())
        reasons = sorted(((count, reason) for reason, count in self.left_out.items() if count), reverse=True)
        told = ", ".join(f"{count} {reason}" for count, reason in reasons)
        return f"{len(self.examples)} of {tries} copies with exchanged texts added" + (
            f"; left out: {told}" if told else ""
        )


# why an example, or a copy of it, is left out
MANY_TURNS = "of several turns or with a system text"
NO_OBJECT = "whose answer is no JSON object as json.dumps writes it"
NO_COPY = "whose answer copies no text that occurs once in the prompt"
OVERLAP = "whose copied texts overlap"
CATEGORIES = "whose copied texts are of fields with few different texts"
AMBIGUOUS = "with a copied text twice in the prompt"
KNOWN = "whose prompt repeats another"


@dataclass(frozen=True)
class AnswerForm:
    """How answers become values, and values answers."""

    read: Callable[[str], Any]  # None: the answer is not in this form
    write: Callable[[Any], str]
    open_fields: frozenset[Path] | None = None  # whose texts may be exchanged; None: all
    shares_texts: bool = False  # arguments of one name, in several calls, may copy one text


def json_form(examples: Sequence[Example]) -> AnswerForm:
    """Return the form of JSON objects, exactly as `json.dumps` writes them."""
    escapes = any("\\u" in example.answer for example in examples)  # then new answers escape non-ASCII too

    def read(answer: str) -> Any:
        value = _parse(answer)
        written = isinstance(value, dict) and [json.dumps(value, ensure_ascii=e) for e in (False, True)]
        return value if written and answer in written else None

    return AnswerForm(read, lambda value: json.dumps(value, ensure_ascii=escapes))


def call_form(catalogue: Catalogue) -> AnswerForm:
    """Return the form of calls; as a value they are a list of {name: arguments}."""

    def read(answer: str) -> Any:
        return [{call.name: call.arguments} for call in parse(answer, catalogue)]

    def write(value: Any) -> str:
        calls = [Call(name, arguments) for call in value for name, arguments in call.items()]
        return encode(calls, catalogue)

    fields = {
        field for tool in catalogue.tools for field in _string_fields(tool.parameters, ("[]", tool.name))
    }
    return AnswerForm(read, write, frozenset(fields), shares_texts=True)


def _string_fields(parameters: Sequence[Parameter], path: Path) -> Iterator[Path]:
    for parameter in parameters:
        field = (*path, parameter.name, *(("[]",) if parameter.is_list else ()))
        if parameter.kind == "string":
            yield field
        yield from _string_fields(parameter.properties, field)


def augmented(
    examples: Sequence[Example], copies: int, seed: int = 0, form: AnswerForm | None = None
) -> Augmented:
    """Return up to `copies` new examples for each of `examples`, each with a new prompt.

    Only single turns are used whose answer is in the form, by default that of JSON objects.
    """
    draw = random.Random(seed)
    form = form or json_form(examples)
    copied_spans = [_copied(example, form) for example in examples]
    spans = [{} if isinstance(copied, str) else copied for copied in copied_spans]
    pools = _pools(examples, spans)
    changed: list[Example] = []
    left_out: Counter[str] = Counter()
    known = {example.turns[0].prompt for example in examples}
    for _ in range(copies):
        for example, copied in zip(examples, copied_spans, strict=True):
            if isinstance(copied, str):
                left_out[copied] += 1
                continue
            if not any(_kind(path) in pools for path in copied):
                left_out[CATEGORIES] += 1
                continue
            new = _augmented(example, copied, pools, draw, form)
            if new is None:
                left_out[AMBIGUOUS] += 1
            elif new.turns[0].prompt in known:
                left_out[KNOWN] += 1
            else:
                known.add(new.turns[0].prompt)
                changed.append(new)
    return Augmented(tuple(changed), dict(left_out))


def _pools(examples: Sequence[Example], spans: Sequence[dict[Path, Span]]) -> dict[Path, list[str]]:
    """Return field -> distinct texts, for fields with distinct / all >= OPEN."""
    values: dict[Path, list[str]] = defaultdict(list)
    for example, copied in zip(examples, spans, strict=True):
        for path, (start, end) in copied.items():
            values[_kind(path)].append(example.turns[0].prompt[start:end])
    different = {kind: sorted(set(texts)) for kind, texts in values.items()}
    return {kind: texts for kind, texts in different.items() if len(texts) >= OPEN * len(values[kind])}


def _copied(example: Example, form: AnswerForm) -> dict[Path, Span] | str:
    """Return path in the answer -> span in the prompt, for texts that occur once in the prompt.

    Return the reason instead if there are none, if they overlap, or if the answer is not in the form.
    """
    if not example.single:
        return MANY_TURNS
    turn = example.turns[0]
    answer = form.read(turn.answer)
    if answer is None:
        return NO_OBJECT
    spans = {
        path: _spans(text, turn.prompt)
        for path, text in _texts(answer)
        if form.open_fields is None or _kind(path) in form.open_fields
    }
    once = {path: positions[0] for path, positions in spans.items() if len(positions) == 1}
    if not once:
        return NO_COPY
    copies = [(span, _name(path) if form.shares_texts else path) for path, span in once.items()]
    different = sorted(span for span, _ in set(copies))  # a span that two names copy is there twice
    apart = all(first[1] <= second[0] for first, second in pairwise(different))
    return once if apart else OVERLAP


def _augmented(
    example: Example,
    copied: dict[Path, Span],
    pools: dict[Path, list[str]],
    draw: random.Random,
    form: AnswerForm,
) -> Example | None:
    before = example.turns[0].prompt
    answer = form.read(example.answer)
    new: dict[Span, str] = {}
    for path, (start, end) in copied.items():
        if (start, end) not in new:
            exchanged = _kind(path) in pools and draw.random() >= KEPT
            new[start, end] = draw.choice(pools[_kind(path)]) if exchanged else before[start:end]
        _put(answer, path, new[start, end])
    prompt, done = "", 0
    for (start, end), text in sorted(new.items()):
        prompt += before[done:start] + text
        done = end
    prompt += before[done:]
    if any(len(_spans(text, prompt)) != 1 for text in new.values()):
        return None  # ambiguous: a text occurs twice
    return replace(example, turns=(Turn(prompt, form.write(answer)),))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _spans(text: str, prompt: str) -> list[Span]:
    """Return the spans of `text` in the prompt, at word boundaries."""
    return [match.span() for match in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", prompt)] if text else []


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(part, (*path, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _texts(part, (*path, number))


def _kind(path: Path) -> Path:
    """Return the field of a path: all items of a list share one."""
    return tuple("[]" if isinstance(step, int) else step for step in path)


def _name(path: Path) -> Path:
    """Return the last name of a path, without the indexes of lists."""
    return tuple(step for step in path if isinstance(step, str))[-1:]


def _put(value: Any, path: Path, text: str) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text
