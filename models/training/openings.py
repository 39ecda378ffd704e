"""What all answers begin with, as those of a task may: `{"intent": "`.

Where a model speaks, such an opening rides behind the prompt, in slots of its own; so it is learned in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from hamburger_edge.loop.backend import LONGEST_OPENING
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.batches import DistilledData

ALL = 0.999  # of the answers, so that one in a thousand may be a mistake


def common_opening(data: DistilledData, conversations: Iterable[int]) -> list[int]:
    """Tokens that all first answers of these conversations begin with, and go on behind."""
    answers = [answer.tolist() for answer in _beginnings(data, conversations)]
    enough, opening = ALL * len(answers), list[int]()
    while len(opening) < LONGEST_OPENING:
        at = len(opening)
        following = Counter(answer[at] for answer in answers if len(answer) > at + 1)
        token, count = following.most_common(1)[0] if following else (0, 0)
        if not count or count < enough:
            break
        opening.append(token)
        answers = [answer for answer in answers if answer[: at + 1] == opening]
    return opening


def with_openings(
    lengths: npt.NDArray[np.int8], data: DistilledData, opening: list[int], most: int
) -> npt.NDArray[np.int8]:
    """Lengths [tokens] of the groups that begin at each token, where openings are cut as they are when they
    ride with a prompt: into groups of `most`, the last one as long as it comes to."""
    answers = data.roles == ANSWER
    first = np.flatnonzero(answers & ~np.append(False, answers[:-1]))
    first = first[first + len(opening) <= len(data.ids)]
    for offset, token in enumerate(opening):
        first = first[data.ids[first + offset] == token]
    lengths = lengths.copy()
    for offset in range(0, len(opening), most):
        lengths[first + offset] = min(most, len(opening) - offset)
    return lengths


def _beginnings(data: DistilledData, conversations: Iterable[int]) -> Iterator[npt.NDArray[np.int32]]:
    """First answers, as much of them as an opening may come to, and a token more."""
    for number in conversations:
        start, stop = data.starts[number : number + 2]
        answer = data.roles[start:stop] == ANSWER
        begin = int(answer.argmax())
        end = begin + int(np.append(~answer[begin:], True).argmax())
        if answer.any():
            yield data.ids[start + begin : start + min(end, begin + LONGEST_OPENING + 1)]
