"""Whole requests to a small trained model: all programs give the same float32 answer, and valid JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("llguidance")
pytest.importorskip("jsonschema")

import jsonschema

import hamburger_edge.cli.main as cli
from hamburger_edge.benchmarks.contender import BenchmarkRequest, Facts, Source
from hamburger_edge.benchmarks.peers.programs import PEERS
from hamburger_edge.benchmarks.requests.our_answers import AnsweringModel
from hamburger_edge.loading import load
from hamburger_edge.model import Model

PeerOf = Callable[[str, Source], tuple[Any, Facts]]
QUESTIONS = ("What is 7 plus 8?", "List four animals.")
SCHEMA = {
    "type": "object",
    "properties": {
        "answer_number": {"type": "integer"},
        "unit, of measure": {"enum": ["metre", "second", "no space"]},
        "space": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["answer_number", "unit, of measure", "space"],
    "additionalProperties": False,
}
ANSWERING = [name for name, program in PEERS.items() if program.answers]
EXACT = [name for name in ANSWERING if not PEERS[name].options["precision"]]


@pytest.fixture(scope="module")
def model(source: Source) -> Iterator[Model]:
    with load(source.bundle, threads=1) as model:
        yield model


def request_of(model: Model, question: str, schema: Any = None, max_tokens: int = 100) -> BenchmarkRequest:
    prompt = model.tokenizer.encode_parts(model.template.first_turn(question))
    text = None if schema is None else json.dumps(schema)
    return BenchmarkRequest(tuple(prompt), max_tokens, model.info.eos_ids, text)


def text_of(model: Model, tokens: tuple[int, ...]) -> str:
    return model.decode([token for token in tokens if token not in model.info.eos_ids])


@pytest.mark.parametrize("question", QUESTIONS)
def test_our_answers_are_counted(source: Source, model: Model, question: str) -> None:
    ours = AnsweringModel(source, backend="onnx", model=model)
    plain = ours.answer(request_of(model, question), "plain")
    assert plain.base_calls == plain.steps == plain.slots == len(plain.tokens)
    assert plain.tokens[-1] in model.info.eos_ids
    assert 0 < plain.ttft_s < plain.total_s
    assert plain.host_s is not None
    assert 0 < plain.host_s < plain.total_s
    assert ours.answer(request_of(model, question, max_tokens=3), "plain").tokens == plain.tokens[:3]
    verified = ours.answer(request_of(model, question), "verify")
    assert verified.tokens == plain.tokens
    assert verified.slots == len(plain.tokens) > verified.base_calls

    request = request_of(model, question, SCHEMA)
    single = ours.answer(request, "plain+single")
    split = ours.answer(request, "plain+split")
    assert split.tokens == single.tokens
    assert split.forced == single.forced
    assert split.forced is not None
    # the first run of forced tokens rides with the prompt
    assert single.base_calls == len(single.tokens) > len(split.tokens) - split.forced >= split.base_calls
    merged = ours.answer(request, "merge-0.8+split")
    jsonschema.validate(json.loads(text_of(model, merged.tokens)), SCHEMA)


@pytest.mark.parametrize("name", EXACT)
def test_peer_gives_our_answers(name: str, source: Source, model: Model, peer_of: PeerOf) -> None:
    """Up to the end token, and under the schema in our layout."""
    (peer, _), ours = peer_of(name, source), AnsweringModel(source, backend="onnx", model=model)
    for question in QUESTIONS * 2:  # nothing is left of the answer before
        request = request_of(model, question)
        theirs = peer.answer(request, "")
        assert theirs.tokens == ours.answer(request, "plain").tokens
        assert theirs.base_calls <= theirs.slots == len(theirs.tokens)
        assert theirs.base_calls == theirs.slots or name.endswith("lookup")
        assert 0 < theirs.ttft_s < theirs.total_s
        cut = peer.answer(request_of(model, question, max_tokens=3), "")
        assert cut.tokens == theirs.tokens[:3]

        request = request_of(model, question, SCHEMA)
        theirs = peer.answer(request, "")
        text = text_of(model, theirs.tokens)
        assert text == json.dumps(json.loads(text))
        jsonschema.validate(json.loads(text), SCHEMA)
        if name.startswith("onnxruntime-genai"):  # llama.cpp cuts forced text into tokens as the model likes
            assert text == text_of(model, ours.answer(request, "plain+split").tokens)
            assert theirs.base_calls < len(theirs.tokens) / 2


def test_command_writes_the_report(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes, turns, table and JSON; peers that are not installed are named."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    prompts, schema, file = tmp_path / "p.jsonl", tmp_path / "schema.json", tmp_path / "requests.json"
    prompts.write_text("\n".join(json.dumps({"prompt": each, "answer": "{}"}) for each in QUESTIONS))
    schema.write_text(json.dumps(SCHEMA))
    asked = ("bench", str(source.bundle), "--prompts", str(prompts), "--json-schema", str(schema), "--peers")
    few = ("--max-tokens", "90", "--threads", "1", "--confidence", "merge-0.9")
    code = cli.main([*asked, *few, "--report", str(file)])
    out, err = capsys.readouterr()
    assert code == 0, err
    report = json.loads(file.read_text())
    rows = {row["name"]: row for row in report["results"]}
    there = {name for name in EXACT if not PEERS[name].missing}
    variants = ("merge-0.9+split", "merge-0.9", "plain+split", "plain+single")
    assert set(rows) == {*(f"onnx@{variant}" for variant in variants), *there}
    assert {each["name"] for each in report["skipped"]} == {
        *(f"llamacpp@{variant}" for variant in variants),
        *(set(ANSWERING) - there),  # not installed, or of a precision that a float32 bundle has not
    }
    for name, row in rows.items():
        assert row["requests"] == 2
        assert row["valid"] == float(name != "onnx@merge-0.9")
        assert row["right"] == 0
        assert name in out
    assert rows["onnx@merge-0.9+split"]["base_calls"] < rows["onnx@plain+single"]["base_calls"]
    assert len(report["answers"]) == 2 * len(rows)


def test_turns_of_a_conversation_are_timed_by_its_length(
    source: Source, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each setting has its own conversation, whose answers are those of a chat with that setting."""
    prompts, file = tmp_path / "prompts.jsonl", tmp_path / "report.json"
    texts = [*QUESTIONS, "And eight animals?", "What is 2 plus 2?"]
    prompts.write_text("\n".join(json.dumps({"prompt": text, "system": "Be short."}) for text in texts))
    words = ["bench", str(source.bundle), "--prompts", str(prompts), "--conversation", "--report", str(file)]
    few = "--max-tokens 20 --threads 1 --only onnx --confidence plain --confidence verify-0.8"
    code = cli.main([*words, *few.split()])
    out, err = capsys.readouterr()
    assert code == 0, err
    report = json.loads(file.read_text())
    chat = model.chat("Be short.", mode="plain", max_tokens=20)
    expected = []
    for text in texts:
        for _ in chat.send(text):
            pass
        expected.append((chat.messages[-1].text, len(chat.groups)))
    for name in ("onnx@plain", "onnx@verify-0.8"):
        found = [answer for answer in report["answers"] if answer["name"] == name]
        assert [(answer["text"], answer["length"]) for answer in found] == expected[1:]  # one warms up
        assert all(answer["slots"] == answer["length"] for answer in found)
        assert name in out
    rows = {row["name"]: row for row in report["results"] if row["length"] == 256}
    assert rows["onnx@plain"]["speed"] == rows["onnx@plain"]["tokens_per_call"] == 1
    assert rows["onnx@verify-0.8"]["tokens_per_call"] > 1
    assert rows["onnx@verify-0.8"]["equal"] == 1
