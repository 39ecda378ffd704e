"""lm-eval drives a bundle: a local task of each kind of request, on the tiny model."""

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
from hamburger_edge.evaluation.base_judge import Judge
from hamburger_edge.integrations.lm_eval import HamburgerLM
from hamburger_edge.models.checkpoints.built_in import ZOO

TINY = str(ZOO / "tiny")
QUESTIONS = [
    ("What is 7 plus 5?", "7 plus 5 is 12. So the answer is 12.", "7 plus 5 is 18. So the answer is 18."),
    ("What is the capital of Norway?", "The capital of Norway is Oslo.", "The capital of Norway is Paris."),
]
TASKS = {
    "said": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 40}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "chosen": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{[answer, wrong]}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "read": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{answer}}"
metric_list: [{metric: byte_perplexity}]
""",
}


@pytest.fixture(scope="module")
def lm() -> HamburgerLM:
    return HamburgerLM(TINY, confidence=0.8, threads=1)


def requests(*arguments: tuple[Any, ...]) -> list[Any]:
    return [SimpleNamespace(args=each) for each in arguments]


def asked(lm: HamburgerLM, question: str) -> str:
    return lm.apply_chat_template([{"role": "user", "content": question}])


def test_a_local_task_from_its_command_line(tmp_path: Path) -> None:
    rows = [dict(zip(("question", "answer", "wrong"), row, strict=True)) for row in QUESTIONS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, task in TASKS.items():
        head = f"task: {name}\ndataset_path: json\ntest_split: test\n"
        data = f"dataset_kwargs: {{data_files: {{test: {tmp_path / 'rows.jsonl'}}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(head + data + task)
    command = [sys.executable, "-m", "hamburger_edge.integrations.lm_eval", "--model", "hamburger_edge"]
    command += ["--model_args", f"bundle={TINY},confidence=0.8,threads=1", "--tasks", ",".join(TASKS)]
    command += ["--include_path", str(tmp_path), "--apply_chat_template", "--output_path"]
    command += [str(tmp_path / "out")]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **offline}, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    [path] = (tmp_path / "out").rglob("results*.json")
    results = json.loads(path.read_text())["results"]
    assert results["said"]["exact_match,none"] == 1
    assert results["chosen"]["acc,none"] == 1
    assert 1 < results["read"]["byte_perplexity,none"] < 5


def test_likelihoods_are_the_plain_base_s(lm: HamburgerLM) -> None:
    question, answer, wrong = QUESTIONS[0]
    start, right, other = asked(lm, question) + answer[:11], answer[11:], wrong[11:]  # "7 plus 5 is"
    (likely, greedy), (unlikely, not_greedy) = lm.loglikelihood(requests((start, right), (start, other)))
    assert greedy
    assert not not_greedy
    assert unlikely < likely - 5
    tokens, before = lm.tok_encode(start + right), len(lm.tok_encode(start))
    reading = Judge(lm.model).read(tokens[:before], tokens[before:])
    assert likely == pytest.approx(-float(reading.nll.sum()), rel=1e-4)


def test_rolling_likelihoods_cover_every_token_once(lm: HamburgerLM) -> None:
    short, long = "The capital of Norway is Oslo.", "One, two, three. " * 200
    (found,) = lm.loglikelihood_rolling(requests((short,)))
    ids = lm.tok_encode(short)
    assert found == pytest.approx(-float(Judge(lm.model).read([lm.prefix_token_id], ids).nll.sum()), rel=1e-4)
    assert len(lm.tok_encode(long)) > lm.max_length
    (found,) = lm.loglikelihood_rolling(requests((long,)))
    assert found < 0


def test_generation_goes_through_the_loop_and_stops(lm: HamburgerLM) -> None:
    prompt = asked(lm, "Count from 3 to 9.")
    whole, cut = lm.generate_until(requests((prompt, {"until": []}), (prompt, {"until": ["7"]})))
    expected = lm.model.generate(lm.tok_encode(prompt), confidence=0.8)
    assert whole == expected.text
    assert expected.stats.tokens_per_step > 1
    assert cut == whole.split("7")[0]
    assert (
        lm.generate_until(requests((prompt, {"until": "\n", "max_gen_toks": 3})))[0]
        == whole[: len("3, 4")][:4]
    )


def test_templates_are_the_model_s_own(lm: HamburgerLM) -> None:
    template, encode = lm.model.template, lm.model.tokenizer.encode_parts
    assert lm.tok_encode(asked(lm, "Hello!")) == encode(template.first_turn("Hello!"))
    turns = [("user", "Hello!"), ("assistant", "Hi."), ("user", "Bye.")]
    history = [{"role": role, "content": text} for role, text in turns]
    parts = [*template.first_turn("Hello!"), ("Hi.", False), *template.next_turn("Bye.")]
    assert lm.tok_encode(lm.apply_chat_template(history)) == encode(parts)
    opened = lm.apply_chat_template(history[:1], add_generation_prompt=False)
    assert asked(lm, "Hello!") == opened + template.before_answer


def test_what_does_not_fit_is_refused(lm: HamburgerLM) -> None:
    with pytest.raises(InputError, match="do not fit"):
        lm.generate_until(requests(("Hello", {"max_gen_toks": 4000})))
    with pytest.raises(InputError, match="unknown model argument 'speed'"):
        HamburgerLM(TINY, speed=3)
    with pytest.raises(InputError, match="confidence"):
        HamburgerLM(TINY, confidence=3)
