"""Examples of a task: every file format, errors for wrong examples, and their tokens."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.places import ROOT
from helpers.toys.toy_tokenizers import IM_END

from hamburger_edge.chat.template import PRESETS, ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.support.progress import no_progress
from hamburger_edge.tuning.data.encoding import Encoder, brief, without_default_system
from hamburger_edge.tuning.data.example_command import is_command
from hamburger_edge.tuning.data.examples import Example, Turn, read_command_examples, read_examples
from hamburger_edge.tuning.dataset import Dataset
from hamburger_edge.tuning.tune_recipe import read_tune_recipe

PAIR = {"prompt": "Play jazz", "answer": "ok"}
SYSTEM, USER = ({"role": role, "content": "Hi"} for role in ("system", "user"))
UNLEARNED = {"role": "assistant", "content": "Hello", "weight": 0}


def lines(path: Path, *items: Any) -> Path:
    path.write_text("".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in items))
    return path


def test_pairs_and_conversations_are_read(tmp_path: Path) -> None:
    system = {"prompt": "a", "answer": "b", "system": "s"}
    talk = {"messages": [SYSTEM, USER, UNLEARNED, USER, {"role": "assistant", "content": "Bye"}]}
    path = lines(tmp_path / "x.jsonl", PAIR, "", system, talk)
    found = read_examples(path).examples
    assert found == (
        Example((Turn("Play jazz", "ok"),)),
        Example((Turn("a", "b"),), "s"),
        Example((Turn("Hi", "Hello", learned=False), Turn("Hi", "Bye")), "Hi"),
    )
    assert [example.single for example in found] == [True, False, False]
    compressed = tmp_path / "x.jsonl.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_examples(compressed).examples == found


ENDLESS = """
import itertools, json
for number in itertools.count():
    print(json.dumps({"prompt": str(number), "answer": "ok"}), flush=True)
"""


def test_a_command_without_end_is_read_to_the_limit_of_lines(tmp_path: Path) -> None:
    script = tmp_path / "endless script.py"
    script.write_text(ENDLESS)
    command = f"python '{script}'"
    assert is_command(command)
    examples = read_command_examples(command, 5).examples
    assert [example.turns[0].prompt for example in examples] == ["0", "1", "2", "3", "4"]


def test_a_command_that_ends_by_itself_gives_all_of_its_lines(tmp_path: Path) -> None:
    script = tmp_path / "three.py"
    script.write_text(ENDLESS.replace("itertools.count()", "range(3)"))
    assert len(read_command_examples(f"python {script}", 5).examples) == 3


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("print('{}')", r"line 1: has no prompt"),
        ("import sys; sys.exit('no texts')", r"ended with status 1: no texts"),
        ("print()", r"holds no examples"),
        ("import sys; sys.stdout.buffer.write(bytes([255, 10]))", r"line 1: not UTF-8 text"),
    ],
)
def test_errors_of_a_command_name_it(tmp_path: Path, program: str, error: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(program)
    with pytest.raises(InputError, match=rf"^examples python {script}.*{error}"):
        read_command_examples(f"python {script}", 5)


def test_files_and_unknown_programs_are_no_commands(tmp_path: Path) -> None:
    file = tmp_path / "python examples.jsonl"
    file.touch()
    for source in (str(file), "no-such-program a.py", "examples.jsonl", "python 'a.py"):
        assert not is_command(source), source


def test_recipe_of_proofread_reads_as_many_examples_as_it_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_tune_recipe(ROOT / "models" / "zoo" / "proofread" / "recipe.toml")
    monkeypatch.chdir(ROOT)
    dataset = Dataset(replace(recipe, lines=40), print, no_progress)
    examples = dataset.examples
    assert len(examples.examples) + examples.duplicates == 40
    assert any(example.turns[0].prompt != example.answer for example in examples.examples)


def test_duplicates_and_contradictions_are_counted(tmp_path: Path) -> None:
    other, third = PAIR | {"answer": "no"}, {"prompt": "b", "answer": "ok"}
    found = read_examples(lines(tmp_path / "x.jsonl", PAIR, PAIR, other, other, third))
    assert str(found) == "3 examples, 2 duplicates left out, 1 that answer otherwise what was asked before"


def test_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('\ufeffprompt,answer,system\n"Play, jazz","say ""ok""",\na,b,s\n', encoding="utf-8")
    one, two = read_examples(path).examples
    assert one == Example((Turn("Play, jazz", 'say "ok"'),))
    assert two.system == "s"
    path.write_text("prompt,answer\na,b\nc\n")
    with pytest.raises(InputError, match=r"x\.csv, row 2: has another number of fields"):
        read_examples(path)


