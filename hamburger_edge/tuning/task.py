"""A task: its examples as tokens, divided into training, calibration and held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.judges import find_judge, fitting_judge
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, write_calibration
from hamburger_edge.models.checkpoints.facts import put_file, write_into
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.distillation.written import WrittenConversation, question_of, write_conversations
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.split import Split, split_questions
from hamburger_edge.support.files import DRAFT_INDEX
from hamburger_edge.tuning.data.copied_values import copied_fields
from hamburger_edge.tuning.data.examples import Example
from hamburger_edge.tuning.dataset import TOKENIZER, Dataset
from hamburger_edge.tuning.draft_counts import Pair
from hamburger_edge.tuning.draft_index import build_draft_index
from hamburger_edge.tuning.judging.baselines import Baseline, baselines
from hamburger_edge.tuning.tune_recipe import TuneRecipe
from hamburger_edge.tuning.tune_run import TuneRun

EXAMPLES = "examples"


@dataclass(frozen=True)
class Task:
    dataset: Dataset
    conversations: tuple[WrittenConversation, ...]  # one per example, in the same order
    split: Split  # of the conversations
    requests: list[Request]  # held-out prompts and their answers
    judge: str
    copied_fields: tuple[str, ...] = ()  # of the answers: their strings are spans of the prompt

    def baselines(self, requests: Sequence[Request]) -> list[Baseline]:
        """Return the scores of answers without a model on these requests."""
        learned = [self.dataset.examples.examples[number] for number in self.split.train]
        return baselines(learned, requests, find_judge(self.judge))


def read_task(recipe: TuneRecipe, run: TuneRun) -> Task:
    """Read and check the base and the examples. Nothing is written."""
    dataset = Dataset(recipe, run.report, run.progress)
    run.report(str(dataset.examples))
    conversations = _encoded(dataset, dataset.examples.examples)
    split = split_questions((conversation.question for conversation in conversations), recipe.share)
    if not (split.train and split.held_out and split.calibration):
        raise InputError(
            f"{recipe.examples}: the hash that holds prompts out chooses too few of {len(conversations)} "
            "examples: give hundreds, and those as well that were held out before"
        )
    requests = dataset.requests(split)
    fitting = "calls" if dataset.catalogue else fitting_judge([request.expected for request in requests])
    judge = recipe.judge or fitting
    copies: tuple[str, ...] = ()
    if recipe.copied_fields and not recipe.edits_prompt:
        learned = (dataset.examples.examples[number] for number in split.train)
        copies = copied_fields(learned, dataset.catalogue)
    if copies:
        run.report(f"answers will hold only texts of the prompt in: {', '.join(copies)}")
    return Task(dataset, tuple(conversations), split, requests, judge, copies)


def write_examples(task: Task, run: TuneRun) -> DistilledData:
    """Write the examples as tokens, followed by those that only train: more, augmented and off-topic ones.

    A cut tokenizer is written, too.
    """
    if task.dataset.own_tokenizer is not None:
        run.report(f"{task.dataset.base.config.vocab_size} of the base's tokens are kept")
        run.work.mkdir(parents=True, exist_ok=True)
        (run.work / TOKENIZER).write_bytes(task.dataset.own_tokenizer)
    conversations = list(task.conversations)
    if more_examples := task.dataset.more_examples:
        run.report(f"{len(more_examples)} more examples, which only train")
        conversations += _encoded(task.dataset, more_examples)
    if task.dataset.recipe.augment:
        more = task.dataset.more_by_augmenting(task.split)
        run.report(str(more))
        conversations += _encoded(task.dataset, more.examples)
    if task.dataset.recipe.off_topic:
        off_topic = task.dataset.off_topic
        run.report(str(off_topic))
        conversations += _encoded(task.dataset, off_topic.learned)
    write_conversations(run.work / EXAMPLES, EXAMPLES, conversations, {"base": "given"})
    return DistilledData.load(run.work / EXAMPLES)


def draft_index(task: Task, data: DistilledData) -> bytes:
    """Return the draft index of the training answers.

    Held-out answers judge the settings, so the index is fitted to the calibration part.
    """

    def pair(number: int) -> Pair:
        span = slice(*data.starts[number : number + 2])
        ids, roles = data.ids[span], data.roles[span]
        return question_of(ids, roles).tolist(), ids[roles == ANSWER].tolist()

    split, words = task.split, task.dataset.encoder.tokenizer.words()
    size = task.dataset.base.config.vocab_size
    return build_draft_index(map(pair, split.train), map(pair, split.calibration), size, words)


def write_facts(checkpoint: Path, task: Task, data: DistilledData, index: bytes, recipe: TuneRecipe) -> None:
    """Write what exports, drafts and the loop take from the examples and the recipe beside the weights."""
    if recipe.calibration_text:  # word for word
        write_calibration(checkpoint / CALIBRATION, task.dataset.calibration(data, task.split))
    else:
        (checkpoint / CALIBRATION).unlink(missing_ok=True)
    catalogue = task.dataset.catalogue
    tools = None if catalogue is None else catalogue.to_json()
    write_into(
        checkpoint,
        tools=tools,
        edits_prompt=recipe.edits_prompt or None,
        copied_fields=task.copied_fields or None,
    )
    put_file(checkpoint, DRAFT_INDEX, index)


def _encoded(dataset: Dataset, examples: Sequence[Example]) -> list[WrittenConversation]:
    conversations = [dataset.encoder.encode(example) for example in examples]
    context = dataset.base.config.context_length
    for example, conversation in zip(examples, conversations, strict=True):
        if (tokens := len(conversation.ids)) > context:
            raise InputError(
                f"{dataset.recipe.examples}: the example that asks {example.turns[0].prompt[:40]!r} has "
                f"{tokens} tokens, the base's context {context}: shorten it or leave it out"
            )
    return conversations
