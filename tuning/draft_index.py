"""Build the draft index of a task from its training answers; held-out answers calibrate its chances."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.draft_index import (
    COPY_CHANCES,
    ENTRY,
    HEADER,
    MOST_BYTES,
    DraftIndex,
    Guess,
    context_keys,
    pack,
)
from hamburger_edge.loop.drafting import Drafter
from hamburger_edge.models.checkpoints.facts import check_checkpoint, put_file
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import side
from hamburger_edge.support.files import DRAFT_INDEX
from hamburger_edge.tuning.encoding import Encoder
from hamburger_edge.tuning.examples import read_examples
from hamburger_edge.tuning.tune_recipe import TuneRecipe

LEAST_ANSWERS = 5  # distinct answers that must share an entry
BUCKETS = 25  # 0.05 wide up to 0.95, then 0.01
CONFIDENCE = 1.645  # standard errors of the floors: 95%, one-sided

Tokens = Sequence[int]


def build_draft_index(
    answers: Iterable[Tokens],
    held_out: Iterable[tuple[Tokens, Tokens]],
    vocab_size: int,
    least: int = LEAST_ANSWERS,
) -> bytes:
    """Return the file's bytes. `held_out` are pairs of prompt and answer outside the training set.

    An entry is a context of LENGTHS and the token that most answers continue it with; at least `least`
    different answers do. The rarest contexts are left out if the file would exceed MOST_BYTES.
    """
    shared: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)  # (length, key) -> token -> answers
    totals: Counter[tuple[int, int]] = Counter()
    for answer in {tuple(answer) for answer in answers}:
        seen: set[tuple[int, int, int]] = set()
        for at, token in enumerate(answer):
            for length, key in enumerate(context_keys(answer[:at])):
                if (length, key, token) not in seen:
                    seen.add((length, key, token))
                    shared[length, key][token] += 1
                    totals[length, key] += 1
    found = {
        context: (token, count, totals[context])
        for context, tokens in shared.items()
        for token, count in tokens.most_common(1)
        if count >= least
    }
    room = (MOST_BYTES - HEADER) // ENTRY
    kept = dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0]))[:room])
    # longer contexts win where two lengths share a key
    raw = {key: (token, count, total) for (_, key), (token, count, total) in sorted(kept.items())}
    pairs = list(held_out)
    chances = _calibrated(raw, pairs)
    entries = [
        (key, Guess(token, chance := chances[_bucket(count, total)], min(chance, _floor(count, total))))
        for key, (token, count, total) in raw.items()
    ]
    index = DraftIndex(pack(entries, least), vocab_size)
    return pack(entries, least, _copy_chances(index, pairs))


def index_examples(
    checkpoint: Path, examples: Path, share: float = TuneRecipe.share, least: int = LEAST_ANSWERS
) -> DraftIndex:
    """Give a checkpoint an index of its examples; as in `tune`, a hash holds a share of the prompts out."""
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

    check_checkpoint(checkpoint)
    loaded = load_checkpoint(checkpoint)
    config = loaded.model.config
    template = ChatTemplate.from_json(loaded.chat_template)
    encoder = Encoder.of(template, Tokenizer(loaded.tokenizer), config.eos_ids)
    written = map(encoder.encode, read_examples(examples).examples)
    pairs = [question_and_answer(np.array(each.ids), np.array(each.roles)) for each in written]
    sides = [side(question, share) == "train" for question, _ in pairs]
    learned = [answer for (_, answer), learns in zip(pairs, sides, strict=True) if learns]
    held_out = [pair for pair, learns in zip(pairs, sides, strict=True) if not learns]
    return index_answers(checkpoint, learned, held_out, config.base.vocab_size, least)


def index_answers(
    checkpoint: Path,
    learned: Iterable[Tokens],
    held_out: Iterable[tuple[Tokens, Tokens]],
    vocab_size: int,
    least: int = LEAST_ANSWERS,
) -> DraftIndex:
    """Give a checkpoint an index of these answers: see `build_draft_index`."""
    data = build_draft_index(learned, held_out, vocab_size, least)
    put_file(checkpoint, DRAFT_INDEX, data)
    return DraftIndex(data, vocab_size)


def question_and_answer(ids: npt.NDArray[Any], roles: npt.NDArray[Any]) -> tuple[list[int], list[int]]:
    """Return the tokens before a conversation's first answer, and those of its answers."""
    answer = roles == ANSWER
    return ids[: answer.argmax() if answer.any() else 0].tolist(), ids[answer].tolist()


def _bucket(count: int, total: int) -> int:
    share = count / (total + 1)
    return int(share * 20) if share < 0.95 else min(BUCKETS - 1, 20 + int((share - 0.95) * 100))


def _calibrated(raw: dict[int, tuple[int, int, int]], pairs: list[tuple[Tokens, Tokens]]) -> list[float]:
    """Return each bucket's accuracy on held-out answers, smoothed toward its training share."""
    right, asked = [0] * BUCKETS, [0] * BUCKETS
    for _, answer in pairs:
        for at, token in enumerate(answer):
            entry = None
            for key in context_keys(answer[:at]):
                if key not in raw:
                    break
                entry = raw[key]
            if entry:
                bucket = _bucket(entry[1], entry[2])
                right[bucket] += token == entry[0]
                asked[bucket] += 1
    middles = [(n + 0.5) / 20 if n < 19 else 0.95 + max(0, n - 19.5) / 100 for n in range(BUCKETS)]
    prior = 2  # weight of the training share, in held-out tokens
    counted = zip(right, asked, middles, strict=True)
    return [(good + prior * middle) / (all_ + prior) for good, all_, middle in counted]


def _floor(count: int, total: int) -> float:
    """Return the Wilson lower bound of `count / total`."""
    share, square = count / total, CONFIDENCE**2
    spread = CONFIDENCE * math.sqrt((share * (1 - share) + square / (4 * total)) / total)
    return (share + square / (2 * total) - spread) / (1 + square / total)


def _copy_chances(index: DraftIndex, pairs: list[tuple[Tokens, Tokens]]) -> list[float]:
    """Return the accuracy of copied tokens by match length, where the index has no better guess."""
    right, asked = [0.0] * len(COPY_CHANCES), [0] * len(COPY_CHANCES)
    for prompt, answer in pairs:
        drafter = Drafter(prompt, None)
        for at in range(1, len(answer)):
            copied, known = drafter.copy(answer[:at]), index.guess(answer[:at])
            if copied and (known is None or known.chance < copied.chance):
                length = drafter.match(answer[:at], copied.place) - 1
                right[length] += copied.token == answer[at]
                asked[length] += 1
    prior = 4
    counted = zip(right, asked, COPY_CHANCES, strict=True)
    return [(good + prior * usual) / (all_ + prior) for good, all_, usual in counted]
