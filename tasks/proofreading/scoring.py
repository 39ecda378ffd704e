"""The judge of answers: how many mistakes were put right, and how many clean words were changed.

Everything is counted along the words of the right text. A mistake takes in words of it; it is put right if
the answer has all of them and nothing beside them that does not belong there. The other words of the right
text are clean and should be in the answer as they are.

As a command it judges for `hamburger-edge tune --judge`: reads {"prompt", "expected", "answer"} a line, and
writes what the answer is worth, 0 to 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Scores:
    lines: int = 0
    exact: int = 0
    mistakes: int = 0
    put_right: int = 0
    clean_words: int = 0
    changed: int = 0  # clean words that the answer lacks or has otherwise, and words added between them
    by_kind: dict[str, tuple[int, int]] = field(default_factory=dict)  # kind -> put right, of how many

    @property
    def share_put_right(self) -> float:
        return self.put_right / max(1, self.mistakes)

    @property
    def share_changed(self) -> float:
        return self.changed / max(1, self.clean_words)

    @property
    def worth(self) -> float:
        """Mistakes put right, as a share of the mistakes and of what was spoiled."""
        if not self.mistakes:
            return float(not self.changed)
        return self.put_right / (self.mistakes + self.changed)

    @property
    def share_exact(self) -> float:
        return self.exact / max(1, self.lines)

    def facts(self) -> dict[str, Any]:
        return {
            "mistakes put right": round(self.share_put_right, 4),
            "clean words changed": round(self.share_changed, 4),
            "exact": round(self.share_exact, 4),
            "by kind": {
                kind: {"put right": right, "of": count}
                for kind, (right, count) in sorted(self.by_kind.items())
            },
        }


@dataclass(frozen=True)
class Alignment:
    matched: frozenset[int]  # words of the right text that the other has too, in their order
    additions: tuple[int, ...]  # for each further word of the other: the right word before which it stands


def align(right: Sequence[str], other: Sequence[str]) -> Alignment:
    """The fewest words replaced, left out and added that make `other` of `right`."""
    rows, columns = len(right) + 1, len(other) + 1
    cost = [[i + j for j in range(columns)] for i in range(rows)]
    for i in range(1, rows):
        for j in range(1, columns):
            same = cost[i - 1][j - 1] + (right[i - 1] != other[j - 1])
            cost[i][j] = min(same, cost[i - 1][j] + 1, cost[i][j - 1] + 1)
    matched, additions = set(), []
    i, j = len(right), len(other)
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (right[i - 1] != other[j - 1]):
            i, j = i - 1, j - 1
            if right[i] == other[j]:
                matched.add(i)
        elif j and cost[i][j] == cost[i][j - 1] + 1:
            j -= 1
            additions.append(i)
        else:
            i -= 1
    return Alignment(frozenset(matched), tuple(reversed(additions)))


def spans_of_mistakes(wrong: str, right: str) -> list[tuple[int, int]]:
    """Where two texts differ, as (first word, words) of the right one: for pairs that do not say it."""
    words = right.split(" ")
    alignment = align(words, wrong.split(" "))
    spans: list[tuple[int, int]] = []
    added = set(alignment.additions)
    for i in range(len(words)):
        if i in alignment.matched and i not in added:
            continue
        if spans and sum(spans[-1]) == i and i not in alignment.matched:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((i, 1))
    if len(words) in added and not (spans and sum(spans[-1]) == len(words)):
        spans.append((len(words) - 1, 1))
    return spans


def score(examples: Iterable[Mapping[str, Any]], answers: Iterable[str]) -> Scores:
    """`examples`: {"prompt", "answer", "mistakes": [{"kind", "index", "count"}, ...]}, as the dev set has
    them; where the mistakes are not said, the two texts tell."""
    scores = Scores()
    for example, answer in zip(examples, answers, strict=True):
        right = str(example["answer"])
        if "mistakes" in example:
            spans = [(m["index"], m["count"], m["kind"]) for m in example["mistakes"]]
        else:
            spans = [(*span, "") for span in spans_of_mistakes(str(example["prompt"]), right)]
        _add(scores, right, answer, spans)
    return scores


def _add(scores: Scores, right: str, answer: str, spans: Sequence[tuple[int, int, str]]) -> None:
    words = right.split(" ")
    alignment = align(words, answer.split(" "))
    scores.lines += 1
    scores.exact += answer == right
    wrong_words: set[int] = set()
    edges: set[int] = set()  # where an added word is the mistake's own
    for index, count, kind in spans:
        span = range(index, index + count)
        wrong_words.update(span)
        edges.update(range(index, index + count + 1))
        put_right = all(i in alignment.matched for i in span)
        put_right = put_right and not any(index <= at <= index + count for at in alignment.additions)
        before, of = scores.by_kind.get(kind, (0, 0))
        scores.by_kind[kind] = before + put_right, of + 1
        scores.mistakes += 1
        scores.put_right += put_right
    clean = [i for i in range(len(words)) if i not in wrong_words]
    scores.clean_words += len(clean)
    scores.changed += sum(i not in alignment.matched for i in clean)
    scores.changed += sum(at not in edges for at in alignment.additions)


def main() -> None:
    for line in sys.stdin:
        case = json.loads(line)
        example = {"prompt": case["prompt"], "answer": case["expected"]}
        print(round(score([example], [case["answer"]]).worth, 4))


if __name__ == "__main__":
    main()
