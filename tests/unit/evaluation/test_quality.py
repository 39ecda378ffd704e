"""The harness measured: backends with known errors must be reported to have exactly these.

The toy language depends on the text alone, so every figure can be worked out here in the obvious way.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scripted_backend import ScriptedBackend, info

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.base_judge import Judge, JudgedAnswer, ask, prompt_ids
from hamburger_edge.evaluation.checks import Check, Prompt
from hamburger_edge.evaluation.figures import reliability
from hamburger_edge.evaluation.models import own_base
from hamburger_edge.evaluation.quality import EvalPlan, Evaluation, _Estimate, quick
from hamburger_edge.evaluation.quality_report import QualityReport
from hamburger_edge.evaluation.quality_tables import tables
from hamburger_edge.model import Model

PROMPTS = [Prompt(f"the cat {word} {n}", word) for word in ("sat", "mat") for n in range(6)]
GREEDY = {"max_tokens": 40, "ignore_eos": True}


@dataclass
class Damaged(ScriptedBackend):
    """Its base says something else than it should, in a share of all places."""

    damage: float = 0.0

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        wrong = np.random.default_rng([7, *text]).random() < self.damage
        return super().scores(text, salt=5 if wrong and salt == 0 else salt)


def scripted(tokenizer: Tokenizer, backend: type[ScriptedBackend] = ScriptedBackend, **options: Any) -> Model:
    fields = {name: options.pop(name) for name in ("stop_rule", "cache_slots") if name in options}
    described = info(vocab_size=tokenizer.vocab_size, **fields)
    return Model(backend(described, **{"eos_rate": 0.0, **options}), tokenizer, ChatTemplate.preset("chatml"))


def truth(model: Model, answer: JudgedAnswer, prompt: Prompt) -> tuple[list[int], float]:
    """What an undamaged base would choose at every place, and the answer's nats under it."""
    base = ScriptedBackend(model.info, eos_rate=0.0)
    text, best, nats = prompt_ids(model, prompt.text), [], 0.0
    for token in answer.tokens:
        scores = base.scores(tuple(text)).astype(np.float64)
        best.append(int(scores.argmax()))
        nats += math.log(np.exp(scores).sum()) - scores[token]
        text.append(token)
    return best, nats


def evaluate(judge: Model, models: dict[str, Model], plan: EvalPlan, prompts: list[Prompt]) -> QualityReport:
    evaluation = Evaluation(own_base(judge, "judge"), prompts, plan, models=len(models))
    return evaluation.report([evaluation.run(name, model) for name, model in models.items()], "a list")


