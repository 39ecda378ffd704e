"""What a HAMburger's answers are worth, measured through the engine and judged by a plain base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from hamburger_edge.model import Model
from hamburger_edge.models.llama import Base, WholeSequence, rotary_tables
from hamburger_edge.models.text_statistics import four_gram_repetition


@dataclass(frozen=True)
class Measured:
    answers: int
    tokens: int
    tokens_per_step: float
    micro_agreement: float  # micro tokens that are the base's own choice after the same text
    first_agreement: float  # the same of groups' first tokens
    nll: float  # nats a token of the answers under the base
    right: float  # answers that equal the expected one, where there is one
    repetition: float  # mean four-gram repetition
    group_shares: dict[int, float]


@torch.inference_mode()
def measure(
    model: Model, base: Base, questions: Iterable[tuple[str, str | None]], **options: Any
) -> Measured:
    """`questions` come with the expected answer, where only one is right."""
    sizes: Counter[int] = Counter()
    agree: dict[bool, list[bool]] = {True: [], False: []}  # by "first of its group"
    rights, repetitions, losses = [], [], []
    for question, expected in questions:
        said = model.generate(question, reuse_prefix=False, **options)
        prompt = model.tokenizer.encode_parts(model.template.first_turn(question))
        scores = predictions(base, [*prompt, *said.tokens])[len(prompt) - 1 : -1]  # [tokens, vocab]
        tokens = torch.tensor(said.tokens)
        losses.append(-scores.gather(1, tokens[:, None]).sum().item())
        matches = (scores.argmax(1) == tokens).tolist()
        firsts = [i == 0 for group in said.groups for i in range(len(group))]
        for first, match in zip(firsts, matches, strict=True):
            agree[first].append(match)
        sizes.update(map(len, said.groups))
        repetitions.append(four_gram_repetition(said.tokens))
        if expected is not None:
            rights.append(said.text == expected)
    tokens_said = sum(size * count for size, count in sizes.items())
    return Measured(
        answers=len(losses),
        tokens=tokens_said,
        tokens_per_step=tokens_said / sizes.total(),
        micro_agreement=_mean(agree[False]),
        first_agreement=_mean(agree[True]),
        nll=sum(losses) / tokens_said,
        right=_mean(rights),
        repetition=_mean(repetitions),
        group_shares={size: sizes[size] / sizes.total() for size in sorted(sizes)},
    )


def predictions(base: Base, ids: list[int]) -> torch.Tensor:
    """Log-probabilities [tokens, vocab] of what follows each token, one token a slot."""
    cos, sin = rotary_tables(base.config, len(ids))
    attend = WholeSequence(base.config, cos[None, None], sin[None, None])
    features = base(base.embed_tokens(torch.tensor([ids])), attend)
    return base.logits(features[0, :, -1]).log_softmax(-1)


def as_row(found: Measured) -> dict[str, Any]:
    return {name: round(v, 4) if isinstance(v, float) else v for name, v in asdict(found).items()}


def _mean(values: list[Any]) -> float:
    return sum(values) / len(values) if values else float("nan")
