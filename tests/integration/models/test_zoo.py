"""The checkpoints that come with the package: complete, unchanged, and not broken."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import jsonschema
import pytest
import torch

import hamburger_edge
from hamburger_edge.chat.template import PRESETS, ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation.base_judge import ask
from hamburger_edge.evaluation.checks import BUILT_IN, Check, Prompt, read_prompts
from hamburger_edge.evaluation.figures import Figures, figures
from hamburger_edge.evaluation.models import reference_base
from hamburger_edge.models.checkpoints import built_in
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.zoo.tiny import make as tiny
from hamburger_edge.models.zoo.tiny.corpus import TOPICS, conversations

NAMES = sorted(path.parent.name for path in ZOO.glob("*/SHA256SUMS"))

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


# what somebody says, and what is meant; none of it in the examples
COMMANDS = [
    ("put this tune on my sunday cooking playlist", "AddToPlaylist"),
    ("book a table for five at a thai restaurant in Oslo tonight", "BookRestaurant"),
    ("will it rain in Lisbon on friday morning", "GetWeather"),
    ("play some jazz by Nina Simone from the sixties", "PlayMusic"),
    ("give the novel The Stone Boat four out of 6 stars", "RateBook"),
    ("find the trailer of Evening on the Quay", "SearchCreativeWork"),
    ("which movies are playing at the nearest cinema at noon", "SearchScreeningEvent"),
]


# (most bytes, what a task is learned and judged by, beside the model)
FOLDERS: dict[str, tuple[float, set[str]]] = {
    "proofread": (26e6, set()),
    "smollm2-135m": (32e6, {"recipe.toml"}),
    "tiny": (6e6, {"recipe.toml", "corpus.py", "make.py"}),
    "voice-commands": (25e6, {"recipe.toml", "examples.jsonl.gz", "by-hand.jsonl.gz", "schema.json"}),
}


def test_all_are_there() -> None:
    assert NAMES == sorted(built_in.NAMES) == list(FOLDERS)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_holds_what_was_recorded_and_nothing_else(name: str) -> None:
    folder, (most, task) = ZOO / name, FOLDERS[name]
    recorded = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert {"hamburger.json", "graft.safetensors"} <= recorded.keys()
    for file, digest in recorded.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
    files = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    assert files.keys() == recorded.keys() | {"README.md", "SHA256SUMS"} | task
    assert sum(files.values()) <= most


@pytest.mark.parametrize("name", NAMES)
def test_card_and_provenance(name: str) -> None:
    assert (ZOO / name / "README.md").read_text().startswith(f"# {name}\n")
    manifest = load_checkpoint(name).manifest
    assert manifest["provenance"]["data_sha256"]
    assert set(manifest["license"]) == {"base", "graft"}


def ask_all(name: str, prompts: list[Prompt], most: int) -> tuple[Figures, Figures]:
    """Plain, and in merge mode at 0.8."""
    judge = reference_base(name)
    with hamburger_edge.load(ZOO / name, backend="torch") as model:
        plain, grouped = (
            {i: ask(model, judge, each, i, **dial, max_tokens=most) for i, each in enumerate(prompts)}
            for dial in ({"mode": "plain"}, {"mode": "merge", "confidence": 0.8})
        )
    return tuple(figures([*found.values()], plain, plain) for found in (plain, grouped))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def answers() -> tuple[Figures, Figures]:
    torch.set_num_threads(1)
    prompts = [Prompt(text, check=Check("exact", answer) if answer else None) for text, answer in QUESTIONS]
    return ask_all("tiny", prompts, 96)


def test_tiny_is_not_broken(answers: tuple[Figures, Figures]) -> None:
    """Floors far below what it reaches, far above what a damaged graft would."""
    plain, grouped = answers
    assert plain.tokens_per_step == 1
    assert plain.first_agreement == 1
    assert grouped.tokens_per_step > 2.2
    assert grouped.micro_agreement > 0.9
    assert grouped.right >= 0.6
    assert grouped.nll_difference < 0.2
    assert grouped.repetition < 0.3


def test_smollm2_is_not_broken() -> None:
    """The same, on the built-in prompts of the kinds that it merges most."""
    torch.set_num_threads(1)
    prompts = [prompt for prompt in read_prompts(BUILT_IN) if prompt.kind in ("code", "arithmetic")]
    plain, grouped = ask_all("smollm2-135m", prompts, 40)
    assert plain.tokens_per_step == 1
    assert plain.first_agreement > 0.85
    assert grouped.tokens_per_step > 1.1
    assert grouped.micro_agreement > 0.75
    # an embedder that hands on a group's first token alone reaches 0.33 and 3.3 nats on four such prompts
    assert grouped.first_agreement > 0.75
    assert grouped.nll_difference < 0.5


def test_voice_commands_understands_and_merges() -> None:
    """As it recommends; every answer is JSON of the schema, and nearly every intent the one that is meant."""
    torch.set_num_threads(1)
    folder = ZOO / "voice-commands"
    schema = jsonschema.Draft202012Validator(json.loads((folder / "schema.json").read_text()))
    with hamburger_edge.load(folder, backend="torch") as model:
        assert model.info.recommended is not None
        results = [model.generate(command, max_tokens=80) for command, _ in COMMANDS]
    answers = [json.loads(result.text) for result in results]
    assert all(schema.is_valid(answer) for answer in answers)
    meant = [intent for _, intent in COMMANDS]
    assert sum(answer["intent"] == intent for answer, intent in zip(answers, meant, strict=True)) >= 6
    assert sum(len(result.tokens) for result in results) > 2 * sum(len(result.groups) for result in results)


def test_commands_written_by_hand_are_new_and_rightly_answered() -> None:
    """They judge what was learned from others: answers by the schema, values as the prompt has them."""
    folder = ZOO / "voice-commands"
    schema = jsonschema.Draft202012Validator(json.loads((folder / "schema.json").read_text()))
    learned, judged = (
        [
            json.loads(line)
            for line in gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines()
        ]
        for name in ("examples", "by-hand")
    )
    assert len(judged) == 87
    assert not {each["prompt"].lower() for each in judged} & {each["prompt"].lower() for each in learned}
    for each in judged:
        answer = json.loads(each["answer"])
        assert schema.is_valid(answer), each
        assert all(value in each["prompt"] for value in answer["slots"].values()), each


def test_proofread_puts_right_what_it_is_asked() -> None:
    """As it recommends: clean sentences stay, most mistakes are mended, a base call yields several tokens."""
    torch.set_num_threads(1)
    with gzip.open(ZOO / "proofread" / "making" / "judge.jsonl.gz", "rt", encoding="utf-8") as file:
        cases = [json.loads(line) for line in file][::240]
    with hamburger_edge.load(ZOO / "proofread", backend="torch") as model:
        results = [model.generate(case["prompt"], max_tokens=100) for case in cases]
    right = [result.text == case["answer"] for result, case in zip(results, cases, strict=True)]
    clean = [good for good, case in zip(right, cases, strict=True) if case["mistake"] == "clean"]
    assert len(clean) >= 4
    assert all(clean)
    assert sum(right) >= 0.7 * len(right)
    assert sum(len(result.tokens) for result in results) > 1.5 * sum(len(result.groups) for result in results)


def test_proofread_keeps_names_whatever_its_weights_prefer() -> None:
    """Even where scores make it stray: all names, in their order, and no other number."""
    torch.set_num_threads(1)
    prompt = "Ann, Bill, Cate, and Dale gave Giselle 2 tickets."
    with hamburger_edge.load(ZOO / "proofread", backend="torch") as model:
        ids = model.encode(" Demon Isle two")
        answer = model.generate(prompt, logit_bias=dict.fromkeys(ids, 30.0), max_tokens=60).text
    assert answer != prompt
    kept = re.findall(r"\b(?:Bill|Cate|Dale|Giselle|[0-9]+)\b", answer)
    assert kept == ["Bill", "Cate", "Dale", "Giselle", "2"]


def test_tiny_makes_groups_of_every_size(answers: tuple[Figures, Figures]) -> None:
    assert {1, 2, 3, 4} <= set(answers[1].group_shares)  # a verified draft may be longer than a group


def test_tiny_verified_says_what_it_says_plainly() -> None:
    with hamburger_edge.load(ZOO / "tiny", backend="torch") as model:
        for question, _ in QUESTIONS[4:8]:
            plain = model.generate(question, confidence=1.0, max_tokens=60)
            verified = model.generate(question, mode="verify", max_tokens=60)
            assert verified.tokens == plain.tokens
            assert verified.stats.base_calls < plain.stats.base_calls


def test_tiny_remembers_an_answer_it_has_merged() -> None:
    with hamburger_edge.load(ZOO / "tiny", backend="torch") as model:
        chat = model.chat(confidence=0.8)
        first = list(chat.send("Count from 1 to 5."))
        assert len(first) < sum(len(chunk.tokens) for chunk in first)
        second = chat.send("What is the capital of Italy?")
        assert "Rome" in "".join(chunk.text for chunk in second)


# -- how tiny is made ---------------------------------------------------------------------------------


def test_the_corpus_is_the_same_for_the_same_seed() -> None:
    assert conversations(50, 3) == conversations(50, 3)
    assert conversations(50, 3) != conversations(50, 4)
    several = conversations(600, 0)
    assert {len(talk) for talk in several} == {1, 2}
    answers = [answer for talk in several for _, answer in talk]
    assert all(answers)
    assert len({talk[0][0] for talk in several}) > 450
    assert len(TOPICS) >= 12


def test_template_and_roles_are_the_runtimes_own(tmp_path: Path) -> None:
    """What training sees of a conversation is what the runtime makes of it, token for token."""
    recipe = tiny.read_tiny_recipe(ZOO / "tiny" / "recipe.toml")
    talks = [talk for talk in conversations(80, 7) if len(talk) == 2][:3]
    vocabulary = tiny.Tokenizer.from_file(str(ZOO / "tiny" / "tokenizer.json"))
    tiny.write_corpus(tmp_path, talks, vocabulary, tiny.turn_tokens(vocabulary))
    data = DistilledData.load(tmp_path)
    runtime, template = Tokenizer(ZOO / "tiny" / "tokenizer.json"), PRESETS["chatml"]
    assert load_checkpoint("tiny").chat_template == template.to_json() | {"default_system": None} or (
        ChatTemplate.from_json(load_checkpoint("tiny").chat_template) == template
    )
    assert vocabulary.get_vocab_size() == recipe.base.vocab_size
    for number, ((first, answer), (second, reply)) in enumerate(talks):
        parts = [*template.first_turn(first), (answer, False), *template.next_turn(second), (reply, False)]
        ids = [*runtime.encode_parts(parts), 2]
        start, stop = data.starts[number : number + 2]
        assert data.ids[start:stop].tolist() == ids
        learned = data.ids[start:stop][data.roles[start:stop] == ANSWER].tolist()
        assert runtime.decode(learned) == answer + second + reply


SMALL = """
work = "WORK"
[corpus]
conversations = 120
[base]
family = "llama"
vocab_size = 420
hidden_size = 32
intermediate_size = 32
num_layers = 2
num_heads = 2
num_kv_heads = 1
head_dim = 16
context_length = 256
[language_model]
base = "small"
data = "corpus"
out = "language_model"
held_out = 0.1
rows = 2
row_slots = 200
precision = "fp32"
shape = { taps = [0], micro_layers = 1, merger_heads = 2 }
[[language_model.stages]]
name = "language model"
learns = ["base"]
epochs = 1
learning_rate = 1e-2
base_learning_rate = 1e-2
loss = { micro = 0.0 }
[distill]
tokens = 500
rows = 16
shard_conversations = 60
top_k = 4
given = 1.0
max_answer = 24
max_repetition = 0.95
context = 128
[graft]
base = "small"
data = "distilled"
out = "graft"
held_out = 0.1
rows = 2
row_slots = 200
precision = "fp32"
shape = { taps = [0], micro_layers = 1, merger_heads = 2, draft_vocab_size = 300 }
[[graft.stages]]
name = "joint"
learns = ["micro", "stop_head", "embedder", "base"]
epochs = 1
learning_rate = 3e-3
cuts = {}
"""


def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """The whole way at a small scale: in one go, and stopped after every step."""
    (tmp_path / "one.toml").write_text(SMALL.replace("WORK", str(tmp_path / "one")))
    (tmp_path / "two.toml").write_text(SMALL.replace("WORK", str(tmp_path / "two")))
    quiet = lambda line: None  # noqa: E731
    once = tiny.build(tiny.read_tiny_recipe(tmp_path / "one.toml"), tmp_path / "a", report=quiet)
    recipe = tiny.read_tiny_recipe(tmp_path / "two.toml")
    assert tiny.build(recipe, tmp_path / "b", minutes=0, report=quiet) is None
    again = tiny.build(recipe, tmp_path / "b", report=quiet)
    assert once is not None
    assert again is not None
    files = {path.name: path.read_bytes() for path in once.iterdir()}
    assert files == {path.name: path.read_bytes() for path in again.iterdir()}
    assert {"hamburger.json", "graft.safetensors", "base.safetensors", "tokenizer.json"} == set(files)
    assert str(tmp_path) not in files["hamburger.json"].decode()
    assert reference_base(str(once)).read([1], [2, 3]).nll.shape == (2,)
