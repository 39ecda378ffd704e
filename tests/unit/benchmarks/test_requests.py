"""Whole requests: prompts, compared pairs and figures, from answers of known length."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.bench_contender import Known, source
from helpers.places import ROOT

from hamburger_edge.benchmarks.contender import BenchmarkRequest, Program, TimedAnswer, TimedMessage
from hamburger_edge.benchmarks.peers.llama_grammar import with_layout
from hamburger_edge.benchmarks.requests import request_report as request_report
from hamburger_edge.benchmarks.requests.conversation import by_length, converse, settings_of
from hamburger_edge.benchmarks.requests.prompts import BenchmarkPrompt, read_prompts, requests
from hamburger_edge.benchmarks.requests.request_bench import RequestBench
from hamburger_edge.benchmarks.requests.request_plan import RequestPlan, pairs, programs, setting
from hamburger_edge.benchmarks.speed.speed_plan import BenchPlan, all_programs
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.evaluation.recommending import CHOOSING
from hamburger_edge.models.bases.sources.fetch import base_folder, is_complete
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.training.data.split import side
from hamburger_edge.support.progress import no_progress
from hamburger_edge.tuning.dataset import Dataset
from hamburger_edge.tuning.tune_recipe import read_tune_recipe

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
EOS = 2


def test_prompts_are_read_with_answer_and_system_text(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    given = '{"prompt": "a", "answer": "", "system": "s"}\n{"prompt": "b"}\n'
    path.write_text(given)
    assert read_prompts(path) == [BenchmarkPrompt("a", "", "s"), BenchmarkPrompt("b")]
    for line, message in {
        '{"answer": "a"}': "prompt must be a text, got None",
        '{"prompt": "a", "answer": {"b": 1}}': "answer must be a text, got {'b': 1}",
        '{"prompt": "\\ud800"}': "prompt: the text is not valid UTF-8",
    }.items():
        path.write_text(given + line)
        with pytest.raises(InputError, match=f"line 3: {message}"):
            read_prompts(path)


def test_grammar_has_a_fixed_layout_and_keeps_its_texts() -> None:
    """Literals and sets of characters that look like white space rules are left alone."""
    grammar = (
        'a-space-kv ::= "\\"a space\\"" space ":" space space-0\n'
        'list ::= "[" space (space-0 ("," space space-0)*)? "]" space\n'
        'space ::= " "?\n'
        'space-0 ::= ("\\", space" | [^"\\\\ space] ) space\n'
    )
    assert with_layout(grammar).replace("  ", " ") == (
        'a-space-kv ::= "\\"a space\\"" ": " space-0\n'
        'list ::= "[" (space-0 (", " space-0)*)? "]" \n'
        'space-0 ::= ("\\", space" | [^"\\\\ space] ) \n'
    )


def test_settings_are_confidences_modes_or_both() -> None:
    given = ("plain", "merge-0.90", "verify", "verify-.60", "hybrid-.9", "merge-0.7")
    wanted = ["plain", "merge-0.9", "verify", "verify-0.6", "hybrid-0.9", "merge-0.7"]
    assert [setting(text) for text in given] == wanted
    for text in ("1.5", "-1", "nan", "", "sure", "verify-2", "verify-", "verify0.5", "plain-0.9"):
        with pytest.raises(InputError, match=r"--confidence: a setting is a mode"):
            setting(text)


def test_variants_and_comparisons_are_named() -> None:
    assert RequestPlan().variants == ("plain", "merge-0.95", "merge-0.9", "merge-0.8", "verify")
    own = RequestPlan(recommended="merge-0.7")
    assert own.variants == ("merge-0.7", "plain", "merge-0.95", "merge-0.9", "merge-0.8", "verify")
    assert RequestPlan(schema=SCHEMA, recommended="verify").variants[0] == "verify+split"
    assert RequestPlan(settings=("merge-0.6",), recommended="merge-0.7").variants == ("merge-0.6",)
    plan = RequestPlan(schema=SCHEMA, settings=("merge-0.9", "plain"))
    assert plan.variants == ("merge-0.9+split", "merge-0.9", "plain+split", "plain", "plain+single")
    assert RequestPlan(schema=SCHEMA).variants[-2:] == ("plain+split", "plain+single")
    names = ["onnx@merge-0.9+split", "onnx@plain+single", "onnx@merge-0.9", "onnx@plain", "peer"]
    assert pairs(names) == [
        ("onnx@merge-0.9+split", "onnx@plain+single"),
        ("onnx@merge-0.9", "onnx@plain"),
        *((name, "peer") for name in names[:-1]),
    ]


class Answering(Known):
    """Give the same answer to each prompt at a fixed time per token, and record the prompts."""

    def __init__(self, tokens: list[int], ms: float, calls: int, log: list[Any]) -> None:
        self.tokens, self.ms, self.calls, self.log = tuple(tokens), ms, calls, log

    def ask(self, method: str, request: BenchmarkRequest, variant: str) -> TimedAnswer:
        assert method == "answer"
        if self.ms < 0:
            raise HamburgerError("it fell over")
        self.log.append((variant, request.prompt))
        total = self.ms * len(self.tokens) / 1000
        forced = 2 if variant.endswith("+split") else None
        return TimedAnswer(
            self.tokens, total / 4, total, self.calls, self.calls, len(self.tokens), 0, forced, total / 10
        )


def test_all_contenders_answer_each_request_alternately(tokenizer: Tokenizer) -> None:
    """And one that fails is skipped."""
    pytest.importorskip("jsonschema")
    prompts = [
        BenchmarkPrompt("one", '{"n": 7}'),
        BenchmarkPrompt("two", "something else"),
        BenchmarkPrompt("three"),
    ]
    plan = RequestPlan(schema=SCHEMA, only=("onnx@merge-0.8+split", "onnx@plain+single", "genai", "lost"))
    template = ChatTemplate.preset("chatml")
    asked = requests(prompts, tokenizer, template, max_tokens=20, eos_ids=(EOS,), schema=plan.schema)
    said, log = [*tokenizer.encode('{"n": 7}'), EOS], list[Any]()
    contenders = {
        "onnx": Answering(said, 10, 3, log),
        "genai": Answering(tokenizer.encode('{"n": '), 40, 6, log),
        "lost": Answering(said, -1, 3, log),
    }
    programs = {name: Program("", needs_checkpoint=False) for name in contenders}
    programs["onnx"] = Program("", variants=plan.variants, needs_checkpoint=False)
    bench = RequestBench(source(), plan, prompts, asked, tokenizer, start=lambda name, *_: contenders[name])
    report = bench.run(programs)
    assert all(each.closed for each in contenders.values())
    variants = ["merge-0.8+split", "plain+single", ""]
    order = [asked[number].prompt for number in (0, 1, 2, 0)]  # the first warms up
    assert log == [(variant, prompt) for prompt in order for variant in variants]
    assert report.skipped == [{"name": "lost", "why": "it fell over"}]

    data = report.to_json()
    assert json.loads(json.dumps(data)) == data
    rows = {row["name"]: row for row in data["results"]}
    assert list(rows) == ["onnx@merge-0.8+split", "onnx@plain+single", "genai"]
    split, genai = rows["onnx@merge-0.8+split"], rows["genai"]
    length = len(said)
    assert split["request_ms"]["median"] == pytest.approx(10 * length)
    assert split["first_token_ms"]["median"] == pytest.approx(2.5 * length)
    assert split["tokens_per_call"] == pytest.approx(length / 3)
    assert split["forced_share"] == pytest.approx(2 / length)
    assert (split["requests"], split["slots_per_token"], split["host_share"]) == (3, 1, pytest.approx(0.1))
    assert (split["valid"], split["right"]) == (1, 0.5)  # of the two prompts that have an answer
    assert (genai["valid"], genai["right"], genai["forced_share"]) == (0, 0, None)
    ratios = {(each["a"], each["b"]): each for each in data["ratios"]}
    assert ratios["onnx@merge-0.8+split", "onnx@plain+single"]["request"]["median"] == pytest.approx(1)
    beside = ratios["onnx@merge-0.8+split", "genai"]
    assert beside["token"]["median"] == pytest.approx(4)
    assert beside["request"]["median"] == pytest.approx(4 * genai["tokens"] / length)
    assert [each["prompt"] for each in data["answers"][:3]] == [1, 2, 0]
    assert data["answers"][0]["text"] == '{"n": 7}'  # without the end token
    shown, table = request_report.tables(report), request_report.markdown(data)
    for words in (
        "requests of each: 3",
        "onnxruntime-genai says forced tokens by itself",
        "skipped lost: it fell",
    ):
        assert words in shown
    assert "| onnx@merge-0.8+split | fp32 |" in table
    assert "| 100.0% | 50.0% |" in table


def lines(path: Path) -> dict[str, str]:
    """Answers by prompt."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return {row["prompt"]: row["answer"] for row in map(json.loads, text.splitlines())}


