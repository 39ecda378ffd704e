"""A linear classifier of words and word pairs, the usual program for prompts whose answers are classes."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

EXAMPLES_PER_CLASS = 5  # mean number of examples from which answers count as classes
STEPS, BATCH, RATE, DECAY = 2000, 64, 0.1, 1e-3
_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Return words and punctuation marks in order, without case."""
    return _WORD.findall(text.casefold())


def are_classes(answers: Sequence[str]) -> bool:
    """Whether the answers repeat often enough to be classes."""
    classes = len(set(answers))
    return classes > 1 and classes * EXAMPLES_PER_CLASS <= len(answers)


def classified(prompts: Sequence[str], answers: Sequence[str], requests: Sequence[str]) -> list[str]:
    """Return an answer to each request by logistic regression on TF-IDF of the training prompts."""
    counts = [_features(prompt) for prompt in prompts]
    spread = Counter(feature for prompt in counts for feature in prompt)
    numbers = {feature: number for number, feature in enumerate(spread)}
    weight = {feature: 1 + math.log(len(prompts) / times) for feature, times in spread.items()}

    def bags(some: Sequence[Counter[str]]) -> list[tuple[Tensor, Tensor]]:
        """Return each prompt's feature numbers, and their TF-IDF of length 1."""
        vectors = []
        for prompt in some:
            known = {feature: times for feature, times in prompt.items() if feature in numbers}
            values = torch.tensor([times * weight[feature] for feature, times in known.items()])
            ids = torch.tensor([numbers[feature] for feature in known], dtype=torch.int64)
            vectors.append((ids, F.normalize(values, dim=0) if len(known) else values))
        return vectors

    classes = sorted(set(answers))
    places = {answer: number for number, answer in enumerate(classes)}
    targets = torch.tensor([places[answer] for answer in answers])
    table = torch.zeros(len(numbers), len(classes), requires_grad=True)
    bias = torch.zeros(len(classes), requires_grad=True)
    optimizer = torch.optim.AdamW([table, bias], lr=RATE, weight_decay=DECAY)
    draw = torch.Generator().manual_seed(0)
    training = bags(counts)
    for step in range(STEPS):
        chosen = torch.randint(len(training), (BATCH,), generator=draw)
        loss = F.cross_entropy(_scores(table, bias, [training[n] for n in chosen.tolist()]), targets[chosen])
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        best = _scores(table, bias, bags([_features(request) for request in requests])).argmax(1)
    return [classes[number] for number in best.tolist()]


def _scores(table: Tensor, bias: Tensor, prompts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """[features, classes], [classes] and bags of prompts -> [prompts, classes]"""
    lengths = torch.tensor([len(ids) for ids, _ in prompts])
    offsets = lengths.cumsum(0) - lengths
    ids = torch.cat([ids for ids, _ in prompts])
    values = torch.cat([values for _, values in prompts]).float()
    return F.embedding_bag(ids, table, offsets, mode="sum", per_sample_weights=values) + bias


def _features(prompt: str) -> Counter[str]:
    """Words and pairs of neighbours."""
    words = words_of(prompt)
    return Counter(words) + Counter(map(" ".join, itertools.pairwise(words)))