@pytest.mark.parametrize("agreement", [1.0, 0.8, 0.3])
def test_known_agreement_nll_and_prefix(tokenizer: Tokenizer, agreement: float) -> None:
    judge, model = scripted(tokenizer), scripted(tokenizer, agreement=agreement, p_stop=0.15)
    report = evaluate(judge, {"toy": model}, EvalPlan((0.8,), max_tokens=40), PROMPTS)
    [found] = report.models
    plain, merged = found.rows
    assert (plain.confidence, merged.confidence) == (1, 0.8)
    assert plain.all.tokens_per_step == plain.all.kv_compression == plain.all.agreement == 1
    assert plain.all.nll_difference == plain.all.kv_saved == 0
    assert plain.all.micro_agreement is None
    assert plain.all.prefix == 40

    answers = [ask(model, Judge(judge), p, i, max_tokens=40, confidence=0.8) for i, p in enumerate(PROMPTS)]
    right, firsts, prefixes, nats = [], [], [], 0.0
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        best, lost = truth(model, answer, prompt)
        right += [token == choice for token, choice in zip(answer.tokens, best, strict=True)]
        firsts += [i == 0 for group in answer.groups for i in range(len(group))]
        nats += lost
        alone = ScriptedBackend(model.info, eos_rate=0.0).plain(prompt_ids(model, prompt.text), 40)
        same = [a == b for a, b in zip(answer.tokens, alone, strict=True)]
        prefixes.append([*same, False].index(False))
    groups = [group for answer in answers for group in answer.groups]
    figures = merged.all
    assert figures.tokens == 40 * len(PROMPTS)
    assert figures.tokens_per_step == figures.tokens / len(groups)
    assert figures.kv_compression == figures.tokens_per_step
    assert figures.group_shares[4] > 0.9  # p_stop is low
    assert figures.agreement == pytest.approx(np.mean(right))
    assert figures.first_agreement == 1  # what the base says itself is never wrong
    assert figures.micro_agreement == pytest.approx(np.mean(np.array(right)[~np.array(firsts)]))
    assert figures.micro_agreement == pytest.approx(agreement, abs=0.06)
    assert figures.nll == pytest.approx(nats / figures.tokens, rel=1e-4)
    assert figures.nll_difference == pytest.approx(nats / figures.tokens - report.base.all.nll, abs=1e-5)
    assert figures.prefix == figures.base_prefix == np.mean(prefixes)
    assert figures.identical == np.mean([length == 40 for length in prefixes])
    # the head promises 0.85 everywhere
    assert merged.calibration.counts[8] == sum(merged.calibration.counts) == firsts.count(False)
    assert merged.calibration.expected[8] == pytest.approx(0.85)
    assert merged.calibration.observed[8] == pytest.approx(figures.micro_agreement)
    assert merged.calibration.error == pytest.approx(abs(0.85 - figures.micro_agreement))


def test_refused_proposals_count_where_they_are_computed(tokenizer: Tokenizer) -> None:
    """By stop rule "after" the head can be judged on tokens that it refused."""
    model = scripted(tokenizer, agreement=0.6, stop_rule="after")
    judge = Judge(scripted(tokenizer))
    answers = [ask(model, judge, p, i, confidence=0.5, **GREEDY) for i, p in enumerate(PROMPTS)]
    found = reliability(answers)
    assert sum(found.counts) == model.backend.micro_calls  # type: ignore[attr-defined]
    assert sum(found.counts[:5]) > 50  # refused
    assert sum(found.counts[5:]) == sum(len(g) - 1 for answer in answers for g in answer.groups)
    for low, expected in enumerate(found.expected):
        assert expected is None or low / 10 <= expected <= (low + 1) / 10
    shares = [share for share in found.observed if share is not None]
    observed = np.average(shares, weights=[n for n in found.counts if n])
    assert observed == pytest.approx(0.6, abs=0.08)  # whatever the head says: its chances are noise here

    heard = reliability(
        [ask(scripted(tokenizer, agreement=0.6), judge, p, confidence=0.5, **GREEDY) for p in PROMPTS]
    )
    assert sum(heard.counts[:5]) == 0  # by rule "before" they are never computed


def test_the_watch_is_taken_off_again(tokenizer: Tokenizer) -> None:
    model = scripted(tokenizer)
    ask(model, Judge(model), PROMPTS[0], **GREEDY)
    assert model._engine.backend is model.backend
    with pytest.raises(InputError):
        ask(model, Judge(model), PROMPTS[0], confidence=2)
    assert model._engine.backend is model.backend
    assert model.generate("the cat", max_tokens=5).tokens


def test_a_judge_reads_in_pieces_what_it_would_read_at_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted(tokenizer)
    prompt, answer = list(range(5, 25)), list(range(30, 60))
    whole = Judge(model).read(prompt, answer)
    assert whole.nll.shape == whole.choices.shape == (30,)
    for chunk in (1, 7, 19, 20, 21):
        monkeypatch.setattr("hamburger_edge.evaluation.base_judge.CHUNK", chunk)
        parts = Judge(model).read(prompt, answer)
        assert np.array_equal(parts.choices, whole.choices)
        assert np.allclose(parts.nll, whole.nll)
    assert model.backend.slots == 0