@pytest.mark.parametrize(
    ("name", "count", "source", "other"),
    [
        ("voice-commands", 40, "examples", ("by-hand.jsonl.gz", "calibration.jsonl")),
        ("proofread", 36, "making/dev", ("making/judge.jsonl.gz", "calibration.jsonl")),
    ],
)
def test_prompts_of_the_speed_tables_are_held_out(
    name: str, count: int, source: str, other: tuple[str, ...]
) -> None:
    file = ROOT / "hamburger_edge" / "benchmarks" / "requests" / "held_out" / f"{name}.jsonl"
    asked = lines(file)
    assert len(read_prompts(file)) == len(asked) == count
    assert asked.items() <= lines(ZOO / name / f"{source}.jsonl.gz").items()
    for path in other:
        assert not asked.keys() & lines(ZOO / name / path).keys()


@pytest.mark.skipif(not is_complete(base_folder("smollm2-135m")), reason="the base is not here")
def test_commands_of_the_speed_table_chose_no_setting() -> None:
    recipe = read_tune_recipe(ZOO / "voice-commands" / "recipe.toml")
    recipe = replace(recipe, examples=str(ZOO / "voice-commands" / "examples.jsonl.gz"))
    dataset = Dataset(recipe, print, no_progress)
    share = dataset.recipe.share
    examples = dataset.examples.examples
    held_out = [one for one in examples if side(dataset.encoder.question(one), share) == "held_out"]
    order = random.Random(0).sample(held_out, len(held_out))
    drawn = [order[number].turns[-1].prompt for number in range(300, len(order)) if number % CHOOSING]
    assert [*lines(ROOT / "hamburger_edge/benchmarks/requests/held_out/voice-commands.jsonl")] == drawn[:40]


