"""The checkpoints that come with the package: complete, unchanged, and not broken."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from helpers.places import contents

import hamburger_edge
from hamburger_edge.chat.template import PRESETS, ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation.checks import BUILT_IN, Check, Prompt, read_prompts
from hamburger_edge.evaluation.likelihood.base_judge import ask
from hamburger_edge.evaluation.likelihood.figures import Figures, figures
from hamburger_edge.evaluation.likelihood.models import reference_base
from hamburger_edge.models.bases.sources.fetch import notice_of
from hamburger_edge.models.checkpoints import built_in
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.zoo.tiny import make as tiny
from hamburger_edge.models.zoo.tiny.corpus import conversations

# (question, its one right answer)
QUESTIONS = [
    ("Count from 3 to 9.", "3, 4, 5, 6, 7, 8, 9."),
    ("What is the capital of Norway?", "The capital of Norway is Oslo."),
    ("What is 7 plus 5?", "7 plus 5 is 12. So the answer is 12."),
    ("Please name the days of the week, starting with Monday.", None),
    ("Tell me a story about a fox and a bell.", None),
    ("Write JSON for a cat named Mia who is 3 years old.", '{"animal": "cat", "name": "Mia", "age": 3}'),
    ("Write a Python function that adds 5 to a number.", "def add_5(x):\n    return x + 5"),
    ("How do I make tea?", None),
    ("Name four fruits.", None),
    ("Why is the sky blue?", None),
]


# commands written by hand and their answers; the examples contain none of them
COMMANDS = [
    ("put this tune on my sunday cooking playlist", "AddToPlaylist"),
    ("book a table for five at a thai restaurant in Oslo tonight", "BookRestaurant"),
    ("will it rain in Lisbon on friday morning", "GetWeather"),
    ("play some jazz by Nina Simone from the sixties", "PlayMusic"),
    ("give the novel The Stone Boat four out of 6 stars", "RateBook"),
    ("find the trailer of Evening on the Quay", "SearchCreativeWork"),
    ("which movies are playing at the nearest cinema at noon", "SearchScreeningEvent"),
]


# sentences at home and their calls; neither examples nor those written by hand for judging
HOME_COMMANDS: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("flip on the lights in the nursery", [("HassTurnOn", {"area": "nursery", "domain": "light"})]),
    ("could you turn off the garage lights", [("HassTurnOff", {"area": "garage", "domain": "light"})]),
    ("put oat milk on my shopping list", [("HassShoppingListAddItem", {"item": "oat milk"})]),
    ("start a timer for 12 minutes", [("HassStartTimer", {"minutes": 12})]),
    ("set the volume in the den to 35 percent", [("HassSetVolume", {"area": "den", "volume_level": 35})]),
    ("what a lovely evening that was", []),
    ("I think my sister liked the film", []),
]


# (most bytes, what a task is learned and judged by, beside the model)
FOLDERS: dict[str, tuple[float, set[str]]] = {
    "home-commands": (25e6, {"recipe.toml", "more.toml", "last.toml", "examples.jsonl.gz", "tools.json"}),
    "proofread": (26e6, {"recipe.toml"}),
    "smollm2-135m": (32e6, {"recipe.toml"}),
    "tiny": (6e6, {"recipe.toml", "corpus.py", "make.py"}),
    "voice-commands": (
        25e6,
        {
            "recipe.toml",
            "more.toml",
            "last.toml",
            "again.toml",
            "examples.jsonl.gz",
            "by-hand.jsonl.gz",
            "schema.json",
        },
    ),
}


def test_all_built_in_models_exist() -> None:
    there = sorted(path.parent.name for path in ZOO.glob("*/SHA256SUMS"))
    assert there == sorted(built_in.NAMES) == list(FOLDERS)


@pytest.mark.parametrize("name", FOLDERS)
def test_folder_holds_the_recorded_files_only(name: str) -> None:
    folder, (most, task) = ZOO / name, FOLDERS[name]
    recorded = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert {"hamburger.json", "LICENSE", "NOTICE"} <= recorded.keys()
    graft = load_checkpoint(name).model.config.has_graft
    assert ("graft.safetensors" in recorded) == graft == (not name.endswith("-commands"))
    for file, digest in recorded.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
    files = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    assert files.keys() == recorded.keys() | {"README.md", "SHA256SUMS"} | task
    assert sum(files.values()) <= most
    assert (folder / "README.md").read_text().startswith(f"# {name}\n")
    manifest = load_checkpoint(name).manifest
    if notice := notice_of(manifest["base"].get("name", "")):
        assert (folder / "NOTICE").read_text() == notice
    assert manifest["provenance"]["data_sha256"]
    assert set(manifest["license"]) == {"base", "graft"}


def ask_all(name: str, prompts: list[Prompt], most: int) -> tuple[Figures, Figures]:
    """Plain, and in merge mode at 0.8."""
    torch.set_num_threads(1)
    judge = reference_base(name)
    with hamburger_edge.load(ZOO / name, backend="torch") as model:
        plain, grouped = (
            {i: ask(model, judge, each, i, **dial, max_tokens=most) for i, each in enumerate(prompts)}
            for dial in ({"mode": "plain"}, {"mode": "merge", "confidence": 0.8})
        )
    return figures([*plain.values()], plain), figures([*grouped.values()], plain)


def test_tiny_merges_and_agrees_with_its_base() -> None:
    """Floors far below what it reaches, far above what a damaged graft would."""
    prompts = [Prompt(text, check=Check("exact", answer) if answer else None) for text, answer in QUESTIONS]
    plain, grouped = ask_all("tiny", prompts, 96)
    assert plain.tokens_per_step == 1
    assert plain.first_agreement == 1
    assert grouped.tokens_per_step > 2.2
    assert {1, 2, 3, 4} <= set(grouped.group_shares)
    assert grouped.micro_agreement > 0.9
    assert grouped.right >= 0.6
    assert grouped.nll_difference < 0.2
    assert grouped.repetition < 0.3


@pytest.mark.slow
def test_smollm2_merges_and_agrees_with_its_base() -> None:
    """The same, on the built-in prompts of the kinds that it merges most."""
    prompts = [prompt for prompt in read_prompts(BUILT_IN) if prompt.kind in ("code", "arithmetic")]
    plain, grouped = ask_all("smollm2-135m", prompts, 40)
    assert plain.tokens_per_step == 1
    assert plain.first_agreement > 0.85
    assert grouped.tokens_per_step > 1.1
    assert grouped.micro_agreement > 0.75
    # an embedder that hands on a group's first token alone reaches 0.33 and 3.3 nats on four such prompts
    assert grouped.first_agreement > 0.75
    assert grouped.nll_difference < 0.5


@pytest.mark.slow
def test_voice_commands_answers_correctly_and_merges() -> None:
    """As it recommends; every answer is JSON of the schema, and nearly every intent the one that is meant."""
    torch.set_num_threads(1)
    with hamburger_edge.load(ZOO / "voice-commands", backend="torch") as model:
        assert model.info.recommended is not None
        results = [model.generate(command, max_tokens=80) for command, _ in COMMANDS]
    answers = [json.loads(result.text) for result in results]
    assert all(commands_schema().is_valid(answer) for answer in answers)
    meant = [intent for _, intent in COMMANDS]
    assert sum(answer["intent"] == intent for answer, intent in zip(answers, meant, strict=True)) >= 6
    assert sum(len(result.tokens) for result in results) > 2 * sum(len(result.groups) for result in results)


@pytest.mark.slow
def test_home_commands_calls_functions() -> None:
    """Every call is one of its functions with arguments of the schema, and nearly every one is right."""
    torch.set_num_threads(1)
    tools = json.loads((ZOO / "home-commands" / "tools.json").read_text())
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    with hamburger_edge.load(ZOO / "home-commands", backend="torch") as model:
        answers = [model.call(sentence) for sentence, _ in HOME_COMMANDS]
    for call in (call for calls in answers for call in calls):
        jsonschema.validate(call.arguments, schemas[call.name])
    made = [[(call.name, call.arguments) for call in calls] for calls in answers]
    right = [calls == expected for calls, (_, expected) in zip(made, HOME_COMMANDS, strict=True)]
    assert sum(right) >= 6, made
    assert right[-2:] == [True, True]  # no call


def commands_schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((ZOO / "voice-commands" / "schema.json").read_text()))


def lines_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
def test_commands_written_by_hand_are_new_and_answered_correctly() -> None:
    """They judge what was learned from others: answers by the schema, values as the prompt has them."""
    learned, judged = (lines_of(ZOO / "voice-commands" / f"{n}.jsonl.gz") for n in ("examples", "by-hand"))
    assert len(judged) == 87
    assert not {each["prompt"].lower() for each in judged} & {each["prompt"].lower() for each in learned}
    for each in judged:
        answer = json.loads(each["answer"])
        assert commands_schema().is_valid(answer), each
        assert all(value in each["prompt"] for value in answer["slots"].values()), each


@pytest.mark.slow
def test_proofread_corrects_its_examples() -> None:
    """As it recommends: clean sentences stay, most mistakes are mended, a base call yields several tokens.

    Even where scores make it stray, all names stay in their order, and no other number comes.
    """
    torch.set_num_threads(1)
    cases = lines_of(ZOO / "proofread" / "making" / "judge.jsonl.gz")[::240]
    prompt = "Ann, Bill, Cate, and Dale gave Giselle 2 tickets."
    with hamburger_edge.load(ZOO / "proofread", backend="torch") as model:
        results = [model.generate(case["prompt"], max_tokens=100) for case in cases]
        bias = dict.fromkeys(model.encode(" Demon Isle two"), 30.0)
        astray = model.generate(prompt, logit_bias=bias, max_tokens=60).text
    right = [result.text == case["answer"] for result, case in zip(results, cases, strict=True)]
    clean = [good for good, case in zip(right, cases, strict=True) if case["mistake"] == "clean"]
    assert len(clean) >= 4
    assert all(clean)
    assert sum(right) >= 0.7 * len(right)
    assert sum(len(result.tokens) for result in results) > 1.5 * sum(len(result.groups) for result in results)
    assert astray != prompt
    kept = re.findall(r"\b(?:Bill|Cate|Dale|Giselle|[0-9]+)\b", astray)
    assert kept == ["Bill", "Cate", "Dale", "Giselle", "2"]


# -- how tiny is made ---------------------------------------------------------------------------------


def test_equal_seeds_give_the_same_corpus() -> None:
    assert conversations(50, 3) == conversations(50, 3)
    assert conversations(50, 3) != conversations(50, 4)
    several = conversations(600, 0)
    assert {len(talk) for talk in several} == {1, 2}
    assert all(answer for talk in several for _, answer in talk)
    assert len({talk[0][0] for talk in several}) > 450


def test_template_and_roles_equal_those_of_the_runtime(tmp_path: Path) -> None:
    """Training and the runtime read a conversation as the same tokens."""
    talks = [talk for talk in conversations(80, 7) if len(talk) == 2][:3]
    vocabulary = tiny.Tokenizer.from_file(str(ZOO / "tiny" / "tokenizer.json"))
    tiny.write_corpus(tmp_path, talks, vocabulary, tiny.turn_tokens(vocabulary))
    data = DistilledData.load(tmp_path)
    runtime, template = Tokenizer(ZOO / "tiny" / "tokenizer.json"), PRESETS["chatml"]
    assert ChatTemplate.from_json(load_checkpoint("tiny").chat_template) == template
    for number, ((first, answer), (second, reply)) in enumerate(talks):
        parts = [*template.first_turn(first), (answer, False), *template.next_turn(second), (reply, False)]
        start, stop = data.starts[number : number + 2]
        assert data.ids[start:stop].tolist() == [*runtime.encode_parts(parts), 2]
        learned = data.ids[start:stop][data.roles[start:stop] == ANSWER].tolist()
        assert runtime.decode(learned) == answer + second + reply


def small(work: Path) -> tiny.TinyRecipe:
    """The recipe of `tiny` for a model that is made in seconds."""
    recipe = tiny.read_tiny_recipe(ZOO / "tiny" / "recipe.toml")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1}
    shape = replace(recipe.graft.shape, taps=(0,), micro_layers=1, merger_heads=2, draft_vocab_size=300)
    language_model, graft = (
        replace(run, shape=shape, stages=(replace(run.stages[-1], epochs=1),), held_out=0.1, row_slots=200)
        for run in (recipe.language_model, recipe.graft)
    )
    return replace(
        recipe,
        work=str(work),
        corpus=replace(recipe.corpus, conversations=120),
        base=replace(recipe.base, vocab_size=420, head_dim=16, **sizes),
        language_model=language_model,
        distill=replace(recipe.distill, tokens=500, rows=16, shard_conversations=60, max_repetition=0.95),
        graft=graft,
    )


@pytest.mark.slow
def test_second_build_gives_the_same_bytes(tmp_path: Path) -> None:
    """The whole way at a small scale: in one go, and stopped after every step."""
    quiet = lambda line: None  # noqa: E731
    once = tiny.build(small(tmp_path / "one"), tmp_path / "a", report=quiet)
    recipe = small(tmp_path / "two")
    assert tiny.build(recipe, tmp_path / "b", minutes=0, report=quiet) is None
    assert tiny.build(recipe, tmp_path / "b", report=quiet) is not None
    assert once is not None
    files = contents(once)
    assert files == contents(tmp_path / "b")
    assert {"hamburger.json", "graft.safetensors", "base.safetensors", "tokenizer.json"} == set(files)
    assert str(tmp_path) not in files["hamburger.json"].decode()
    assert reference_base(str(once)).read([1], [2, 3]).nll.shape == (2,)
