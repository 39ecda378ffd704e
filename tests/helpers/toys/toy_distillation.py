"""A toy base that generates both sides of a conversation."""

from __future__ import annotations

from pathlib import Path

import torch

from hamburger_edge.models.architecture.llama import Base, WholeSequence, rotary_tables
from hamburger_edge.models.distillation.conversations import DistillSettings, TurnTokens
from hamburger_edge.models.distillation.data_manifest import DataManifest
from hamburger_edge.models.distillation.distill import distill
from helpers.toys.toy_models import toy_model

TURNS = TurnTokens(prefix=(1, 90, 91), user_to_answer=(3, 1, 92), answer_to_user=(3, 1, 90, 91), end=2)
SETTINGS = DistillSettings(
    tokens=900, seed=4, rows=5, shard_conversations=24, top_k=4, max_question=40, min_question=1,
    max_answer=40, multi_turn=0.8, given=0.5, context=120, max_repetition=0.9,
)  # fmt: skip
PROMPTS = [[10 + i, 20 + i, 30] for i in range(9)]


def toy_base(**changes: object) -> Base:
    """Unsure enough of everything, and fond enough of the end token, that conversations end and differ."""
    base = toy_model(**changes).base
    with torch.no_grad():
        base.embed_tokens.weight.mul_(0.25)
        attend = WholeSequence(base.config, rotary_tables(base.config, 90)[None, None])
        states = base(base.embed_tokens(torch.arange(3, 93))[None], attend)[0, :, -1]
        usual = states.mean(0)
        base.embed_tokens.weight[TURNS.end] = 2.0 * usual / usual.square().sum()
    return base


def make(folder: Path, **changes: object) -> DataManifest:
    settings = DistillSettings(**{**vars(SETTINGS), **changes})  # type: ignore[arg-type]
    return distill(toy_base(), folder, settings, TURNS, PROMPTS, {"base": "toy"}, dtype=torch.float32)
