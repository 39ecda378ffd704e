"""Losses against slow definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.toys.toy_models import toy_model
from helpers.toys.training_data_files import DataFiles, batches_of, first_batch
from torch.utils._python_dispatch import TorchDispatchMode

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.distillation import logits as logits_module
from hamburger_edge.models.training.cross_entropy import HeadCrossEntropy, SoftCrossEntropy, soft_targets
from hamburger_edge.models.training.data.batches import Cuts, DistilledData
from hamburger_edge.models.training.objective import LossWeights, Objective, average, wrongness
from hamburger_edge.models.training.own_groups import own_lengths
from hamburger_edge.models.training.updates.lora import LoraLinear, add_lora
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend


def conversations(seed: int = 0) -> DistilledData:
    draw = np.random.default_rng(seed)
    roles = [
        [0] * int(draw.integers(2, 6)) + [2] * int(draw.integers(3, 12)) + [0, 1] + [2] * 5 for _ in range(7)
    ]
    return DataFiles.in_memory(roles=roles, seed=seed)


@pytest.mark.parametrize(
    ("rule", "draft_vocab", "stop_rule"),
    [("token", 0, "before"), ("token", 60, "after"), ("slot", 0, "after"), ("slot", 60, "before")],
)
@torch.no_grad()
def test_packed_loss_equals_a_loop_over_groups(rule: str, draft_vocab: int, stop_rule: str) -> None:
    """Conversation by conversation, slot by slot, stepped through a cache; sums written out by hand."""
    model = toy_model(position_rule=rule, draft_vocab_size=draft_vocab, stop_rule=stop_rule)
    data = conversations()
    weights = LossWeights(first=0.7, micro=1.3, stop=0.4, hard=0.2)
    usual = model.draft_vocab.numpy() if draft_vocab else None
    cuts = Cuts(entropy=0.5, random=0.4)
    batches = batches_of(data, draft_vocab=usual, rows=3, row_slots=40, cuts=cuts, seed=3)
    [rows] = batches.plan(0)
    assert any(len(row) > 1 for row in rows), "nothing is packed"
    batch = batches.build(rows)
    sizes = batch.groups.sizes.unique().tolist()
    assert {1, 2, 3} <= set(sizes), "no merged slots"
    got = Objective(model, weights)(batch)

    sums = {"first": [], "micro": [], "stop": [], "attempt": [], "agree": [], "accepted": []}
    lengths = []
    for row in rows:
        for slots in row:
            loop(model, data, slots, weights.hard, sums, lengths)
    means = {name: sum(values) / max(len(values), 1) for name, values in sums.items()}
    if draft_vocab:
        assert len(sums["stop"]) > 1.1 * len(sums["micro"]), "the draft vocabulary holds everything"
    expected = 0.7 * means["first"] + 1.3 * means["micro"] + 0.4 * (means["stop"] + means["attempt"])
    assert got["loss"].item() == pytest.approx(expected, rel=1e-4)
    assert got["first_loss"].tolist() == pytest.approx([sum(sums["first"]), len(sums["first"])], rel=1e-4)
    assert got["micro_loss"].tolist() == pytest.approx([sum(sums["micro"]), len(sums["micro"])], rel=1e-4)
    assert got["group_length@0.8"].tolist() == [sum(lengths), len(lengths)]
    assert got["micro_agree_1"].tolist() == [sum(sums["agree"]), len(sums["agree"])]
    assert got["agree@0.8"].tolist() == [sum(sums["accepted"]), len(sums["accepted"])]
    stops, rights, judged = Objective(model, weights).stops_and_rights(batch)  # what calibration reads
    stops, wrong = stops[judged], 1 - rights[judged].float()
    found = torch.nn.functional.binary_cross_entropy_with_logits(stops, wrong, reduction="none")
    assert sorted(found.tolist()) == pytest.approx(sorted(sums["stop"]), rel=1e-3, abs=1e-5)


@torch.no_grad()
def test_own_lengths_equal_those_of_generation() -> None:
    """Text with runs of the micro decoder's own choices in it, found again token by token."""
    model = toy_model(position_rule="token", draft_vocab_size=60)
    backend, draw = TorchBackend(model, cache_slots=64), np.random.default_rng(1)

    def says(ids: list[int], length: int) -> list[int]:
        """The micro decoder's choice behind each of the last `length` tokens, which are one group."""
        backend.truncate(0)
        before = ids[:-length]
        read = backend.macro([(token,) for token in before], range(len(before)), [len(before) - 1])
        backend.micro_begin(read.features[0])
        scores = [backend.micro(token).logits for token in ids[-length:]]
        return [int(model.draft_vocab[int(each.argmax())]) for each in scores]

    ids = [int(token) for token in draw.integers(3, 97, 6)]
    while len(ids) < 30:
        ids.append(int(draw.integers(3, 97)))
        for length in range(1, int(draw.integers(1, 5))):
            ids.append(says(ids, length)[-1])
    roles = [0] * 6 + [2] * (len(ids) - 6)
    data = DataFiles.in_memory(roles=[roles], ids=[ids])
    usual = model.draft_vocab.numpy()
    batches = batches_of(data, [0], row_slots=len(ids), draft_vocab=usual)
    found = own_lengths(Objective(model, LossWeights()), batches, torch.device("cpu"))
    expected = [1] * 6
    for i in range(6, len(ids)):
        length = 1
        while length < 4 and i + length < len(ids) and says(ids[: i + length], length)[-1] == ids[i + length]:
            length += 1
        expected.append(length)
    assert found.tolist() == expected
    assert {1, 2, 3, 4} == set(expected)
    merging = batches_of(data, [0], row_slots=64, cuts=Cuts(0.0, 0.0, agreement=1.0), draft_vocab=usual)
    merging.own_lengths = found
    [[[slots]]] = merging.plan(0)
    at = 6
    for size in slots.sizes[6:]:
        assert size == expected[at]
        at += size
    assert at == len(ids)


