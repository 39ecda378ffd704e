"""Make `tiny`: a whole HAMburger from nothing, with base and vocabulary, by one recipe on one CPU core.

    python -m hamburger_edge.models.zoo.tiny.make -o my-tiny

    corpus --> vocabulary --> base, as a plain language model --> its own answers --> graft --> checkpoint
    (rules)                   (learns the corpus)                 (distill)           (the same Trainer)

Every step resumes, and gives the same bytes again on the same kind of machine.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from hamburger_edge.chat.template import KINDS
from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.checkpoints.rows import RowPrecision
from hamburger_edge.models.checkpoints.saving import check_target, save_checkpoint
from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE, DistillSettings, TurnTokens
from hamburger_edge.models.distillation.distill import distill
from hamburger_edge.models.distillation.written import WrittenConversation, write_conversations
from hamburger_edge.models.training.curves import plot
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.runs import merged, new_model, provenance
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.models.zoo.tiny.corpus import QuestionAnswer, conversations
from hamburger_edge.support.progress import LogCallback
from hamburger_edge.support.strict import from_mapping, read_toml

LICENSE = "Apache-2.0"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Corpus:
    """The size of the rule-made text."""

    conversations: int
    seed: int = 0
    two_turns: float = 0.25  # share of conversations with a second question


@dataclass(frozen=True)
class TinyRecipe:
    """Folders in `language_model` and `graft` are names below `work`."""

    work: str  # folder for everything on the way to the checkpoint
    corpus: Corpus
    base: BaseConfig  # its vocab_size is also the size that the vocabulary is trained to
    language_model: Recipe  # teaches the base the corpus
    distill: DistillSettings  # the base answers the corpus's questions
    graft: Recipe
    rows: RowPrecision = "fp16"


def read_tiny_recipe(path: Path) -> TinyRecipe:
    recipe: TinyRecipe = from_mapping(TinyRecipe, read_toml(path), str(path))
    return recipe


def build(
    recipe: TinyRecipe, checkpoint: Path, *, minutes: float | None = None, report: LogCallback = print
) -> Path | None:
    """Run or continue everything; at its end write the checkpoint folder. None: stopped by `minutes`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums then have the same order on any number of cores
    try:
        return _build(recipe, checkpoint, minutes, report)
    finally:
        torch.set_num_threads(threads)


def _build(recipe: TinyRecipe, checkpoint: Path, minutes: float | None, report: LogCallback) -> Path | None:
    check_target(checkpoint)
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    work, corpus = Path(recipe.work), recipe.corpus
    work.mkdir(parents=True, exist_ok=True)
    talks = conversations(corpus.conversations, corpus.seed, two_turns=corpus.two_turns)
    tokenizer = train_vocabulary((text for talk in talks for turn in talk for text in turn), recipe.base)
    tokenizer.save(str(work / "tokenizer.json"))
    turns = turn_tokens(tokenizer)
    write_corpus(work / recipe.language_model.data, talks, tokenizer, turns)

    base = new_base(recipe, work / "tokenizer.json")
    teacher = _train(recipe.language_model, work, base, deadline, report)
    if teacher is None:
        return None
    learned = teacher.model.base.cpu().state_dict()
    base = replace(base, state={name: tensor.detach().clone() for name, tensor in learned.items()})

    answer_questions(recipe, base, turns, [tokenizer.encode(talk[0][0]).ids for talk in talks], report)
    trainer = _train(recipe.graft, work, base, deadline, report)
    if trainer is None:
        return None
    calibration = trainer.calibrate() if recipe.graft.calibrate else None
    report(f"calibrated: {calibration}")
    model, _ = merged(trainer.recipe, base, trainer.data, trainer.model)
    written = save_checkpoint(
        checkpoint,
        model,
        base={"kind": "embedded"},
        tokenizer=work / "tokenizer.json",
        chat_template=KINDS["chatml"],
        provenance=provenance(recipe.graft, trainer.data, calibration),
        license={"graft": LICENSE, "base": LICENSE},
        rows=recipe.rows,
    )
    report(f"wrote {written}")
    return written