@pytest.mark.parametrize(("model", "merges"), [("tiny", True), ("voice-commands", False)])
def test_plain_model_is_not_measured_in_mode_merge(model: str, merges: bool) -> None:
    manifest = load_manifest(ZOO / model / "assembly")
    for adapter in (all_programs(BenchPlan(), manifest, {}), programs(RequestPlan(), manifest, {})):
        variants = adapter["onnx"].variants
        assert variants[0] == "plain"
        assert any(variant.startswith("merge") for variant in variants) is merges
    asked = programs(RequestPlan(settings=("merge-0.8",)), manifest, {})
    assert asked["onnx"].variants == ("merge-0.8",)


def test_a_conversation_is_summarized_by_its_length() -> None:
    """Means are over tokens, so that long answers count more; an interval without answers has no row."""
    plain = [TimedMessage(200, 200, 10, 0.1, 10, "a"), TimedMessage(250, 250, 30, 0.7, 30, "b")]
    merged = [TimedMessage(200, 150, 10, 0.1, 5, "a"), TimedMessage(260, 130, 30, 0.3, 15, "c")]
    rows = by_length({"onnx@merge-0.8": merged, "onnx@plain": plain})
    figures = [(row["length"], row["name"], row["ms_per_token"], row["speed"]) for row in rows]
    assert figures == [
        (256, "onnx@plain", pytest.approx(20), 1),
        (256, "onnx@merge-0.8", pytest.approx(10), pytest.approx(2)),
        (512, "onnx@merge-0.8", pytest.approx(10), None),
    ]
    assert [row["tokens_per_call"] for row in rows] == [1, 2, 2]
    assert [row["slots_per_token"] for row in rows] == [1, 0.75, 0.5]
    assert [row["equal"] for row in rows] == [1, 1, 0]


def test_a_conversation_compares_plain_decoding_with_what_the_model_recommends() -> None:
    assert settings_of(RequestPlan(recommended="hybrid-0.9")).settings == ("plain", "hybrid-0.9")
    assert settings_of(RequestPlan(recommended="plain")).settings == ("plain",)
    assert settings_of(RequestPlan()).settings == ("plain", "verify")
    assert settings_of(RequestPlan(settings=("merge-0.8",))).settings == ("merge-0.8",)
    with pytest.raises(InputError, match="two prompts or more"):
        converse(source(), RequestPlan(), [BenchmarkPrompt("a")], {})
