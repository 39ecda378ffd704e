"""The harness measured: backends with known errors must be reported to have exactly these.

The toy language depends on the text alone, so every figure can be worked out here in the obvious way.
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
from hamburger_edge.evaluation.base_judge import Judge, ask, prompt_ids
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
    """Its base predicts a wrong token at a share of all positions."""

    damage: float = 0.0

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        wrong = np.random.default_rng([7, *text]).random() < self.damage
        return super().scores(text, salt=5 if wrong and salt == 0 else salt)


def scripted(tokenizer: Tokenizer, backend: type[ScriptedBackend] = ScriptedBackend, **options: Any) -> Model:
    fields = {name: options.pop(name) for name in ("stop_rule", "cache_slots") if name in options}
    described = info(vocab_size=tokenizer.vocab_size, **fields)
    return Model(backend(described, **{"eos_rate": 0.0, **options}), tokenizer, ChatTemplate.preset("chatml"))


def evaluate(judge: Model, models: dict[str, Model], plan: EvalPlan, prompts: list[Prompt]) -> QualityReport:
    evaluation = Evaluation(own_base(judge, "judge"), prompts, plan, models=len(models))
    return evaluation.report([evaluation.run(name, model) for name, model in models.items()], "a list")


@pytest.mark.parametrize("agreement", [1.0, 0.6])
def test_report_has_the_known_agreement_and_prefix(tokenizer: Tokenizer, agreement: float) -> None:
    judge, model = scripted(tokenizer), scripted(tokenizer, agreement=agreement, p_stop=0.15)
    report = evaluate(judge, {"toy": model}, EvalPlan((0.8,), max_tokens=40), PROMPTS)
    [found] = report.models
    plain, merged = (row.all for row in found.rows)
    assert [row.confidence for row in found.rows] == [1, 0.8]
    assert plain.tokens_per_step == plain.kv_compression == plain.agreement == 1
    assert plain.nll_difference == plain.kv_saved == 0
    assert plain.micro_agreement is None
    assert plain.prefix == 40

    assert merged.tokens == 40 * len(PROMPTS)
    assert merged.tokens_per_step == merged.kv_compression > 3.6
    assert merged.group_shares[4] > 0.9  # p_stop is low
    groups = merged.tokens / merged.tokens_per_step
    merged_tokens = merged.tokens - groups  # those not first in a group
    assert merged.first_agreement == 1  # the base's own tokens always agree
    assert merged.micro_agreement == pytest.approx(agreement, abs=0.06)
    right = groups + merged.micro_agreement * merged_tokens
    assert merged.agreement == pytest.approx(right / merged.tokens)
    assert merged.nll_difference == pytest.approx(merged.nll - report.base.all.nll, abs=1e-5)
    prefixes = []
    for number, prompt in enumerate(PROMPTS):
        answer = ask(model, Judge(judge), prompt, number, max_tokens=40, confidence=0.8)
        alone = ScriptedBackend(model.info, eos_rate=0.0).plain(prompt_ids(model, prompt.text), 40)
        prefixes.append([*np.equal(answer.tokens, alone), False].index(False))
    assert merged.prefix == merged.base_prefix == np.mean(prefixes)
    assert merged.identical == np.mean([length == 40 for length in prefixes]) == (agreement == 1)
    calibration = found.rows[1].calibration  # the head promises 0.85 everywhere
    assert calibration.counts[8] == sum(calibration.counts) == pytest.approx(merged_tokens)
    assert calibration.expected[8] == pytest.approx(0.85)
    assert calibration.observed[8] == pytest.approx(merged.micro_agreement)
    assert calibration.error == pytest.approx(abs(0.85 - merged.micro_agreement))


def test_refused_drafts_count_where_they_are_computed(tokenizer: Tokenizer) -> None:
    """By stop rule "after" the head can be judged on tokens that it refused; by "before" they never are."""
    models = [scripted(tokenizer, agreement=0.6, stop_rule=rule) for rule in ("after", "before")]
    judge = Judge(scripted(tokenizer))
    answers = [
        [ask(model, judge, p, i, confidence=0.5, **GREEDY) for i, p in enumerate(PROMPTS)] for model in models
    ]
    found, heard = map(reliability, answers)
    assert sum(found.counts) == models[0].backend.micro_calls  # type: ignore[attr-defined]
    assert sum(found.counts[:5]) > 50  # refused
    assert sum(found.counts[5:]) == sum(len(group) - 1 for answer in answers[0] for group in answer.groups)
    for low, expected in enumerate(found.expected):
        assert expected is None or low / 10 <= expected <= (low + 1) / 10
    shares = [share for share in found.observed if share is not None]
    observed = np.average(shares, weights=[n for n in found.counts if n])
    assert observed == pytest.approx(0.6, abs=0.08)  # independent of the head, whose chances are noise here
    assert sum(heard.counts[:5]) == 0


def test_recorder_is_removed_after_the_run(tokenizer: Tokenizer) -> None:
    model = scripted(tokenizer)
    with pytest.raises(InputError):
        ask(model, Judge(model), PROMPTS[0], confidence=2)
    assert model.inference.engine.backend is model.backend


@pytest.mark.parametrize("chunk", [1, 7, 19, 20, 21, 128])
def test_judge_reads_the_scores_of_the_base_in_pieces(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("hamburger_edge.evaluation.base_judge.CHUNK", chunk)
    model = scripted(tokenizer)
    backend: Any = model.backend
    prompt, answer = list(range(5, 25)), list(range(30, 60))
    scores = np.float64([backend.scores((*prompt, *answer[:at])) for at in range(30)])  # [30, vocabulary]
    found = Judge(model).read(prompt, answer)
    assert np.array_equal(found.choices, scores.argmax(1))
    assert np.allclose(found.nll, np.log(np.exp(scores).sum(1)) - scores[range(30), answer], rtol=1e-4)
    assert backend.slots == 0


def test_damage_of_weights_and_of_merging_are_separate_figures(tokenizer: Tokenizer) -> None:
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


def test_looping_answers_are_counted_and_excluded(tokenizer: Tokenizer) -> None:
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


def test_correct_answers_are_counted_by_kind(tokenizer: Tokenizer) -> None:
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


def test_too_long_prompts_are_excluded_and_other_tokenizers_refused(tokenizer: Tokenizer) -> None:
    small, large = scripted(tokenizer, cache_slots=70), scripted(tokenizer)
    prompts = [Prompt("the cat"), Prompt("0123456789" * 8, "long")]
    report = evaluate(large, {"large": large, "small": small}, EvalPlan((0.5,), max_tokens=20), prompts)
    assert [model.rows[0].all.answers for model in report.models] == [2, 1]
    [entry] = report.skipped
    assert (entry["prompt"], entry["kind"], entry["has"], entry["models"]) == (1, "long", 70, ["small"])
    assert "some of them only by small" in tables(report)
    with pytest.raises(InputError, match="no prompt fits"):
        evaluate(small, {"small": small}, EvalPlan(max_tokens=80), prompts)
    other = Model(ScriptedBackend(info(vocab_size=tokenizer.vocab_size)), tokenizer, ChatTemplate())
    with pytest.raises(InputError, match="the same tokens"):
        evaluate(large, {"other": other}, EvalPlan(max_tokens=4), PROMPTS[:1])


def test_plan_starts_with_plain_decoding_and_is_validated() -> None:
    assert EvalPlan((0.5, 0.9)).confidences == (1.0, 0.9, 0.5)
    for wrong in ({"confidences": (1.5,)}, {"max_tokens": 0}, {"temperature": -1}, {"seed": -1}):
        with pytest.raises(InputError):
            EvalPlan(**wrong)
    prompts = [Prompt(str(n), "a" if n < 5 else "b") for n in range(9)]
    assert quick(prompts) == [prompts[n] for n in (0, 1, 5, 6)]


def test_time_estimate_follows_finished_prompts() -> None:
    estimate = _Estimate(2)
    assert estimate.left([0, 1], [0, 1]) == ""
    for number, seconds in ((0, 10.0), (1, 30.0), (0, 20.0)):
        estimate.took(number, seconds)
    assert estimate.left([1], [0, 1]) == "about 75 s left"  # 30 in this pass, 15 and 30 in the next
    assert estimate.left([2], [0, 1, 2]) == "about 2 min left"


def test_report_is_written_as_json_and_text(tokenizer: Tokenizer) -> None:
    judge, model = scripted(tokenizer), scripted(tokenizer, agreement=0.5, p_stop=0.0)
    report = evaluate(judge, {"judge": judge, "toy": model}, EvalPlan((0.5,), max_tokens=12), PROMPTS)
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert {"format", "date", "machine", "versions", "base", "losses", "skipped"} < set(data)
    assert data["settings"] == {"confidences": [1.0, 0.5], "max_tokens": 12, "temperature": 0, "seed": 0}
    assert data["prompts"]["kinds"] == {"mat": 6, "sat": 6}
    row = data["models"][1]["rows"][1]
    assert set(row) == {"confidence", "all", "non_looping", "kinds", "calibration"}
    assert row["calibration"]["error"] is not None
    text = tables(report)
    for words in ("plain base: the base of judge", "tok/step", "stop head of toy", "loss against the plain"):
        assert words in text