def test_damaged_weights_and_merging_are_told_apart(tokenizer: Tokenizer) -> None:
    """One model has a worse base and does not merge, another a perfect base and a poor micro decoder."""
    models = {
        "weights": scripted(tokenizer, Damaged, damage=0.2, p_stop=1.0),
        "merging": scripted(tokenizer, agreement=0.7, p_stop=0.0),
    }
    report = evaluate(scripted(tokenizer), models, EvalPlan((0.5,), max_tokens=30), PROMPTS)
    weights, merging = report.losses
    assert weights.weights_nll > 0.2
    assert weights.merging_nll == 0
    assert merging.weights_nll == 0
    assert merging.merging_nll > 0.2
    [damaged, _] = report.models
    assert damaged.rows[0].all.agreement == pytest.approx(0.8, abs=0.08)
    assert damaged.rows[0].all.prefix == 30  # its own plain decoding is itself
    assert damaged.rows[0].all.base_prefix < 15  # the judge's is not


class Parrot(ScriptedBackend):
    """Goes round in a circle of three tokens if the prompt has an x in it."""

    mark = 0

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        scores = super().scores(text, salt)
        if self.mark in text[:40]:
            scores[100 + len(text) % 3] = 20
        scores[self.mark] = -20
        return scores


def test_looping_answers_are_counted_and_left_out(tokenizer: Tokenizer) -> None:
    Parrot.mark = tokenizer.encode("the x")[-1]
    prompts = [Prompt("the x"), Prompt("the cat"), Prompt("the mat"), Prompt("a x")]
    model = scripted(tokenizer, Parrot, p_stop=0.0, agreement=0.7)
    plan = EvalPlan((0.5,), max_tokens=40)
    report = evaluate(scripted(tokenizer, Parrot), {"parrot": model}, plan, prompts)
    row = report.models[0].rows[1]
    repeated = 1 - 3 / 37  # 37 4-grams, three different ones
    assert row.all.looping == 0.5
    assert row.all.repetition == pytest.approx(repeated / 2, abs=0.01)
    assert (row.non_looping.answers, row.non_looping.looping) == (2, 0)
    assert row.non_looping.repetition == pytest.approx(0, abs=0.01)
    assert row.non_looping.nll > row.all.nll + 0.5  # loops are easy to predict
    alone = [ask(model, Judge(model), p, i, confidence=1.0, **GREEDY) for i, p in enumerate(prompts)]
    straight = [a for a in alone if a.number in (1, 2)]
    base = sum(a.nll for a in straight) / 80
    assert row.non_looping.nll_difference == pytest.approx(row.non_looping.nll - base, abs=1e-4)


def test_right_answers_and_kinds(tokenizer: Tokenizer) -> None:
    judge = scripted(tokenizer)
    said = ask(judge, Judge(judge), PROMPTS[0], confidence=1.0, max_tokens=8).text
    prompts = [
        Prompt(PROMPTS[0].text, "one", Check("exact", said)),
        Prompt(PROMPTS[0].text, "one", Check("exact", said + "!")),
        Prompt(PROMPTS[1].text, "two"),
    ]
    report = evaluate(judge, {"judge": judge}, EvalPlan((1.0,), max_tokens=8), prompts)
    [row] = report.models[0].rows
    assert (row.all.checked, row.all.right) == (2, 0.5)
    assert set(row.kinds) == {"one", "two"}
    assert (row.kinds["one"].right, row.kinds["two"].right) == (0.5, None)
    assert row == report.base  # the same model at the same confidence was not run again


def test_sampling_is_compared_with_plain_decoding_of_the_same_seed(tokenizer: Tokenizer) -> None:
    model = scripted(tokenizer, p_stop=0.0)
    plan = EvalPlan((0.5,), max_tokens=20, temperature=1.0, seed=3)
    report = evaluate(model, {"toy": model}, plan, PROMPTS)
    plain, merged = report.models[0].rows
    assert merged.all.prefix == plain.all.prefix == 20  # same draws, same scores
    assert merged.all.base_prefix < 20  # but the base's greedy answers are others
    assert plain.all.nll_difference > 0
    assert report.base.all.agreement == 1
    assert "with what sampling costs" in tables(report)


