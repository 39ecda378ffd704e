"""Measure accuracy on held-out prompts during the tuning of a base, with greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.judges import Case, find_judge
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.distillation.generation import BatchCache, BatchStep
from hamburger_edge.tuning.judging.unfinished_answers import may_become_right

SAMPLE = 64  # prompts per measurement


class AnswersRight:
    """A callable that returns the judge's mean score of a model's answers. It does not affect training.

    An answer ends early as soon as no continuation could be right, so that a model which ends no answer takes
    no longer than a trained one.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        judge: str,
        tokenizer: Tokenizer,
        *,
        end: int,
        longest: int,
        autocast: Callable[[str], AbstractContextManager[Any]],
    ):
        self.requests = requests[:SAMPLE]
        self.judge, self.tokenizer, self.end, self.longest = judge, tokenizer, end, longest
        self.autocast = autocast

    def __call__(self, model: Hamburger) -> dict[str, float]:
        prompts = [request.ids for request in self.requests]
        with torch.no_grad(), self.autocast(model.base.norm.weight.device.type):
            answers = greedy(model, prompts, self.end, self.longest, self._may_become_right)
        cases = [
            Case(request.prompt, request.expected, self.tokenizer.decode(answer))
            for request, answer in zip(self.requests, answers, strict=True)
        ]
        return {"right": find_judge(self.judge)(cases).score}

    def _may_become_right(self, number: int, answer: list[int]) -> bool:
        return may_become_right(self.judge, self.tokenizer.decode(answer), self.requests[number].expected)


def greedy(
    model: Hamburger,
    prompts: Sequence[Sequence[int]],
    end: int,
    longest: int,
    goes_on: Callable[[int, list[int]], bool] = lambda number, answer: True,
) -> list[list[int]]:
    """Return the greedy answer to each prompt, one token a slot, without its end token.

    Each step feeds one token of every row, of its prompt first and then of its answer. An answer ends at the
    token after which `goes_on(number of its prompt, answer)` is false.
    """
    base = model.base
    device = base.norm.weight.device
    rows, capacity = len(prompts), max(map(len, prompts)) + longest
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32
    cache = BatchCache(base, rows, capacity, dtype, device)
    answers: list[list[int]] = [[] for _ in prompts]
    numbers = list(range(rows))  # of the prompts in the batch
    unfinished = set(numbers)
    tokens = [prompt[0] for prompt in prompts]
    for at in range(capacity - 1):
        ids = torch.tensor([tokens[number] for number in numbers], device=device)[:, None]
        attend = BatchStep(base, model.rotary("base"), cache)
        states = base(base.embed(ids).to(dtype), attend)[:, 0, -1]
        cache.lengths += 1
        for number, token in zip(numbers, base.logits(states).argmax(-1).tolist(), strict=True):
            prompt, answer = prompts[number], answers[number]
            if number not in unfinished:
                continue
            if at + 1 < len(prompt):
                tokens[number] = prompt[at + 1]
            elif token == end or len(answer) == longest:
                unfinished.remove(number)
            else:
                answer.append(token)
                tokens[number] = token
                if not goes_on(number, answer):
                    unfinished.remove(number)
        if not unfinished:
            break
        if 2 * len(unfinished) <= len(numbers):  # a smaller batch is faster; halving copies little
            kept = [row for row, number in enumerate(numbers) if number in unfinished]
            cache.keep_rows(kept)
            numbers = [numbers[row] for row in kept]
    return answers
