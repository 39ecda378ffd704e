"""lm-eval drives a bundle: a local task, and each kind of request, on the tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install '.[lm-eval]'")

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.likelihood.base_judge import Judge
from hamburger_edge.integrations.lm_eval import HamburgerLM
from hamburger_edge.models.checkpoints.built_in import ZOO

TINY = str(ZOO / "tiny")
QUESTIONS = [
    ("What is 7 plus 5?", "7 plus 5 is 12. So the answer is 12.", "7 plus 5 is 18. So the answer is 18."),
    ("What is the capital of Norway?", "The capital of Norway is Oslo.", "The capital of Norway is Paris."),
]
TASK = """
task: arithmetic
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 40}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def lm() -> HamburgerLM:
    return HamburgerLM(TINY, confidence=0.8, threads=1)


def requests(*arguments: tuple[Any, ...]) -> list[Any]:
    return [SimpleNamespace(args=request) for request in arguments]


def chat_prompt(lm: HamburgerLM, question: str) -> str:
    return lm.apply_chat_template([{"role": "user", "content": question}])


def test_command_line_runs_a_local_task(tmp_path: Path) -> None:
    rows = [{"question": question, "answer": answer} for question, answer, _ in QUESTIONS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "arithmetic.yaml").write_text(TASK)
    command = [sys.executable, "-m", "hamburger_edge.integrations.lm_eval", "--model", "hamburger_edge"]
    command += ["--model_args", f"bundle={TINY},confidence=0.8,threads=1", "--tasks", "arithmetic"]
    command += ["--include_path", ".", "--apply_chat_template", "--output_path", "out"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **offline}, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr[-2000:]
    [path] = (tmp_path / "out").rglob("results*.json")
    assert json.loads(path.read_text())["results"]["arithmetic"]["exact_match,none"] == 1


def test_likelihoods_equal_plain_base(lm: HamburgerLM) -> None:
    question, answer, wrong = QUESTIONS[0]
    start, right, other = chat_prompt(lm, question) + answer[:11], answer[11:], wrong[11:]  # "7 plus 5 is"
    (likely, greedy), (unlikely, not_greedy) = lm.loglikelihood(requests((start, right), (start, other)))
    assert greedy
    assert not not_greedy
    assert unlikely < likely - 5
    tokens, before = lm.tok_encode(start + right), len(lm.tok_encode(start))
    reading = Judge(lm.model).read(tokens[:before], tokens[before:])
    assert likely == pytest.approx(-float(reading.nll.sum()), rel=1e-4)


def test_rolling_likelihood_counts_each_token_once(lm: HamburgerLM) -> None:
    short, long = "The capital of Norway is Oslo.", "One, two, three. " * 200
    of_one_window, of_several_windows = lm.loglikelihood_rolling(requests((short,), (long,)))
    ids = lm.tok_encode(short)
    assert of_one_window == pytest.approx(
        -float(Judge(lm.model).read([lm.prefix_token_id], ids).nll.sum()), rel=1e-4
    )
    assert len(lm.tok_encode(long)) > lm.max_length
    assert of_several_windows < 0


def test_generation_merges_tokens_and_stops(lm: HamburgerLM) -> None:
    prompt = chat_prompt(lm, "Count from 3 to 9.")
    limits = ({"until": []}, {"until": ["7"]}, {"until": "\n", "max_gen_toks": 3})
    whole, cut, short = lm.generate_until(requests(*((prompt, limit) for limit in limits)))
    expected = lm.model.generate(lm.tok_encode(prompt), confidence=0.8)
    assert whole == expected.text
    assert expected.stats.tokens_per_step > 1
    assert cut == whole.split("7")[0]
    assert short == "3, 4"


def test_chat_template_equals_model_template(lm: HamburgerLM) -> None:
    template, encode = lm.model.template, lm.model.tokenizer.encode_parts
    turns = [("user", "Hello!"), ("assistant", "Hi."), ("user", "Bye.")]
    history = [{"role": role, "content": text} for role, text in turns]
    parts = [*template.first_turn("Hello!"), ("Hi.", False), *template.next_turn("Bye.")]
    assert lm.tok_encode(lm.apply_chat_template(history)) == encode(parts)
    opened = lm.apply_chat_template(history[:1], add_generation_prompt=False)
    assert chat_prompt(lm, "Hello!") == opened + template.before_answer


def test_long_answer_and_unknown_option_are_refused(lm: HamburgerLM) -> None:
    with pytest.raises(InputError, match="do not fit"):
        lm.generate_until(requests(("Hello", {"max_gen_toks": 4000})))
    for name in ("speed", "confidence"):
        with pytest.raises(InputError, match=name):
            HamburgerLM(TINY, **{name: 3})  # type: ignore[arg-type]