def loop(
    model: Hamburger, data: DistilledData, slots: object, hard: float, sums: dict, lengths: list
) -> None:
    """Every slot of one conversation, appended to a cache; then the tokens after it, one at a time."""
    backend = TorchBackend(model)
    place = {int(token): i for i, token in enumerate(model.draft_vocab)}
    position = -1
    for first, size, wanted in zip(slots.first, slots.sizes, slots.target_sizes, strict=True):
        position += int(size) if model.config.position_rule == "token" else 1
        said = backend.macro([data.ids[first : first + size].tolist()], [position], [0])
        if wanted == 0:
            continue
        after = first + size
        distribution = target(data, after, hard, {i: i for i in range(97)})
        sums["first"].append(-(distribution * torch.tensor(said.logits[0]).log_softmax(-1)).sum().item())
        stop, length = float(said.p_stop[0]), 1
        backend.micro_begin(said.features[0])
        # a token outside the draft vocabulary has a target of the stop head, but no draft
        later = after + wanted
        more = later < slots.first[-1] + slots.sizes[-1] and (data.roles[later - 1 :][:2] == 2).all()
        asked, goes_on = wanted + int(wanted < 4 and more), True
        for i in range(1, asked):
            step = backend.micro(int(data.ids[after + i - 1]))
            scores = torch.tensor(step.logits)
            if i < wanted:
                distribution = target(data, after + i, hard, place)
                sums["micro"].append(-(distribution * scores.log_softmax(-1)).sum().item())
            right = place.get(int(data.top_ids[after + i, 0])) == int(scores.argmax())
            if model.config.stop_rule == "after":  # the base's chance is of the attempt to draft
                if i == 1:
                    sums["attempt"].append(-np.log(1 - stop if right else stop))
                stop = step.p_stop
            sums["stop"].append(-np.log(1 - stop if right else stop))
            if i == 1:
                sums["agree"].append(right)
            goes_on = goes_on and 1 - stop >= 0.8
            if goes_on:
                length += 1
                sums["accepted"].append(right)
            stop = step.p_stop
        lengths.append(length)


