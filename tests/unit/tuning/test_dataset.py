"""The training and held-out examples of a task, and more examples by exchange of copied texts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.places import names
from helpers.toys.toy_bundles import saved_toy
from helpers.toys.toy_tasks import write_base

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, read_calibration
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.training.data.split import Split, side
from hamburger_edge.support.progress import no_progress
from hamburger_edge.tuning.data.augment import (
    AMBIGUOUS,
    CATEGORIES,
    KNOWN,
    MANY_TURNS,
    NO_COPY,
    NO_OBJECT,
    OVERLAP,
    Augmented,
    augmented,
)
from hamburger_edge.tuning.data.encoding import Encoder
from hamburger_edge.tuning.data.examples import Example, Examples, Turn
from hamburger_edge.tuning.dataset import Dataset
from hamburger_edge.tuning.indexing import index_examples
from hamburger_edge.tuning.task import draft_index, read_task, write_examples, write_facts
from hamburger_edge.tuning.tune_recipe import TuneRecipe
from hamburger_edge.tuning.tune_run import TuneRun

CALLS = [
    Turn(f"call {name} about {topic}", json.dumps({"who": name, "what": topic}))
    for number, name in enumerate(f"{a}{b}" for a in ("Ann", "Bo", "Cy", "Di") for b in ("ber", "lin", "mar"))
    for topic in (f"work {number}", f"rent {number}")
]


def write(path: Path, turns: list[Turn]) -> str:
    lines = (json.dumps({"prompt": turn.prompt, "answer": turn.answer}) + "\n" for turn in turns)
    path.write_text("".join(lines))
    return str(path)


def dataset(tmp_path: Path, *, judged: list[Turn] | None = None) -> Dataset:
    """A file of examples, and one of these turns that are held out."""
    recipe = TuneRecipe(
        base=str(write_base(tmp_path / "base")),
        examples=write(tmp_path / "examples.jsonl", CALLS),
        held_out="" if judged is None else write(tmp_path / "held_out.jsonl", judged),
        augment=20,
    )
    return Dataset(recipe, print, no_progress)


def test_certainty_is_fitted_to_prompts_that_neither_train_nor_judge(tmp_path: Path) -> None:
    split = Split([*range(60, 72)], calibration=[0, 1], held_out=[2, 3])
    many = replace(split, held_out=[2, 3] * 30)

    def fitting(data: Dataset, split: Split) -> set[str]:
        return {request.prompt for request in data.certainty_requests(split)}

    data = dataset(tmp_path)
    prompts = [example.turns[0].prompt for example in data.examples.examples]
    assert fitting(data, many) == set(prompts[:2])
    assert fitting(data, split) == set()  # too few judge, so the calibration part joins them
    data.judged = Examples((Example((Turn("other", "{}"),)),))  # a file of held-out examples
    assert fitting(data, split) == set(prompts[:4])


@pytest.mark.parametrize("answer", ['{"who": "none", "what": ""}', None], ids=["answered", "not-answered"])
def test_off_topic_sentences_train_only_if_the_task_has_an_answer_for_them(
    tmp_path: Path, answer: str | None
) -> None:
    data = dataset(tmp_path)
    sentences = [Turn(f"sentence {number}", "") for number in range(400)]
    lines = [json.dumps({"prompt": turn.prompt}) + "\n" for turn in (*sentences, CALLS[0])]
    (tmp_path / "other.jsonl").write_text("".join(lines))
    data.recipe = replace(data.recipe, off_topic=str(tmp_path / "other.jsonl"))
    if answer:
        own = data.examples.examples
        data.examples = Examples((*own, Example((Turn("hi", answer),))))
    found = data.off_topic
    assert [example.answer for example in found.learned] == [answer] * len(found.learned)
    assert (len(found.learned) > 300) == bool(answer)
    assert all(
        side(data.encoder.encode(example).question, data.recipe.share) == "train" for example in found.learned
    )
    assert 20 <= len(found.judging) <= 60
    uses = [{example.turns[0].prompt for example in found.learned}]
    uses += [{request.prompt for request in requests} for requests in (found.calibrating, found.judging)]
    assert (
        sum(map(len, uses)) == len(set().union(*uses)) == 400
    )  # each once, without the examples' own prompt
    assert {request.expected for request in found.judging} == {answer or ""}


def test_few_held_out_prompts_are_joined_by_the_calibration_part(tmp_path: Path) -> None:
    """A table of a handful of answers was printed as if it were a measurement."""
    data = dataset(tmp_path)
    examples = data.examples.examples

    def prompts(split: Split) -> set[str]:
        return {request.prompt for request in data.requests(split)}

    few = Split([*range(6, 24)], [4, 5], [0, 1, 2, 3])
    assert prompts(few) == {example.turns[0].prompt for example in examples[:6]}
    enough = Split([], calibration=[4, 5], held_out=[0, 1, 2, 3] * 13)
    assert prompts(enough) == {example.turns[0].prompt for example in examples[:4]}


def test_augmented_examples_exclude_prompts_of_the_held_out_file(tmp_path: Path) -> None:
    """They were compared with the split's held-out prompts alone, so that judged prompts entered training."""
    alone = dataset(tmp_path)
    sides = [side(alone.encoder.question(one), alone.recipe.share) for one in alone.examples.examples]
    split = Split([number for number, each in enumerate(sides) if each == "train"], [], [])
    made = alone.more_by_augmenting(split).examples
    half = len(made) // 2
    assert half > 10
    beside = dataset(tmp_path, judged=[one.turns[0] for one in made[:half]])
    others = beside.more_by_augmenting(split)
    assert others.examples == made[half:]
    assert others.left_out[f"whose prompt is in {tmp_path / 'held_out.jsonl'}"] == half


