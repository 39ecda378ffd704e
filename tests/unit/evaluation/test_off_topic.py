"""Sentences that are no task of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.off_topic import BUILT_IN, BY_HAND, off_topic_answer, read_off_topic
from hamburger_edge.support.strict import read_lines


def test_built_in_sentences_have_licence_and_attribution_and_no_judging_fragment() -> None:
    sentences = {sentence.prompt for sentence in read_off_topic("builtin")}
    assert len(sentences) > 3000
    head = json.loads(read_lines(BUILT_IN)[0][1])
    assert "CC BY-SA 4.0" in head["licence"]
    assert "Schema-Guided Dialogue" in head["attribution"]
    by_hand = {sentence.prompt for sentence in read_off_topic(str(BY_HAND))}
    assert len(by_hand) == 60
    assert not {text.lower() for text in by_hand} & {text.lower() for text in sentences}


def test_line_without_an_answer_gets_the_one_of_the_task(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"prompt": "hi"}\n{"prompt": "42", "answer": "[]"}\n')
    answers = [sentence.expected for sentence in read_off_topic(str(path), "none of these")]
    assert answers == ["none of these", "[]"]
    assert [sentence.expected for sentence in read_off_topic(str(path))] == ["", "[]"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": " "}', "prompt must be a text"),
        ('{"prompt": "hi", "answer": 3}', "answer must be a text"),
        ('{"text": "hi"}', "unknown key 'text'"),
        ("", "holds no sentences"),
    ],
)
def test_wrong_line_is_refused(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=message):
        read_off_topic(str(path))


@pytest.mark.parametrize(
    "empty", ['{"intent": "none"}', '{"intent": "None", "slots": {}}', "[]", "null", "-"]
)
def test_answer_without_content_is_the_off_topic_answer(empty: str) -> None:
    assert off_topic_answer(['{"intent": "play"}', "none of it", empty, "{}"]) == empty
    assert off_topic_answer(['{"intent": "play"}', "none", '{"count": 0}']) == ""


def test_built_in_sentences_leave_domains_out() -> None:
    every, others = (read_off_topic(source) for source in ("builtin", "builtin-except:Weather,Music"))
    assert len(every) - len(others) == 400
    with pytest.raises(InputError, match="'Sports' is none of the domains: name some of Banks, Buses"):
        read_off_topic("builtin-except:Weather,Sports")
