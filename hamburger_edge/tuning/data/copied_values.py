"""Fields of answers whose strings are spans of the prompt, and answers that break this.

Answers are JSON objects, or calls of a catalogue. A call's fields are the names of its arguments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hamburger_edge.calls.catalogue import Catalogue
from hamburger_edge.calls.compact_form import parse
from hamburger_edge.calls.parameters import strings_in
from hamburger_edge.structured.copied_fields import SPELLED, string_values
from hamburger_edge.support.spans import Spans
from hamburger_edge.tuning.data.examples import Example

COPIED = 0.995  # share of a field's strings that are spans
CASES = 20  # strings of a field that show this
CHOICES = 10  # fewer different strings are a closed list: a model chooses among them

Answered = tuple[str, str]  # texts of the prompt, joined by line feeds; answer


def copied_fields(examples: Iterable[Example], catalogue: Catalogue | None = None) -> tuple[str, ...]:
    """Return the fields whose strings copy the prompt: at least COPIED of CASES or more, no closed list."""
    strings, copies = _counted((turn for example in examples for turn in _answered(example)), catalogue)
    return tuple(
        field
        for field, values in sorted(strings.items())
        if len(values) >= CHOICES and values.total() >= CASES and copies[field] >= COPIED * values.total()
    )


def not_in_prompt(answers: Sequence[tuple[str, str, str]], catalogue: Catalogue | None = None) -> int:
    """Return how many of (prompt, expected answer, answer) hold a string that is not in the prompt.

    A field counts if the prompts hold at least COPIED of its expected strings.
    """
    strings, copies = _counted(((prompt, expected) for prompt, expected, _ in answers), catalogue)
    fields = {field for field, values in strings.items() if copies[field] >= COPIED * values.total()}
    return sum(
        any(field in fields and not is_span for field, _, is_span in _strings(prompt, answer, catalogue))
        for prompt, _, answer in answers
    )


def _answered(example: Example) -> Iterator[Answered]:
    texts = [example.system] if example.system else []
    for turn in example.turns:
        texts.append(turn.prompt)
        if turn.learned:
            yield "\n".join(texts), turn.answer
        texts.append(turn.answer)


def _counted(
    answered: Iterable[Answered], catalogue: Catalogue | None
) -> tuple[dict[str, Counter[bytes]], Counter[str]]:
    """Return each field's strings with their counts, and how many of them are spans."""
    strings: dict[str, Counter[bytes]] = defaultdict(Counter)
    copies = Counter[str]()
    for prompt, answer in answered:
        for field, value, is_span in _strings(prompt, answer, catalogue):
            strings[field][value] += 1
            copies[field] += is_span
    return strings, copies


def _strings(prompt: str, answer: str, catalogue: Catalogue | None) -> Iterator[tuple[str, bytes, bool]]:
    """Yield field, spelling, and whether it is a span of the prompt, of each string of an answer."""
    if catalogue is not None:
        spans = Spans([prompt.encode()], {})
        for call in parse(answer, catalogue):
            for field, text in strings_in(call.arguments, catalogue.tool(call.name, "calls").parameters):
                # in a list, the first bracket of an item has another spelling than in the prompt
                yield field, text.encode(), spans.rest(text.encode()) == 0 and not text.startswith("[")
    elif answer.lstrip().startswith("{"):
        spans = Spans([prompt.encode()], SPELLED)
        for field, value in string_values(answer):
            yield field, value, spans.rest(value) == 0