def test_more_examples_only_train(tmp_path: Path) -> None:
    """They are in no part of the split, and none asks what is held out."""
    data = dataset(tmp_path, judged=[Turn("call Eve about tea", "{}")])
    more = [CALLS[0], Turn("call Eve about tea", "{}"), Turn("ring Flo", "{}")]
    data.recipe = replace(data.recipe, more_examples=write(tmp_path / "more.jsonl", more))
    assert [example.turns[0].prompt for example in data.more_examples] == ["ring Flo"]
    assert len(data.examples.examples) == len(CALLS)


def test_held_out_prompts_are_in_random_order(tmp_path: Path) -> None:
    """In a file that took turns among three sources, every third prompt was of one kind: 88% of these were
    right, 68% of all."""
    held_out = [Turn(f"{turn.prompt} {copy}", turn.answer) for copy in range(3) for turn in CALLS]
    found = dataset(tmp_path, judged=held_out)
    asked = [request.prompt for request in found.requests(Split([], [], []))]
    assert sorted(asked) == sorted(turn.prompt for turn in held_out)
    assert asked == [request.prompt for request in found.requests(Split([], [], []))]
    work = ["about work" in prompt for prompt in asked]  # every second one in the file
    assert 0.3 < sum(work[::2]) / len(work[::2]) < 0.7


# The facts of a checkpoint, from the examples


def facts(tmp_path: Path, examples: str, **choices: Any) -> Path:
    """A checkpoint's folder with the files that `tune` writes beside the weights."""
    recipe = TuneRecipe(base=str(write_base(tmp_path / "base")), examples=examples, **choices)
    run = TuneRun(tmp_path / "work", report=lambda line: None)
    task = read_task(recipe, run)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "hamburger.json").write_text("{}")
    data = write_examples(task, run)
    write_facts(checkpoint, task, data, draft_index(task, data), recipe)
    return checkpoint


def indexed(tmp_path: Path, examples: str) -> Path:
    """The draft index of the command `index`, in a toy checkpoint."""
    checkpoint = tmp_path / "toy"
    if not checkpoint.exists():
        saved_toy(checkpoint)
    index_examples(checkpoint, Path(examples))
    return checkpoint


@pytest.mark.parametrize("build", [facts, indexed])
def test_held_out_answers_do_not_enter_the_draft_index(build: Any, tmp_path: Path) -> None:
    """Its chances and its pace were fitted to them, and then they judged the settings that draft with it."""
    turns = [Turn(f"say {word}", f"he says {word} now") for word in map(str, range(1000, 1400))]
    checkpoint = build(tmp_path, write(tmp_path / "examples.jsonl", turns))
    found = load_checkpoint(checkpoint) if build is indexed else None
    encoder = (
        dataset(tmp_path).encoder
        if found is None
        else Encoder.of(ChatTemplate.from_json(found.chat_template), Tokenizer(found.tokenizer), (2,))
    )
    before = (checkpoint / "draft_index.bin").read_bytes()
    for part, same in (("held_out", True), ("calibration", False)):
        changed = [
            replace(turn, answer="no") if side(encoder.question(Example((turn,))), 0.05) == part else turn
            for turn in turns
        ]
        assert 5 < sum(one is not other for one, other in zip(changed, turns, strict=True)) < 40
        build(tmp_path, write(tmp_path / "examples.jsonl", changed))
        assert ((checkpoint / "draft_index.bin").read_bytes() == before) is same


def test_checkpoint_holds_example_prompts_by_default(tmp_path: Path) -> None:
    turns = [Turn(f"say {number}", f"he says {number}") for number in range(400)]
    examples = write(tmp_path / "examples.jsonl", turns)
    held = read_calibration(facts(tmp_path, examples) / CALIBRATION)
    assert {(one.prompt, one.answer) for one in held} <= {(turn.prompt, turn.answer) for turn in turns}
    assert len(held) > 100
    checkpoint = facts(tmp_path, examples, calibration_text=False)
    assert names(checkpoint) == ["draft_index.bin", "hamburger.json"]


def test_task_of_corrections_names_its_constraint(tmp_path: Path) -> None:
    turns = [Turn(f"say {number}", f"Say {number}.") for number in range(40)]
    examples = write(tmp_path / "examples.jsonl", turns)
    for choices in ({"edits_prompt": True}, {}):
        manifest = json.loads((facts(tmp_path, examples, **choices) / "hamburger.json").read_text())
        assert manifest.get("edits_prompt", False) == bool(choices)


