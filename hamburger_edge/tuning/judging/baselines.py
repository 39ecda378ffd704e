"""Answer requests without a model, for comparison with a tuned one.

most frequent    the most frequent answer of the training examples
field by field   for JSON objects: each common field with its most frequent value
nearest example  the answer of the training example with the most similar prompt (TF-IDF of words, cosine)
bag of words     for answers that are classes: a linear classifier of words and pairs of words
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hamburger_edge.evaluation.asking import Request, Row
from hamburger_edge.evaluation.judges import Case, Judge
from hamburger_edge.tuning.data.examples import Example
from hamburger_edge.tuning.judging.bag_of_words import are_classes, classified, words_of


@dataclass(frozen=True)
class Baseline:
    name: str
    score: float  # mean of the judge's scores
    figures: dict[str, float] = field(default_factory=dict)


def baselines(examples: Sequence[Example], requests: Sequence[Request], judge: Judge) -> list[Baseline]:
    """Return the baselines learned from `examples` with their scores on `requests`.

    "field by field" is left out unless every answer is a JSON object, "bag of words" if few answers repeat.
    """
    answers = [example.answer for example in examples]
    answers_of = {"most frequent": [most_frequent(answers)] * len(requests)}
    if (record := frequent_fields(answers)) is not None:
        answers_of["field by field"] = [record] * len(requests)
    prompts = [example.turns[-1].prompt for example in examples]
    requested = [request.prompt for request in requests]
    answers_of["nearest example"] = nearest(prompts, answers, requested)
    if are_classes(answers):
        answers_of["bag of words"] = classified(prompts, answers, requested)
    judged = []
    for name, given in answers_of.items():
        cases = [Case(one.prompt, one.expected, answer) for one, answer in zip(requests, given, strict=True)]
        verdict = judge(cases)
        judged.append(Baseline(name, verdict.score, verdict.figures))
    return judged


def plain_score(rows: Sequence[Row]) -> Baseline:
    """Return the model's own plain decoding, averaged over the prompts of several rows."""
    prompts = sum(row.prompts for row in rows)
    means = {name: sum(row.figures[name] * row.prompts for row in rows) / prompts for name in rows[0].figures}
    return Baseline("the model, plain", sum(row.score * row.prompts for row in rows) / prompts, means)


def unbeaten(plain: Baseline, baselines: Sequence[Baseline]) -> str:
    """Return a warning with its remedy if a baseline is as good as the model, else ''."""
    if not (better := [one for one in baselines if one.score >= plain.score]):
        return ""
    best = max(better, key=lambda one: one.score)
    return (
        f"the model does not beat an answer without one: {100 * plain.score:.1f} against "
        f"{100 * best.score:.1f} ({best.name}); give more --minutes or more examples, and check that prompts "
        "determine their answers"
    )


def comparison(plain: Baseline, baselines: Sequence[Baseline]) -> list[list[str]]:
    """Return table rows: a header, one row per baseline, and the model's row."""
    names = list(plain.figures)
    lines = [["right without a model", "score", *(name.replace("_", " ") for name in names)]]
    for one in (*baselines, plain):
        lines.append(
            [one.name, f"{100 * one.score:.1f}", *(f"{100 * one.figures[name]:.1f}" for name in names)]
        )
    return lines


def most_frequent(answers: Sequence[str]) -> str:
    return Counter(answers).most_common(1)[0][0]


def frequent_fields(answers: Sequence[str]) -> str | None:
    """Return an object of the most frequent values, of the fields that more than half of the answers have.

    Return None if an answer is not a JSON object.
    """
    values: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for answer in answers:
        try:
            record = json.loads(answer)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        for path, value in _leaves(record):
            values[path][json.dumps(value)] += 1
    arguments: dict[str, Any] = {}
    for path, counts in values.items():
        if 2 * counts.total() > len(answers):
            inner = arguments
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = json.loads(counts.most_common(1)[0][0])
    return json.dumps(arguments, ensure_ascii=False)


def nearest(prompts: Sequence[str], answers: Sequence[str], requests: Sequence[str]) -> list[str]:
    """Return the answer of the most similar training prompt for each request.

    Similarity is the cosine of TF-IDF vectors with `idf = 1 + log(prompts / prompts that contain the word)`.
    """
    counts = [Counter(words_of(prompt)) for prompt in prompts]
    spread = Counter(word for one in counts for word in one)
    weight = {word: 1 + math.log(len(prompts) / times) for word, times in spread.items()}
    numbers, shares = defaultdict[str, list[int]](list), defaultdict[str, list[float]](list)
    for number, one in enumerate(counts):
        length = math.sqrt(sum((times * weight[word]) ** 2 for word, times in one.items())) or 1.0
        for word, times in one.items():
            numbers[word].append(number)
            shares[word].append(times * weight[word] / length)
    vectors = {word: (np.array(numbers[word]), np.array(shares[word])) for word in spread}
    usual, nearest_answers = most_frequent(answers), list[str]()
    for request in requests:
        scores = np.zeros(len(prompts))
        for word, times in Counter(words_of(request)).items():
            if word in vectors:
                prompts_with_word, share = vectors[word]
                scores[prompts_with_word] += times * weight[word] * share
        nearest_answers.append(answers[int(scores.argmax())] if scores.any() else usual)
    return nearest_answers


def _leaves(record: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of every leaf. A list counts as a leaf."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value
