"""The training forward and the cached stepper are the same model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.toys.toy_models import toy_batch, toy_config, toy_model

from hamburger_edge.errors import SessionError
from hamburger_edge.models.architecture.documents import WholeDocuments
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger, block_diagonal, lengths
from hamburger_edge.models.architecture.llama import WholeSequence, rotary_tables
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

VARIANTS = [  # every pair of two values
    {"position_rule": rule, "micro_final_norm": norm, "draft_vocab_size": draft_vocab, "stop_rule": stop}
    for rule, norm, draft_vocab, stop in (
        ("token", True, 0, "before"),
        ("token", False, 40, "after"),
        ("slot", True, 40, "after"),
        ("slot", False, 0, "after"),
        ("slot", False, 40, "before"),
    )
]
PROMPT = [5, 9, 11, 3, 80]
GROUPS = [[7], [8, 9], [10, 11, 12], [13, 14, 15, 16], [17], [18, 19, 20, 21], [22, 23]]


def answer_positions(rule: str, prompt: int, groups: list[list[int]]) -> list[int]:
    """The definition, slot by slot: the last token it holds, or its index."""
    position, positions = prompt - 1, []
    for group in groups:
        position += len(group) if rule == "token" else 1
        positions.append(position)
    return positions


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
@torch.no_grad()
def test_stepping_equals_training_forward(variant: dict) -> None:
    model = toy_model(**variant)
    out = model(toy_batch(model, [(PROMPT, GROUPS)]))
    first, micro = model.base.logits(out.final), model.micro_logits(out.micro_hidden)
    judged = model.stop_logits(out.final)[:, None], model.stop_logits(out.micro_hidden, micro)
    stops = torch.cat(judged, dim=1).sigmoid()
    backend = TorchBackend(model)
    # prefill in two chunks, only the last row read out
    backend.macro([[t] for t in PROMPT[:2]], [0, 1], [])
    readout = backend.macro([[t] for t in PROMPT[2:]], [2, 3, 4], [2])
    positions = answer_positions(variant["position_rule"], len(PROMPT), GROUPS)
    for g, (group, position) in enumerate(zip(GROUPS, positions, strict=True)):
        assert_close(readout.logits[0], first[g])
        assert_close(readout.p_stop[0], stops[g, 0])
        backend.micro_begin(readout.features[0])
        for i, token in enumerate(group[:-1]):
            step = backend.micro(token)
            assert_close(step.logits, micro[g, i])
            assert_close(step.p_stop, stops[g, i + 1])
        readout = backend.macro([group], [position], [0])
    assert backend.slots == len(PROMPT) + len(GROUPS)


@pytest.mark.parametrize("residual", ["mean", "last"])
@torch.no_grad()
def test_embedder_by_its_definition(residual: str) -> None:
    """residual + Wo(attention of Wq(mean) over Wk/Wv([E ; P])), one group at a time; singles untouched."""
    model = toy_model(merge_residual=residual)
    e = model.embedder
    groups = torch.tensor([[4, 0, 0, 0], [4, 5, 0, 0], [4, 5, 6, 0], [9, 8, 7, 6]])
    sizes = torch.tensor([1, 2, 3, 4])
    got = model.embed(groups, sizes)
    torch.testing.assert_close(got[0], model.base.embed_tokens.weight[4], atol=0, rtol=0)
    for row in range(1, 4):
        E = model.base.embed_tokens(groups[row, : sizes[row]])
        pairs = torch.cat([E, e.places[: sizes[row]]], dim=-1)
        q, k, v = e.query(E.mean(0)), e.key(pairs), e.value(pairs)
        heads = []
        for h in range(e.heads):
            part = slice(h * 8, (h + 1) * 8)
            weights = (k[:, part] @ q[part] * 8**-0.5).softmax(0)
            heads.append(weights @ v[:, part])
        start = E.mean(0) if residual == "mean" else E[-1]
        torch.testing.assert_close(got[row], start + e.output(torch.cat(heads)), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(e.merge(E[None])[0], got[row], atol=1e-5, rtol=1e-5)  # what graphs export


@torch.no_grad()
def test_truncate_and_snapshot_restore_exactly() -> None:
    backend = TorchBackend(toy_model())
    backend.macro([[t] for t in PROMPT], range(5), [4])
    saved = backend.snapshot()
    first = backend.macro([[1, 2]], [6], [0]).logits
    backend.macro([[3]], [7], [0])
    backend.truncate(5)
    assert (backend.macro([[1, 2]], [6], [0]).logits == first).all()
    backend.truncate(0)
    backend.macro([[90], [91]], [0, 1], [1])
    for slots, damaged in ((4, saved), (5, {**saved, "keys": saved["keys"] * np.nan}), (5, {})):
        with pytest.raises(SessionError, match="saved cache"):
            backend.restore(damaged, slots)
    backend.restore(saved, 5)
    assert backend.slots == 5
    assert (backend.macro([[1, 2]], [6], [0]).logits == first).all()


def assert_close(got: object, want: torch.Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(got).float(), want.float(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("documents", [[11], [3, 17, 8, 1, 20, 9]])
def test_attention_in_plain_products_has_the_same_gradients(documents: list[int]) -> None:
    """Compare the CPU's attention in training with the fused kernel under a block-diagonal mask."""
    config = toy_config().base
    torch.manual_seed(0)
    S, heads = sum(documents), (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    rows = [torch.randn(1, S, n * config.head_dim, requires_grad=True) for n in heads]
    rotary = rotary_tables(config, S)[None, None]
    numbers = torch.arange(len(documents)).repeat_interleave(torch.tensor(documents))
    assert lengths(numbers[None]) == documents
    weights = torch.randn(1, S, config.num_heads * config.head_dim)
    fused = WholeSequence(config, rotary, block_diagonal(numbers[None]))
    results = []
    for attend in (fused, WholeDocuments(config, rotary, documents)):
        out = attend(0, *rows)
        results.append((out, *torch.autograd.grad(out, rows, weights)))
    torch.testing.assert_close(*results)


def pack(model: Hamburger, sequences: list) -> GroupBatch:
    """All sequences in one row, told apart by `documents`."""
    batches = [toy_batch(model, [s]) for s in sequences]
    for number, batch in enumerate(batches):
        batch.documents = torch.full_like(batch.sizes, number)
    return GroupBatch(
        **{name: torch.cat([getattr(b, name) for b in batches], dim=1) for name in vars(batches[0])}
    )


@pytest.mark.parametrize("rule", ["token", "slot"])
@torch.no_grad()
def test_batched_padded_and_packed_agree(rule: str) -> None:
    model = toy_model(position_rule=rule)
    sequences = [(PROMPT, GROUPS), ([1, 2], GROUPS[2:5]), ([4, 4, 4], [[30], [31, 32]])]
    alone = [model(toy_batch(model, [s])) for s in sequences]
    padded = model(toy_batch(model, sequences))
    packed = model(pack(model, sequences))
    for field in ("final", "micro_hidden"):
        expected = torch.cat([getattr(a, field) for a in alone])
        for batched in (padded, packed):
            valid = batched.valid[:, 1:] if field == "micro_hidden" else ...
            assert_close(getattr(batched, field)[valid], expected[valid])