def _train(
    recipe: Recipe, work: Path, base: LoadedBase, deadline: float, report: LogCallback
) -> Trainer | None:
    """One training run below `work`, with its curves. None: not finished by the deadline."""
    more = tuple(str(work / folder) for folder in recipe.more_data)
    recipe = replace(recipe, data=str(work / recipe.data), more_data=more, out=str(work / recipe.out))
    data = DistilledData.load(*recipe.data_folders)
    trainer = Trainer(recipe, new_model(recipe, base, data), data, report, device="cpu")
    left = None if deadline == math.inf else max(0.0, deadline - time.monotonic()) / 60
    if not trainer.run(minutes=left):
        return None
    plot(Path(recipe.out))
    return trainer


def train_vocabulary(texts: Iterable[str], base: BaseConfig) -> Tokenizer:
    """Byte-level BPE, special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=base.vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    markup = "user\n", "assistant\n"  # as frequent as the texts around it
    tokenizer.train_from_iterator((part for text in texts for part in (text, *markup)), trainer)
    if tokenizer.get_vocab_size() != base.vocab_size:
        raise ConfigError(
            f"base.vocab_size: the corpus yields only {tokenizer.get_vocab_size()} tokens, "
            f"not {base.vocab_size}: ask for fewer"
        )
    return tokenizer


def turn_tokens(tokenizer: Tokenizer) -> TurnTokens:
    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text).ids)

    template = KINDS["chatml"]
    end = tokenizer.token_to_id(SPECIAL[2])
    return TurnTokens(
        prefix=ids(template["before_user"]),
        user_to_answer=ids((template["after_user"] + template["before_answer"]).removeprefix(SPECIAL[2])),
        answer_to_user=ids((template["after_answer"] + template["before_user"]).removeprefix(SPECIAL[2])),
        end=end,
    )


def write_corpus(
    folder: Path, talks: list[list[QuestionAnswer]], tokenizer: Tokenizer, turns: TurnTokens
) -> None:
    """The corpus as a data folder.

    Later questions are learned like answers, so that the base can continue a conversation itself when it
    makes the graft's data.
    """

    def written(talk: list[QuestionAnswer]) -> WrittenConversation:
        one = WrittenConversation()
        for number, (question, answer) in enumerate(talk):
            one.add(turns.answer_to_user if number else turns.prefix)
            one.add([*tokenizer.encode(question).ids, turns.end], ANSWER if number else TEMPLATE)
            one.add(turns.user_to_answer)
            one.add([*tokenizer.encode(answer).ids, turns.end], ANSWER)
        return one

    write_conversations(folder, "corpus", map(written, talks), {"base": "corpus"})


def new_base(recipe: TinyRecipe, tokenizer: Path) -> LoadedBase:
    torch.manual_seed(recipe.language_model.seed)
    base = Base(recipe.base)
    # embeddings large enough beside the layers' output, small enough for a head that starts uncertain
    torch.nn.init.normal_(base.embed_tokens.weight, std=0.1)
    for name, parameter in base.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            parameter.data.div_(math.sqrt(2 * recipe.base.num_layers))
    return LoadedBase(
        config=recipe.base,
        state=dict(base.state_dict()),
        tokenizer=tokenizer,
        chat_template=KINDS["chatml"],
        eos_ids=(SPECIAL.index("<|im_end|>"),),
        name=recipe.graft.base,
        license=LICENSE,
    )


def answer_questions(
    recipe: TinyRecipe, base: LoadedBase, turns: TurnTokens, prompts: list[list[int]], report: LogCallback
) -> None:
    """Let the base answer the corpus's first questions, each as often as it occurs."""
    digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in base.state.values())).hexdigest()
    model = Base(recipe.base)
    model.load_state_dict(base.state)
    shown = time.monotonic()

    def tick(done: int, total: int, seconds: float) -> None:
        nonlocal shown
        if time.monotonic() - shown > 15:
            shown = time.monotonic()
            report(f"distilled {done}/{total} tokens  {max(0, total - done) * seconds / 60:.1f} min left")

    distill(
        model,
        Path(recipe.work) / recipe.graft.data,
        recipe.distill,
        turns,
        prompts,
        {"base": base.name, "sha256": digest},
        tick,
        torch.float32,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Train tiny. A run that was stopped goes on from its last save.", allow_abbrev=False
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="CHECKPOINT")
    parser.add_argument("--recipe", type=Path, default=Path(__file__).with_name("recipe.toml"))
    parser.add_argument("--minutes", type=float, help="stop after so many")
    options = parser.parse_args()
    build(read_tiny_recipe(options.recipe), options.output, minutes=options.minutes)
