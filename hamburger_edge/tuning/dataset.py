"""The inputs of a task: a base, training examples and held-out examples."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hamburger_edge.calls.catalogue import Catalogue, read_catalogue
from hamburger_edge.calls.from_python import read_tools_file
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.off_topic import off_topic_answer, read_off_topic
from hamburger_edge.models.bases.layers import keep_layers
from hamburger_edge.models.bases.loading import find_base
from hamburger_edge.models.bases.vocabulary import cut_tokenizer, kept_rows, with_rows
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.checkpoints.built_in import resolve
from hamburger_edge.models.checkpoints.calibration_text import CalibrationExample
from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.split import Split, side
from hamburger_edge.support.progress import LogCallback, Progress
from hamburger_edge.support.strict import read_json
from hamburger_edge.tuning.data.augment import Augmented, augmented, call_form
from hamburger_edge.tuning.data.encoding import Encoder, brief, without_default_system
from hamburger_edge.tuning.data.example_command import is_command
from hamburger_edge.tuning.data.examples import Example, Examples, Turn, read_command_examples, read_examples
from hamburger_edge.tuning.tune_recipe import TuneRecipe
from hamburger_edge.tuning.vocabulary import frequent_tokens

LONGER = 1.5  # token limit of an answer, relative to the longest given answer
CALIBRATION_TOKENS = 28_800  # five sixths calibrate the rounding, about as many as without a task
FEW = 50  # held-out prompts; scores of fewer are noise
TOKENIZER = "tokenizer.json"
OFF_TOPIC_SHARE = 0.1  # of the off-topic sentences judge, half as many calibrate
CERTAINTY_PROMPTS = 500  # most prompts that fit the certainty


@dataclass(frozen=True)
class OffTopic:
    """Sentences that are no task of the model, by their use. The expected answer is "" if there is none."""

    learned: tuple[Example, ...]
    calibrating: tuple[Request, ...]
    judging: tuple[Request, ...]

    def __str__(self) -> str:
        trained = f"{len(self.learned)} train" if self.learned else "no example has an answer for them"
        return (
            f"off-topic sentences: {trained}, {len(self.calibrating)} may calibrate the certainty, "
            f"{len(self.judging)} judge it"
        )


class Dataset:
    """Reads each input on first access."""

    def __init__(self, recipe: TuneRecipe, report: LogCallback, progress: Progress) -> None:
        self.recipe, self.report, self.progress = recipe, report, progress

    @cached_property
    def base(self) -> LoadedBase:
        """The base without the layers and the tokens that the recipe leaves out."""
        whole, own = self._whole_base, self.own_tokenizer
        if own is None:
            return whole
        return with_rows(whole, kept_rows(json.loads(own), TOKENIZER, whole.tokenizer), whole.tokenizer)

    @cached_property
    def own_tokenizer(self) -> bytes | None:
        """The contents of a tokenizer.json with the recipe's number of tokens; None: the base's is kept."""
        if not self.recipe.tokens:
            return None
        assert self._whole_base.tokenizer is not None
        if self.recipe.start and (tokenizer := _cut_tokenizer(self.recipe.start)) is not None:
            return tokenizer.read_bytes()
        whole = read_json(self._whole_base.tokenizer)
        every = (*self.examples.examples, *self.more_examples)
        encoded = (self._whole_encoder.encode(example).ids for example in every)
        kept = frequent_tokens(whole, encoded, self.recipe.tokens, self.recipe.base)
        return json.dumps(cut_tokenizer(whole, kept), ensure_ascii=False).encode()

    @cached_property
    def _whole_base(self) -> LoadedBase:
        base, _ = find_base(self.recipe.base, progress=self.progress, layers=self.recipe.base_layers)
        if base.tokenizer is None:
            raise ConfigError(
                f"{self.recipe.base}: has no tokenizer.json: put the model's beside its weights"
            )
        return base

    def drop_layers(self, layers: Sequence[int]) -> TuneRecipe:
        """Keep only these layers of the base, and return the recipe with them."""
        self.base = keep_layers(self.base, layers, self.recipe.base)
        self.recipe = replace(self.recipe, base_layers=tuple(layers))
        return self.recipe

    @cached_property
    def encoder(self) -> Encoder:
        if self.own_tokenizer is None:
            return self._whole_encoder
        tokenizer = Tokenizer(TOKENIZER, self.own_tokenizer)
        return Encoder.of(self._whole_encoder.template, tokenizer, self.base.eos_ids)

    @cached_property
    def _whole_encoder(self) -> Encoder:
        base = self._whole_base
        assert base.tokenizer is not None
        tokenizer = Tokenizer(base.tokenizer)
        if self.recipe.continues:
            own = read_manifest(resolve(self.recipe.start) / MANIFEST).chat_template
            return Encoder.of(ChatTemplate.from_json(own or base.chat_template), tokenizer, base.eos_ids)
        template = without_default_system(ChatTemplate.from_json(base.chat_template))
        judged = self.judged.examples if self.judged else ()
        every = (*self.examples.examples, *self.more_examples, *judged)
        if self.recipe.template == "brief" and all(example.single for example in every):
            template = brief(template, tokenizer)
        return Encoder.of(template, tokenizer, base.eos_ids)

    @cached_property
    def judged(self) -> Examples | None:
        """The examples of the recipe's `held_out` file, or None without one."""
        if not self.recipe.held_out:
            return None
        return read_examples(Path(self.recipe.held_out), self._all_examples.catalogue)

    @cached_property
    def _all_examples(self) -> Examples:
        """The examples with those that `held_out` asks, too."""
        source, tools = self.recipe.examples, self.recipe.tools
        catalogue = read_tools_file(Path(tools)) if tools else self._own_catalogue
        if is_command(source):
            return read_command_examples(source, self.recipe.lines, catalogue)
        return read_examples(Path(source), catalogue)

    @property
    def _own_catalogue(self) -> Catalogue | None:
        """The functions of the model that the recipe continues, if it has any."""
        if not self.recipe.continues:
            return None
        tools = read_manifest(resolve(self.recipe.start) / MANIFEST).tools
        return read_catalogue(list(tools), self.recipe.start) if tools else None

    @property
    def catalogue(self) -> Catalogue | None:
        """The functions that the answers call; None: they are texts."""
        return self._all_examples.catalogue

    @cached_property
    def examples(self) -> Examples:
        """The training examples. Without a `held_out` file the split holds some of them out."""
        examples = self._all_examples
        if self.judged is None:
            return examples
        others = tuple(example for example in examples.examples if not self._is_judged(example))
        if left_out := len(examples.examples) - len(others):
            self.report(f"{left_out} examples left out, since {self.recipe.held_out} asks the same")
        return replace(examples, examples=others)

    @cached_property
    def more_examples(self) -> tuple[Example, ...]:
        """The examples that only train, without those whose prompts `examples` or `held_out` have, too."""
        if not self.recipe.more_examples:
            return ()
        known = {example.turns[0].prompt for example in self._all_examples.examples} | self._judged_prompts
        more = read_examples(Path(self.recipe.more_examples), self._all_examples.catalogue)
        return tuple(example for example in more.examples if example.turns[0].prompt not in known)

    def more_by_augmenting(self, split: Split) -> Augmented:
        """Return augmented training examples.

        Prompts that the split holds out or that the `held_out` file contains are dropped.
        """
        learned = [self.examples.examples[number] for number in split.train]
        form = None if self.catalogue is None else call_form(self.catalogue)
        additions = augmented(learned, self.recipe.augment, form=form)
        additions = additions.without("whose prompt is held out", self._is_held_out)
        return additions.without(f"whose prompt is in {self.recipe.held_out}", self._is_judged)

    @cached_property
    def off_topic(self) -> OffTopic:
        """The off-topic sentences of the recipe, divided by a hash of their tokens."""
        if not self.recipe.off_topic:
            return OffTopic((), (), ())
        own = self.examples.examples
        answer = off_topic_answer(example.answer for example in own)
        prompts = {example.turns[0].prompt for example in own} | self._judged_prompts
        sides: dict[str, list[Example]] = {"train": [], "calibration": [], "held_out": []}
        share = max(self.recipe.share, OFF_TOPIC_SHARE)
        cases = read_off_topic(self.recipe.off_topic, answer)
        for number, case in enumerate(random.Random(0).sample(cases, len(cases))):  # a file may be sorted
            if case.prompt not in prompts:
                system = own[number % len(own)].system
                example = Example((Turn(case.prompt, case.expected),), system)
                sides[side(self.encoder.encode(example).question, share)].append(example)
        learned = tuple(example for example in sides["train"] if example.answer)
        unlearned = [example for example in sides["train"] if not example.answer]
        calibrating, judging = (*sides["calibration"], *unlearned), sides["held_out"]
        return OffTopic(learned, tuple(map(self._request, calibrating)), tuple(map(self._request, judging)))

    def _is_held_out(self, example: Example) -> bool:
        return side(self.encoder.encode(example).question, self.recipe.share) != "train"

    def _is_judged(self, example: Example) -> bool:
        return example.turns[0].prompt in self._judged_prompts

    @cached_property
    def _judged_prompts(self) -> set[str]:
        return {one.turns[0].prompt for one in (self.judged.examples if self.judged else ())}

    def calibration_judges(self, split: Split) -> bool:
        """Return whether the split holds out so few prompts that those of its calibration part judge, too."""
        return self.judged is None and len(split.held_out) < FEW

    def certainty_requests(self, split: Split) -> list[Request]:
        """Return the prompts that neither train nor judge, and their answers."""
        held_out = split.held_out if self.judged is not None else ()
        numbers = () if self.calibration_judges(split) else split.calibration
        examples = [self.examples.examples[number] for number in (*numbers, *held_out)]
        chosen = random.Random(0).sample(examples, min(len(examples), CERTAINTY_PROMPTS))
        return [self._request(example) for example in chosen]

    def _request(self, example: Example) -> Request:
        return Request(tuple(self.encoder.question(example)), example.turns[-1].prompt, example.answer)

    def requests(self, split: Split) -> list[Request]:
        """Return the held-out prompts and their answers, from the `held_out` file or else from the split.

        If the split holds out fewer than FEW prompts, those of its calibration part are added. Their order is
        random and always the same: a file may be sorted, or take turns among several sources, and
        measurements take parts of them.
        """
        if self.judged is not None:
            held_out = self.judged.examples
        else:
            numbers = [*split.held_out]
            if self.calibration_judges(split):
                numbers += split.calibration
                self.report(
                    f"only {len(split.held_out)} examples are held out: the {len(split.calibration)} that "
                    "calibrate judge, too"
                )
            held_out = tuple(self.examples.examples[number] for number in numbers)
        count = min(self.recipe.evaluation.prompts, len(held_out))
        chosen = random.Random(0).sample(held_out, count)
        return [self._request(example) for example in chosen]

    @cached_property
    def longest(self) -> int:
        """Token limit of an answer: `LONGER * longest given answer + 16`."""
        answers = (turn.answer for example in self.examples.examples for turn in example.turns)
        return round(LONGER * max(len(self.encoder.tokenizer.encode(answer)) for answer in answers)) + 16

    def calibration(self, data: DistilledData, split: Split) -> list[CalibrationExample]:
        """Return the text that calibrates quantization: first turns of evenly spaced training examples."""
        tokens = int(np.diff(data.starts)[split.train].sum())
        chosen = split.train[:: max(1, tokens // CALIBRATION_TOKENS)]
        examples = [self.examples.examples[number] for number in chosen]
        return [CalibrationExample(one.turns[0].prompt, one.turns[0].answer, one.system) for one in examples]


def _cut_tokenizer(checkpoint: str) -> Path | None:
    """Return the tokenizer of a checkpoint that keeps some tokens of its base."""
    folder = resolve(checkpoint)
    manifest = read_manifest(folder / MANIFEST)
    return folder / str(manifest.tokenizer) if manifest.base.cut_vocabulary else None
