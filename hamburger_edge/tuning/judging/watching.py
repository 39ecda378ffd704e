"""Measure accuracy on held-out prompts during the tuning of a base, with greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.judges import Case, Judge
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.distillation.generation import BatchCache, BatchStep

SAMPLE = 64  # prompts per measurement


class AnswersRight:
    """A callable that returns the judge's mean score of a model's answers. It does not affect training."""

    def __init__(
        self,
        requests: Sequence[Request],
        judge: Judge,
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
            answers = greedy(model, prompts, self.end, self.longest)
        cases = [
            Case(request.prompt, request.expected, self.tokenizer.decode(answer))
            for request, answer in zip(self.requests, answers, strict=True)
        ]
        return {"right": self.judge(cases).score}


def greedy(model: Hamburger, prompts: Sequence[Sequence[int]], end: int, longest: int) -> list[list[int]]:
    """Return the greedy answer to each prompt, one token a slot, without its end token.

    Each step feeds one token of every row, of its prompt first and then of its answer.
    """
    base = model.base
    device = base.norm.weight.device
    rows, capacity = len(prompts), max(map(len, prompts)) + longest
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32
    cache = BatchCache(base, rows, capacity, dtype, device)
    answers: list[list[int]] = [[] for _ in prompts]
    open_rows = set(range(rows))
    tokens = [prompt[0] for prompt in prompts]
    for at in range(capacity - 1):
        ids = torch.tensor(tokens, device=device)[:, None]
        attend = BatchStep(base, model.rotary("base"), cache)
        states = base(base.embed(ids).to(dtype), attend)[:, 0, -1]
        cache.lengths += 1
        chosen = base.logits(states).argmax(-1).tolist()
        for row in list(open_rows):
            prompt = prompts[row]
            if at + 1 < len(prompt):
                tokens[row] = prompt[at + 1]
            elif chosen[row] == end or len(answers[row]) == longest:
                open_rows.remove(row)
            else:
                answers[row].append(chosen[row])
                tokens[row] = chosen[row]
        if not open_rows:
            break
    return answers
