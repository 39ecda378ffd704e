"""What a base makes of given answers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_distillation
from toy_models import toy_model

from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
from hamburger_edge.models.distillation.logits import likeliest
from hamburger_edge.models.distillation.written import WrittenConversation, write_conversations
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.scoring import score


@pytest.mark.parametrize("rows", [1, 5])
def test_answers_are_scored_as_their_own_base_scored_them(tmp_path: Path, rows: int) -> None:
    """Read anew in one pass, a base's answers have the entropies and choices that it had as it wrote them."""
    toy_distillation.make(tmp_path / "distilled")
    distilled = DistilledData.load(tmp_path / "distilled")
    conversations = []
    for start, stop in zip(distilled.starts[:-1], distilled.starts[1:], strict=True):
        one = WrittenConversation()
        for token, role in zip(distilled.ids[start:stop], distilled.roles[start:stop], strict=True):
            one.add([int(token)], learned=role == ANSWER)
        conversations.append(one)
    write_conversations(tmp_path / "written", "given", conversations, {"base": "toy"})
    written = DistilledData.load(tmp_path / "written")
    assert np.array_equal(written.ids, distilled.ids)
    answers = distilled.roles == ANSWER
    assert np.array_equal(written.roles == ANSWER, answers)
    assert set(written.roles.tolist()) == {ANSWER, TEMPLATE}
    model = toy_model()
    model.base.load_state_dict(toy_distillation.toy_base().state_dict())
    scored = score(model, written, rows=rows, row_slots=120, top_k=4, autocast=nullcontext())
    assert scored["entropies"][answers] == pytest.approx(distilled.entropies[answers], abs=4e-3)
    assert not scored["entropies"][~answers].any()
    same = scored["top_ids"][answers] == distilled.top_ids[answers]
    assert same.mean() > 0.99  # but for what is as likely as its neighbour
    values = scored["top_log_probabilities"][answers]
    assert values == pytest.approx(distilled.top_log_probabilities[answers], abs=1e-2)


def test_conversations_longer_than_a_row_are_scored_up_to_its_end(tmp_path: Path) -> None:
    one = WrittenConversation()
    one.add([1, 3])
    one.add(range(5, 65), learned=True)
    write_conversations(tmp_path, "given", [one], {"base": "toy"})
    data = DistilledData.load(tmp_path)
    with torch.inference_mode():
        scored = score(toy_model(), data, rows=2, row_slots=20, top_k=2, autocast=nullcontext())
    assert (scored["entropies"][2:20] > 0).all()
    assert not scored["entropies"][21:].any()


@pytest.mark.parametrize("vocab", [100, 2560, 10_003])
def test_the_likeliest_tokens_of_a_large_vocabulary(vocab: int) -> None:
    """Also those behind the last whole chunk, and many in one chunk."""
    logits = torch.randn(5, vocab, generator=torch.Generator().manual_seed(0))
    logits[1, :16] += 9
    logits[2, -3:] += 9
    values, ids = likeliest(logits, 4)
    assert torch.equal(values, logits.topk(4).values)
    assert torch.equal(ids, logits.topk(4).indices)