def test_prompts_that_do_not_fit_are_left_out_and_said(tokenizer: Tokenizer) -> None:
    small, large = scripted(tokenizer, cache_slots=70), scripted(tokenizer)
    prompts = [Prompt("the cat"), Prompt("0123456789" * 8, "long")]
    report = evaluate(large, {"large": large, "small": small}, EvalPlan((0.5,), max_tokens=20), prompts)
    assert [model.rows[0].all.answers for model in report.models] == [2, 1]
    [entry] = report.skipped
    assert (entry["prompt"], entry["kind"], entry["has"], entry["models"]) == (1, "long", 70, ["small"])
    assert "some of them only by small" in tables(report)
    with pytest.raises(InputError, match="no prompt fits"):
        evaluate(small, {"small": small}, EvalPlan(max_tokens=80), prompts)


def test_a_judge_of_another_language_is_refused(tokenizer: Tokenizer) -> None:
    other = Model(ScriptedBackend(info(vocab_size=tokenizer.vocab_size)), tokenizer, ChatTemplate())
    with pytest.raises(InputError, match="the same tokens"):
        evaluate(scripted(tokenizer), {"other": other}, EvalPlan(max_tokens=4), PROMPTS[:1])


@pytest.mark.parametrize(
    "wrong", [{"confidences": (1.5,)}, {"max_tokens": 0}, {"temperature": -1}, {"seed": -1}]
)
def test_wrong_plans(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        EvalPlan(**wrong)


def test_plans_begin_plainly() -> None:
    assert EvalPlan((0.5, 0.9)).confidences == (1.0, 0.9, 0.5)
    prompts = [Prompt(str(n), "a" if n < 5 else "b") for n in range(9)]
    assert quick(prompts) == [prompts[n] for n in (0, 1, 5, 6)]


def test_the_estimate_follows_what_prompts_took() -> None:
    estimate = _Estimate(2)
    assert estimate.left([0, 1], [0, 1]) == ""
    for number, seconds in ((0, 10.0), (1, 30.0), (0, 20.0)):
        estimate.took(number, seconds)
    assert estimate.left([1], [0, 1]) == "about 75 s left"  # 30 in this pass, 15 and 30 in the next
    assert estimate.left([2], [0, 1, 2]) == "about 90 s left".replace("90 s", "2 min")


def test_report_as_json_and_as_text(tokenizer: Tokenizer) -> None:
    judge, model = scripted(tokenizer), scripted(tokenizer, agreement=0.5, p_stop=0.0)
    report = evaluate(judge, {"judge": judge, "toy": model}, EvalPlan((0.5,), max_tokens=12), PROMPTS)
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert set(data) == {
        *("format", "date", "machine", "versions", "settings"),
        *("prompts", "base", "models", "losses", "skipped"),
    }
    assert data["settings"] == {"confidences": [1.0, 0.5], "max_tokens": 12, "temperature": 0, "seed": 0}
    assert data["prompts"]["kinds"] == {"mat": 6, "sat": 6}
    assert [each["name"] for each in data["models"]] == ["judge", "toy"]
    row = data["models"][1]["rows"][1]
    assert set(row) == {"confidence", "all", "non_looping", "kinds", "calibration"}
    assert set(row["calibration"]) == {"expected", "observed", "counts", "error"}
    assert set(row["all"]) == set(data["base"]["all"]) == set(row["kinds"]["sat"])
    assert "description" in data["base"]
    text = tables(report)
    for words in ("plain base: the base of judge", "tok/step", "stop head of toy", "loss against the plain"):
        assert words in text
