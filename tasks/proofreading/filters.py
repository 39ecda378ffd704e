"""Which of the lines that the base wrote are clean enough to be right answers.

A text's own faults come first (form, repetition, grammar, the base's own doubts), then what only the corpus
can tell: words that hardly occur, and texts that say nearly the same as an earlier one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hamburger_edge.support.repetition import four_gram_repetition
from hamburger_edge.tasks.proofreading.grammar import broken_rule
from hamburger_edge.tasks.proofreading.sentences import Line
from hamburger_edge.tasks.proofreading.text_kinds import KINDS

LEAST_WORDS, MOST_WORDS = 4, 30
MOST_SENTENCES = 2  # of a text
LEAST_MEAN, LEAST_LOWEST = -1.9, -4.6  # log-probabilities: where the base doubted more, it often erred
LEAST_COUNT = 3  # so often a word that is not common has to occur in all that the base wrote
MOST_FAMILIAR = 0.5  # share of a text's four-grams that kept texts have already

WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
BREAK = re.compile(r"(?<=[.!?]) +(?=[A-Z])(?<!Mr\. )(?<!Dr\. )(?<!Mrs\. )(?<!Ms\. )(?<!St\. )")
FORM = re.compile(  # a capital, ordinary characters, full stops only in figures, titles and between sentences
    r"[A-Z](?:[a-z]|\b|')"
    r"(?:[A-Za-z0-9',:$ -]|(?<=Mr)\.|(?<=Dr)\.|(?<=Mrs)\.|(?<=[0-9])[.](?=[0-9])|[.!?](?= [A-Z]))*[.!?]"
)
JUNK = re.compile(
    r"[a-z][A-Z]|  | [',.!?:-]|--|- |'(?![a-z])|(?<![A-Za-z])'|,[^ ]|:(?![0-9])|(?<![0-9]):|\$(?![0-9])|"
    r"[A-Z]{3}|[0-9]{5}"
)
UNFIT = re.compile(
    r"\b(?:AI|SmolLM|assistant|chatbot|language model|Hugging|[Ss]mol\w*|sentences?|example|topic|prompt|"
    r"answers? to|Here(?:'s| is| are) (?:a|an|some|the|your|three|five|possible)|unable to|can't assist|"
    r"able to provide|assist you|help you with|[Ii]nsert|[Yy]our [Nn]ame|[Cc]ompany [Nn]ame|www|"
    r"http|com|Subject|Dear|"
    r"Best regards|[Ss]incerely|kill\w*|"
    r"murder\w*|suicid\w*|sex\w*|nude|drug\w*|die|died|rape\w*|bomb\w*|guns?)\b"
)
SUBJECT = re.compile(
    r"(?:The|An?|My|Our|His|Her|Their|Its|This|That|One|Two|Some|All|Both|Each|Few|Most|Mostly|With|Without|For|"
    r"In|At|On|Just|Only|Not)\b"
)
VERB = re.compile(
    r"\b(?:is|are|was|were|am|be|been|has|have|had|do|does|did|can|could|will|would|should|must|may|might|"
    r"\w+'(?:s|re|m|ve|ll|d)|\w+n't|\w+ed|\w+s|went|came|got|made|took|gave|saw|said|told|knew|felt|found|left|kept|"
    r"lost|ran|sat|stood|began|grew|fell|let|put|cut|held|met|sent|spent|taught|thought|brought|bought|broke|wrote|"
    r"rose|sang|slept|won|wore|need|want|like|love|go|come|get|make|take|know|see|live|work|look|use|eat|help|feel)\b"
)
CAPITAL = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]+")


@dataclass(frozen=True)
class Text:
    """A sentence or two, to be a right answer."""

    text: str
    topic: int
    held_out: bool


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def pieces(line: str) -> Iterator[str]:
    """A line as it is, or in parts of two sentences where it has more."""
    sentences = BREAK.split(line.strip())
    for i in range(0, len(sentences), MOST_SENTENCES):
        yield " ".join(sentences[i : i + MOST_SENTENCES])


@functools.cache  # texts are asked about again with every further shard
def fault(text: str) -> str | None:
    """What is wrong with a text by itself; None where nothing was found."""
    said = words(text)
    if not LEAST_WORDS <= len(said) <= MOST_WORDS:
        return "length"
    if not FORM.fullmatch(text) or JUNK.search(text):
        return "form"
    if UNFIT.search(text):
        return "unfit words"
    sentences = BREAK.split(text)
    if _repeats(said) or any(map(_doubles, map(words, sentences))) or len(set(sentences)) < len(sentences):
        return "repetition"
    if any(SUBJECT.match(part) and not VERB.search(part[1:]) for part in sentences):
        return "no verb"
    if rule := broken_rule(text):
        return f"grammar: {rule}"
    return None


def clean(lines: Iterable[Line], known: frozenset[str]) -> tuple[list[Text], Counter[str]]:
    """The texts that can be kept, and how many others were left out for which reason. `known`: words in lower
    case that are right however seldom they are."""
    lines = list(lines)
    counts = Counter(word for line in lines for word in set(words(line.text)))
    capitals = Counter(name for line in lines for name in set(CAPITAL.findall(line.text)))
    plain = Counter(word for line in lines for word in set(re.findall(r"(?<![A-Za-z'])[a-z]+", line.text)))
    reasons: Counter[str] = Counter()
    kept: list[Text] = []
    seen_texts: set[str] = set()
    seen_grams: set[tuple[str, ...]] = set()
    for kind in KINDS:
        for _, answer in kind.examples:
            for text in answer.split("\n"):
                seen_texts.add(" ".join(words(text)))
                seen_grams.update(_grams(words(text)))
    for line in lines:
        for text in pieces(line.text):
            said = words(text)
            why = fault(text)
            if why is None and (line.mean < LEAST_MEAN or line.lowest < LEAST_LOWEST):
                why = "unsure"
            if why is None and any(counts[word] < LEAST_COUNT and word not in known for word in said):
                why = "unknown word"
            if why is None and any(_oddly_capital(name, capitals, plain) for name in CAPITAL.findall(text)):
                why = "capitals"
            if why is None and _is_familiar(said, seen_texts, seen_grams):
                why = "near duplicate"
            if why is None:
                kept.append(Text(text, line.topic, line.held_out))
                seen_texts.add(" ".join(said))
                seen_grams.update(_grams(said))
            else:
                reasons[why] += 1
    return kept, reasons


def _grams(said: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(said[i : i + 4]) for i in range(len(said) - 3)]


def _is_familiar(said: list[str], texts: set[str], grams: set[tuple[str, ...]]) -> bool:
    own = _grams(said)
    return " ".join(said) in texts or sum(gram in grams for gram in own) > MOST_FAMILIAR * len(own)


def _doubles(said: list[str]) -> bool:
    return any(first == second for first, second in itertools.pairwise(said))


def _repeats(said: list[str]) -> bool:
    """Whether a text goes round in circles: the same words again, or one long word too often."""
    numbers = {word: i for i, word in enumerate(said)}
    if four_gram_repetition([numbers[word] for word in said]) > 0:
        return True
    threes = [tuple(said[i : i + 3]) for i in range(len(said) - 2)]
    long = Counter(word for word in said if len(word) > 4)
    return len(threes) - len(set(threes)) > 0 or any(count > 2 for count in long.values())


def _oddly_capital(name: str, capitals: Counter[str], plain: Counter[str]) -> bool:
    """A capital in the middle of a sentence, on a word that is usually written without one."""
    return capitals[name] < LEAST_COUNT or 4 * plain[name.lower()] > capitals[name]