def test_parquet_is_read(tmp_path: Path) -> None:
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
        ({"prompt": "a"}, "has no answer"),
        ({"prompt": "a", "answer": " "}, "answer must be a text, got ' '"),
        ({"prompt": 5, "answer": "b"}, "prompt must be a text, got 5"),
        ({"prompt": "a", "answer": "x\ud800"}, "answer: the text is not valid UTF-8"),
        ({"messages": []}, r"messages must be a list, got \[\]"),
        ({"messages": [5]}, r"messages\[0\] must be an object, got 5"),
        ({"messages": [USER | {"role": "tool"}]}, r"messages\[0\]\.role must be"),
        ({"messages": [USER]}, "messages must go user, assistant"),
        ({"messages": [SYSTEM]}, "messages must go user, assistant"),
        ({"messages": [USER, UNLEARNED]}, "every answer has weight 0"),
        ({"messages": [USER | {"name": "y"}]}, r"messages\[0\]: unknown key 'name'"),
        ({"messages": [USER | {"weight": 2}]}, r"messages\[0\]\.weight must be 0 or 1"),
    ],
)
def test_bad_line_error_names_file_and_line(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^.*x.jsonl, line 2: {message}.*$") as error:
        read_examples(lines(tmp_path / "x.jsonl", PAIR, line))
    assert len(str(error.value)) < 500


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no examples"):
        read_examples(lines(tmp_path / "x.jsonl"))
    for name in ("none.jsonl", "none.csv"):
        with pytest.raises(InputError, match="cannot be read"):
            read_examples(tmp_path / name)


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("prompt;answer", "semicolons"),
        ('"prompt";"answer";"system"', "semicolons"),
        ("prompt\tanswer", "tabs"),
        ("id|prompt|answer", "vertical bars"),
    ],
)
def test_wrong_separator_is_named(tmp_path: Path, header: str, separator: str) -> None:
    """It used to be an unknown key 'prompt;answer', or a row with another number of fields."""
    (tmp_path / "x.csv").write_text(f"\ufeff{header}\nsay a, b;A, B\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"x.csv: its columns are separated by {separator}: save it with"):
        read_examples(tmp_path / "x.csv")


# As tokens


def written(tokenizer: Tokenizer, example: Example, template: ChatTemplate) -> tuple[list[int], str]:
    """All tokens, and the text of those that are learned."""
    one = Encoder.of(template, tokenizer, (IM_END,)).encode(example)
    learned = [token for token, role in zip(one.ids, one.roles, strict=True) if role == ANSWER]
    return one.ids, tokenizer.decode(learned)


def test_pair_is_rendered_with_full_and_brief_template(tokenizer: Tokenizer) -> None:
    pair = Example((Turn("the cat", "hello world"),))
    template = without_default_system(PRESETS["smollm2"])
    short = brief(template, tokenizer)
    assert short.is_task
    for marks, question in (
        (template, "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"),
        (short, "<|im_start|>the cat<|im_end|>"),
    ):
        expected = tokenizer.encode(question) + tokenizer.encode("hello world<|im_end|>")
        assert written(tokenizer, pair, marks) == (expected, "hello world")


def test_prompt_text_becomes_no_special_token(tokenizer: Tokenizer) -> None:
    pair = Example((Turn("<|im_end|>", "<|im_end|>x"),))
    ids, learned = written(tokenizer, pair, brief(PRESETS["chatml"], tokenizer))
    assert ids.count(IM_END) == 2
    assert learned == "<|im_end|>x"


def test_next_turn_follows_the_end_of_the_answer(tokenizer: Tokenizer) -> None:
    talk = Example((Turn("the cat", "on the mat", learned=False), Turn("user", "system")), "hello")
    ids, learned = written(tokenizer, talk, PRESETS["chatml"])
    assert learned == "system"
    asked = (
        "<|im_start|>system\nhello<|im_end|>\n<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
        "on the mat<|im_end|>\n<|im_start|>user\nuser<|im_end|>\n<|im_start|>assistant\n"
    )
    question = Encoder.of(PRESETS["chatml"], tokenizer, (IM_END,)).question(talk)
    assert tokenizer.decode(question) == tokenizer.decode(tokenizer.encode(asked))
    assert ids == [*question, *tokenizer.encode("system"), IM_END]


def test_template_without_a_brief_form_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match='set  template = "base"'):
        brief(ChatTemplate(before_user="User: ", after_user="\n"), tokenizer)
    with pytest.raises(ConfigError, match="ends no answer of this base"):
        Encoder.of(PRESETS["chatml"], tokenizer, (1,))
