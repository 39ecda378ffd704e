"""Answers of a base in training."""

from __future__ import annotations

import torch
from toy_models import toy_model

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import WholeSequence
from hamburger_edge.models.training.updates.lora import add_lora
from hamburger_edge.tuning.watching import greedy

PROMPTS = [[5, 9, 2, 7], [3], [11, 4, 4, 8, 1, 6]]


def one_by_one(model: Hamburger, prompt: list[int], end: int, longest: int) -> list[int]:
    """All tokens anew for every token."""
    ids, answer = list(prompt), list[int]()
    while len(answer) < longest:
        attend = WholeSequence(model.config.base, model.rotary("base")[None, None, : len(ids)])
        states = model.base(model.base.embed_tokens(torch.tensor([ids])), attend)[0, -1, -1]
        token = int(model.base.logits(states).argmax())
        if token == end:
            break
        ids.append(token)
        answer.append(token)
    return answer


@torch.no_grad()
def test_prompts_of_any_length_are_answered_together_as_one_by_one() -> None:
    """With an update in training, which must not be folded in or rounded by a look."""
    torch.manual_seed(1)
    model = toy_model()
    for parameter in add_lora(model.base.layers, 2):
        parameter.normal_(std=0.3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    end = one_by_one(model, PROMPTS[0], -1, 6)[3]  # so that one answer ends early
    expected = [one_by_one(model, prompt, end, 6) for prompt in PROMPTS]
    assert len(expected[0]) <= 3
    assert max(map(len, expected)) == 6
    assert greedy(model, PROMPTS, end, 6) == expected
    after = model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