def test_task_of_copied_values_names_their_fields(tmp_path: Path) -> None:
    turns = [Turn(f"play {word}", json.dumps({"song": word})) for word in map(str, range(100, 160))]
    examples = write(tmp_path / "examples.jsonl", turns)
    for choices, expected in (
        ({}, ["song"]),
        ({"copied_fields": False}, None),
        ({"edits_prompt": True}, None),
    ):
        manifest = json.loads((facts(tmp_path, examples, **choices) / "hamburger.json").read_text())
        assert manifest.get("copied_fields") == expected


# More examples, by exchange of texts that answers copy from their prompts

NAMES = ["Ann", "Bo", "Cy Twombly", "Dé", "Eve O'Hara", "Flo"]
TOPICS = ["rent", "the wedding", "jazz", "a $5 bill", "C++", "work"]
CALL = "call {who} on the {where} about {topic}"


def example(prompt: str, answer: object, **style: bool) -> Example:
    return Example((Turn(prompt, answer if isinstance(answer, str) else json.dumps(answer, **style)),))


def calls(ascii_only: bool = False) -> list[Example]:
    """Examples with six names and one text per name, on two lines."""
    answers = [
        {"who": name, "where": where, "topic": topic, "n": number}
        for number, (name, topic) in enumerate(zip(NAMES, TOPICS, strict=True))
        for where in ("mobile", "landline")
    ]
    return [example(CALL.format(**answer), answer, ensure_ascii=ascii_only) for answer in answers]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_copied_texts_are_exchanged_between_examples(ascii_only: bool) -> None:
    made = augmented(calls(ascii_only), 20).examples
    assert len(made) > 20
    given = {one.turns[0].prompt for one in calls()}
    assert len({one.turns[0].prompt for one in made} | given) == len(made) + len(given)  # all are new
    for one in made:
        answer = json.loads(one.answer)
        assert one.turns[0].prompt == CALL.format(**answer)
        assert answer["who"] in NAMES
        assert answer["topic"] in TOPICS
        assert one.answer == json.dumps(answer, ensure_ascii=ascii_only)  # as the examples are written
    assert augmented(calls(ascii_only), 20).examples == made
    assert augmented(calls(ascii_only), 20, seed=1).examples != made


def test_texts_with_few_repetitions_are_not_exchanged() -> None:
    """The line determines the text more than the name does."""
    only = [one for one in calls() if "mobile" in one.answer]
    gil = {"who": "Gil", "where": "pager", "topic": "tea", "n": 9}
    rare = [example(CALL.format(**gil), gil)]
    for examples, places in ((only + rare, {"mobile", "pager"}), (only * 2 + rare, {"mobile"})):
        made = [json.loads(one.answer) for one in augmented(examples, 10).examples]
        assert {answer["where"] for answer in made if answer["n"] != 9} == places


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (example("say hi to Ann", "hi Ann"), NO_OBJECT),
        (example("call Ann, Ann", {"who": "Ann"}), NO_COPY),  # stands there twice
        (example("call Annabel", {"who": "Ann"}), NO_COPY),  # within a word
        (example("call Ann Bo", {"who": "Ann Bo", "first": "Ann"}), OVERLAP),
        (example("call Ann", '{"who":"Ann"}'), NO_OBJECT),  # another notation
        (example("call Ann", '["Ann"]'), NO_OBJECT),
        (Example((Turn("call Ann", '{"who": "Ann"}'), Turn("now", "yes"))), MANY_TURNS),
        (Example((Turn("call Ann", '{"who": "Ann"}'),), system="be kind"), MANY_TURNS),
    ],
)
def test_ambiguous_examples_are_not_augmented(odd: Example, reason: str) -> None:
    assert all(" on the " in one.turns[0].prompt for one in augmented([odd, *calls()], 10).examples)
    assert augmented([odd], 10) == Augmented((), {reason: 10})


def test_every_copy_is_added_or_has_a_reason() -> None:
    """46 copies of 700 examples were made, and the report was: 46 examples more."""
    same = [example(f"say jazz {number}", {"music": "jazz"}) for number in range(20)]
    twice = [example(f"call {name} for Ann", {"who": name}) for name in NAMES]
    made = augmented([*calls(), *same, *twice, example("hi", "hello")], 2)
    assert sum(made.left_out.values()) + len(made.examples) == 2 * (12 + 20 + 6 + 1)
    assert made.left_out[CATEGORIES] == 40
    assert made.left_out[NO_OBJECT] == 2
    assert made.left_out[AMBIGUOUS] > 0
    assert made.left_out[KNOWN] > 0
    told = str(made)
    assert told.startswith(
        f"{len(made.examples)} of 78 copies with exchanged texts added; left out: 40 whose"
    )
    assert f", 2 {NO_OBJECT}" in told


def test_items_of_a_list_are_of_one_kind() -> None:
    asked = [example(f"{a} and {b}", {"who": [a, b]}) for a, b in pairwise(NAMES)]
    made = augmented(asked, 10).examples
    assert made
    for one in made:
        first, second = json.loads(one.answer)["who"]
        assert one.turns[0].prompt == f"{first} and {second}"
