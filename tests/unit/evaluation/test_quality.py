"""Figures of quality: models with known errors are reported to have exactly these.

The toy language depends on the text alone, so each test computes the expected figures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.scripted_backend import ScriptedBackend, info

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import Check, Prompt
from hamburger_edge.evaluation.likelihood.base_judge import Judge, ask
from hamburger_edge.evaluation.likelihood.models import own_base
from hamburger_edge.evaluation.likelihood.quality import Evaluation, QualityPlan, quick
from hamburger_edge.evaluation.likelihood.quality_report import QualityReport
from hamburger_edge.model import Model

PROMPTS = [Prompt(f"the cat {word} {n}", word) for word in ("sat", "mat") for n in range(6)]
GREEDY = {"max_tokens": 40, "ignore_eos": True}


@dataclass
class Damaged(ScriptedBackend):
    """Its base has other scores than it should, in a share of all positions."""

    damage: float = 0.0

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        wrong = np.random.default_rng([7, *text]).random() < self.damage
        return super().scores(text, salt=5 if wrong and salt == 0 else salt)


def scripted(tokenizer: Tokenizer, backend: type[ScriptedBackend] = ScriptedBackend, **options: Any) -> Model:
    fields = {name: options.pop(name) for name in ("stop_rule", "cache_slots") if name in options}
    described = info(vocab_size=tokenizer.vocab_size, **fields)
    return Model(backend(described, **{"eos_rate": 0.0, **options}), tokenizer, ChatTemplate.preset("chatml"))


def evaluate(
    judge: Model, models: dict[str, Model], plan: QualityPlan, prompts: list[Prompt]
) -> QualityReport:
    evaluation = Evaluation(own_base(judge, "judge"), prompts, plan)
    return evaluation.report([evaluation.run(name, model) for name, model in models.items()], "a list")


@pytest.mark.parametrize("agreement", [1.0, 0.6])
def test_agreement_of_a_micro_decoder_is_measured(tokenizer: Tokenizer, agreement: float) -> None:
    judge, model = scripted(tokenizer), scripted(tokenizer, agreement=agreement, p_stop=0.15)
    report = evaluate(judge, {"toy": model}, QualityPlan((0.8,), max_tokens=40), PROMPTS)
    [toy] = report.models
    assert [row.confidence for row in toy.rows] == [1, 0.8]
    plain, merged = (row.all for row in toy.rows)
    assert plain.tokens_per_step == plain.agreement == 1
    assert plain.nll_difference == 0
    assert plain.micro_agreement is None

    assert merged.tokens == 40 * len(PROMPTS)
    assert merged.tokens_per_step > 3.6
    assert merged.group_shares[4] > 0.9  # p_stop is low
    assert merged.first_agreement == 1  # the base chooses the first token of a group
    assert merged.micro_agreement == pytest.approx(agreement, abs=0.06)
    groups = merged.tokens / merged.tokens_per_step
    agreeing = groups + merged.micro_agreement * (merged.tokens - groups)
    assert merged.agreement == pytest.approx(agreeing / merged.tokens)
    assert merged.nll_difference == pytest.approx(merged.nll - report.base.all.nll, abs=1e-5)


@pytest.mark.parametrize("chunk", [1, 7, 19, 20, 21, 128])
def test_judge_reads_an_answer_in_chunks(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("hamburger_edge.evaluation.likelihood.base_judge.CHUNK", chunk)
    model = scripted(tokenizer)
    backend: Any = model.backend
    prompt, answer = list(range(5, 25)), list(range(30, 60))
    scores = np.float64([backend.scores((*prompt, *answer[:at])) for at in range(30)])  # [30, vocabulary]
    reading = Judge(model).read(prompt, answer)
    assert np.array_equal(reading.choices, scores.argmax(1))
    assert np.allclose(reading.nll, np.log(np.exp(scores).sum(1)) - scores[range(30), answer], rtol=1e-4)
    assert backend.slots == 0


def test_losses_of_weights_and_of_merging_are_separate(tokenizer: Tokenizer) -> None:
    """One model has a worse base and does not merge, another a perfect base and a poor micro decoder."""
    models = {
        "weights": scripted(tokenizer, Damaged, damage=0.2, p_stop=1.0),
        "merging": scripted(tokenizer, agreement=0.7, p_stop=0.0),
    }
    report = evaluate(scripted(tokenizer), models, QualityPlan((0.5,), max_tokens=30), PROMPTS)
    weights, merging = ([row.all for row in model.rows] for model in report.models)
    assert weights[0].nll_difference > 0.2
    assert weights[0].agreement == pytest.approx(0.8, abs=0.08)
    assert weights[1].nll == weights[0].nll
    assert merging[0].nll_difference == 0
    assert merging[1].nll_difference > 0.2


class Parrot(ScriptedBackend):
    """Repeats three tokens if the prompt has an x."""

    mark = 0

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        scores = super().scores(text, salt)
        if self.mark in text[:40]:
            scores[100 + len(text) % 3] = 20
        scores[self.mark] = -20
        return scores


def test_looping_answers_are_counted_and_excluded(tokenizer: Tokenizer) -> None:
    Parrot.mark = tokenizer.encode("the x")[-1]
    prompts = [Prompt("the x"), Prompt("the cat"), Prompt("the mat"), Prompt("a x")]
    model = scripted(tokenizer, Parrot, p_stop=0.0, agreement=0.7)
    plan = QualityPlan((0.5,), max_tokens=40)
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
    text = ask(judge, Judge(judge), PROMPTS[0], confidence=1.0, max_tokens=8).text
    prompts = [
        Prompt(PROMPTS[0].text, "one", Check("exact", text)),
        Prompt(PROMPTS[0].text, "one", Check("exact", text + "!")),
        Prompt(PROMPTS[1].text, "two"),
    ]
    report = evaluate(judge, {"judge": judge}, QualityPlan((1.0,), max_tokens=8), prompts)
    [row] = report.models[0].rows
    assert (row.all.checked, row.all.right) == (2, 0.5)
    assert set(row.kinds) == {"one", "two"}
    assert (row.kinds["one"].right, row.kinds["two"].right) == (0.5, None)
    assert row == report.base  # the same answers


def test_sampling_is_compared_with_plain_decoding_of_the_same_seed(tokenizer: Tokenizer) -> None:
    model = scripted(tokenizer, p_stop=0.0)
    plan = QualityPlan((0.5,), max_tokens=20, temperature=1.0, seed=3)
    report = evaluate(model, {"toy": model}, plan, PROMPTS)
    plain, merged = report.models[0].rows
    assert merged.all.nll == plain.all.nll  # same draws, same scores
    assert plain.all.nll_difference > 0
    assert report.base.all.agreement == 1


def test_prompts_that_do_not_fit_are_left_out_and_other_tokens_refused(tokenizer: Tokenizer) -> None:
    small, large = scripted(tokenizer, cache_slots=70), scripted(tokenizer)
    prompts = [Prompt("the cat"), Prompt("0123456789" * 8, "long")]
    report = evaluate(large, {"large": large, "small": small}, QualityPlan((0.5,), max_tokens=20), prompts)
    assert [model.rows[0].all.answers for model in report.models] == [2, 1]
    [entry] = report.skipped
    assert (entry.prompt, entry.kind, entry.models) == (1, "long", ["small"])
    assert "some of them only by small" in str(report)
    with pytest.raises(InputError, match="no prompt fits"):
        evaluate(small, {"small": small}, QualityPlan(max_tokens=80), prompts)
    other = Model(ScriptedBackend(info(vocab_size=tokenizer.vocab_size)), tokenizer, ChatTemplate())
    with pytest.raises(InputError, match="the same tokens"):
        evaluate(large, {"other": other}, QualityPlan(max_tokens=4), PROMPTS[:1])


def test_plans_begin_plainly_are_checked_and_may_be_quick() -> None:
    assert QualityPlan((0.5, 0.9)).confidences == (1.0, 0.9, 0.5)
    for wrong in ({"confidences": (1.5,)}, {"max_tokens": 0}, {"temperature": -1}, {"seed": -1}):
        with pytest.raises(InputError):
            QualityPlan(**wrong)
    prompts = [Prompt(str(n), "a" if n < 5 else "b") for n in range(9)]
    assert quick(prompts) == [prompts[n] for n in (0, 1, 5, 6)]


def test_report_as_json_and_as_text(tokenizer: Tokenizer) -> None:
    judge, model = scripted(tokenizer), scripted(tokenizer, agreement=0.5, p_stop=0.0)
    report = evaluate(judge, {"judge": judge, "toy": model}, QualityPlan((0.5,), max_tokens=12), PROMPTS)
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert {"format", "date", "machine", "versions", "base", "skipped"} < set(data)
    assert data["settings"] == {"confidences": [1.0, 0.5], "max_tokens": 12, "temperature": 0, "seed": 0}
    assert data["prompts"]["kinds"] == {"mat": 6, "sat": 6}
    row = data["models"][1]["rows"][1]
    assert set(row) == {"confidence", "all", "non_looping", "kinds"}
    text = str(report)
    for words in ("plain base: the base of judge", "12 of a list (6 mat, 6 sat)", "tok/step", "+plain"):
        assert words in text