def target(data: DistilledData, index: int, hard: float, place: dict[int, int]) -> torch.Tensor:
    """The base's distribution over the choices it could have there, mixed with the written token."""
    probabilities = torch.zeros(len(place))
    for token, log_p in zip(data.top_ids[index], data.top_log_probabilities[index], strict=True):
        if int(token) in place:
            probabilities[place[int(token)]] += float(np.exp(np.float32(log_p)))
    if probabilities.sum() > 0:
        probabilities *= (1 - hard) / probabilities.sum()
    probabilities[place[int(data.ids[index])]] += hard
    return probabilities / probabilities.sum()


@pytest.mark.parametrize(("rule", "every"), [("token", 1), ("slot", 2)])
@torch.no_grad()
def test_feature_distance_equals_a_loop_over_slots(rule: str, every: int) -> None:
    """Merged slots against the plain text, both stepped through a cache; the base moved by LoRA."""
    model, data = toy_model(position_rule=rule), conversations()
    plain = TorchBackend(toy_model(position_rule=rule))
    add_lora(model.base.layers, 2)
    for module in model.base.modules():
        if isinstance(module, LoraLinear):
            torch.nn.init.normal_(module.up, std=0.05)
    cuts = Cuts(entropy=0.5, random=0.5)
    batches = batches_of(data, rows=3, row_slots=40, cuts=cuts, seed=3)
    [rows] = batches.plan(0)
    weights = LossWeights(first=0, micro=0, features=2.0, features_every=every)
    got = Objective(model, weights)(batches.build(rows))
    assert got.keys() == {"loss", "features"}  # parts without a weight are left out

    moved = TorchBackend(model)
    seen, wanted = [], []
    for slots in (slots for row in rows[::every] for slots in row):
        position = -1
        for first, size in zip(slots.first, slots.sizes, strict=True):
            position += int(size) if rule == "token" else 1
            group = data.ids[first : first + size].tolist()
            seen.append(moved.macro([group], [position], [0]).features[0])
            after = [int(first + i - slots.first[0]) for i in range(size)]
            said = plain.macro([[token] for token in group], after, [int(size) - 1])
            wanted.append(said.features[0])
        moved.truncate(0)
        plain.truncate(0)
    student, teacher = (torch.tensor(np.stack(x)) for x in (seen, wanted))  # [N, F, d]
    distances = ((student - teacher) / teacher.std(0)).square().mean(-1)
    assert distances.mean() > 0.01
    assert got["loss"].item() == pytest.approx(2 * distances.mean().item(), rel=1e-4)
    assert got["features"].tolist() == pytest.approx([distances.sum().item(), distances.numel()], rel=1e-4)


@torch.no_grad()
def test_first_tokens_can_be_scored_in_some_batches() -> None:
    model = toy_model()
    batch = first_batch(conversations(), [0, 1, 2], row_slots=90)
    out, top_ids, top = model(batch.groups), batch.top_ids[:, 0], batch.top_log_probabilities[:, 0]
    logits = model.base.logits(out.final)
    losses = SoftCrossEntropy.apply(logits, *soft_targets(top_ids, top, out.targets[:, 0], 0.1))
    found = Objective(model, LossWeights(micro=0, first_every=3))(batch)
    assert found["loss"].item() == pytest.approx(losses[::3].mean().item(), rel=1e-5)
    log_base = top.log_softmax(-1)
    kl = (log_base.exp() * (log_base - logits.log_softmax(-1).gather(1, top_ids))).sum(-1)[::3]
    assert found["first_kl"].tolist() == pytest.approx([kl.sum().item(), len(kl)], rel=1e-4)


