"""Examples of a task: every form they come in, and what is said of those that are wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.tuning.examples import Example, Turn, read_examples

PAIR = {"prompt": "Play jazz", "answer": "ok"}
TALK = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "weight": 0},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "Bye"},
    ]
}


def lines(path: Path, *items: Any) -> Path:
    path.write_text("".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in items))
    return path


def test_pairs_and_conversations(tmp_path: Path) -> None:
    system = {"prompt": "a", "answer": "b", "system": "s"}
    found = read_examples(lines(tmp_path / "x.jsonl", PAIR, "", system, TALK))
    talk = Example((Turn("Hi", "Hello", learned=False), Turn("Bye", "Bye")), "Be brief.")
    assert found.examples == (Example((Turn("Play jazz", "ok"),)), Example((Turn("a", "b"),), "s"), talk)
    assert [example.single for example in found.examples] == [True, False, False]


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(PAIR).encode()))
    assert read_examples(path).examples == (Example((Turn("Play jazz", "ok"),)),)


def test_duplicates_and_contradictions_are_counted(tmp_path: Path) -> None:
    other = PAIR | {"answer": "no"}
    found = read_examples(
        lines(tmp_path / "x.jsonl", PAIR, PAIR, other, other, {"prompt": "b", "answer": "ok"})
    )
    assert (len(found.examples), found.duplicates, found.contradictions) == (3, 2, 1)
    assert str(found) == "3 examples, 2 duplicates left out, 1 that answer otherwise what was asked before"


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('\ufeffprompt,answer,system\n"Play, jazz","say ""ok""",\na,b,s\n', encoding="utf-8")
    one, two = read_examples(path).examples
    assert one == Example((Turn("Play, jazz", 'say "ok"'),))
    assert two.system == "s"
    path.write_text("prompt,answer\na,b\nc\n")
    with pytest.raises(InputError, match=r"x\.csv, row 2: has another number of fields than the first line"):
        read_examples(path)


def test_parquet(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra [datasets] is not installed")
    path = tmp_path / "x.parquet"
    columns = {"prompt": ["a", "c"], "answer": ["b", "d"], "system": [None, "s"]}
    datasets.Dataset.from_dict(columns).to_parquet(str(path))
    one, two = read_examples(path).examples
    assert (one, two) == (Example((Turn("a", "b"),)), Example((Turn("c", "d"),), "s"))
    path.write_text("no table")
    with pytest.raises(InputError, match=r"x\.parquet: not Parquet"):
        read_examples(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "a"}, "line 2: has no answer"),
        ({"prompt": "a", "answer": " "}, "line 2: answer must be a text, got ' '"),
        ({"prompt": 5, "answer": "b"}, "line 2: prompt must be a text, got 5"),
        ({"prompt": "a", "answer": "x\ud800"}, "line 2: answer: the text is not valid UTF-8"),
        ({"messages": []}, r"line 2: messages must be a list, got \[\]"),
        ({"messages": [5]}, r"line 2: messages\[0\] must be an object, got 5"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\]\.role must be system, user"),
        ({"messages": [{"role": "user", "content": "x"}]}, "must go user, assistant in turn"),
        ({"messages": TALK["messages"][:1]}, "must go user, assistant in turn"),
        ({"messages": TALK["messages"][:3]}, "every answer has weight 0: leave the line out"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, r"messages\[0\]: unknown key 'name'"),
        (
            {"messages": [{"role": "user", "content": "x", "weight": 2}]},
            r"messages\[0\]\.weight must be 0 or 1",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_examples(lines(tmp_path / "x.jsonl", PAIR, line))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no examples: write one"):
        read_examples(lines(tmp_path / "x.jsonl"))
    for name in ("none.jsonl", "none.csv", "none.jsonl.gz"):
        with pytest.raises(InputError, match="cannot be read"):
            read_examples(tmp_path / name)