def test_certain_model_still_learns_in_16_bits() -> None:
    """The slope of a token that has a probability of 0.95 or 0.999 already is small, and not zero."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(70, 4000, generator=draw) * 2
    tokens = torch.randint(4000, (70, 1), generator=draw)
    others = logits.scatter(1, tokens, -torch.inf).logsumexp(1)
    wanted = torch.tensor([0.5, 0.9, 0.95, 0.99, 0.999]).repeat(14)
    logits.scatter_(1, tokens, (others + wanted.logit())[:, None])
    rounded = logits.bfloat16().requires_grad_()
    upstream = torch.linspace(-2, 2, 70)
    SoftCrossEntropy.apply(rounded, tokens, torch.ones(70, 1)).backward(upstream)
    exact = rounded.detach().float().requires_grad_()
    torch.nn.functional.cross_entropy(exact, tokens[:, 0], reduction="none").backward(upstream)
    torch.testing.assert_close(rounded.grad.float(), exact.grad, rtol=0.02, atol=1e-6)


def test_batch_without_an_answer_has_loss_zero() -> None:
    nothing = torch.zeros(0)
    assert average(nothing) == wrongness(nothing, nothing.bool()) == 0
    values, right = torch.randn(9), torch.rand(9) < 0.5
    torch.testing.assert_close(average(values), values.mean())
    expected = torch.nn.functional.binary_cross_entropy_with_logits(values, 1 - right.float())
    torch.testing.assert_close(wrongness(values, right), expected)


@pytest.mark.parametrize("frozen", [False, True])
def test_head_in_parts_equals_autograd(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits_module, "LOGITS_AT_ONCE", 3 * 50)  # three rows at a time
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (11, 4))  # an id may come twice in a row
    mixed, upstream = torch.rand(11, 4).softmax(-1), torch.randn(11)
    hidden = torch.randn(11, 6, requires_grad=True)
    head = torch.randn(50, 6, requires_grad=not frozen)
    learned = [hidden] if frozen else [hidden, head]
    found = HeadCrossEntropy.apply(hidden, head, ids, mixed, True)
    gradients = torch.autograd.grad(found[0], learned, upstream)
    logits = hidden @ head.T
    losses = -(mixed * logits.log_softmax(-1).gather(1, ids)).sum(-1)
    expected = losses, logits.gather(1, ids), logits.amax(-1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(losses, learned, upstream))


class Largest(TorchDispatchMode):
    """The numbers in the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else [out]:
            if isinstance(each, torch.Tensor):
                self.numel = max(self.numel, each.numel())
        return out


def test_training_never_holds_the_logits_of_all_rows() -> None:
    """A step over a vocabulary of 100,000 was one tensor of 100,000 numbers a row, several times over."""
    vocab, rows = 100_000, 400
    model = toy_model(vocab_size=vocab, draft_vocab_size=60, num_layers=1, taps=(0,))
    model.base.requires_grad_(False)
    data = DataFiles.in_memory(roles=[[0] + [2] * rows])
    shape = {"draft_vocab": model.draft_vocab.numpy(), "vocab_size": vocab, "row_slots": rows + 1}
    batch = first_batch(data, **shape)
    with Largest() as seen:
        Objective(model, LossWeights())(batch)["loss"].backward()
    assert vocab * 32 <= seen.numel <= logits_module.LOGITS_AT_ONCE < vocab * rows / 2


def test_soft_targets_fall_back_to_the_written_token() -> None:
    """No choice of the base is in the draft vocabulary: all weight on what was written."""
    ids, weights = soft_targets(
        torch.tensor([[-1, -1], [3, -1]]),
        torch.tensor([[-0.1, -2.0], [-1.0, -0.5]]),
        torch.tensor([7, 8]),
        0.1,
    )
    assert weights[0].tolist() == [0, 0, 1]
    assert weights[1].tolist() == pytest.approx([0.9, 0, 0.1])
    assert ids[:, 2].tolist() == [7, 8]
    assert (ids >= 0).all()
