"""Choose the fastest setting that is shown to lose less than `points`, for `tune` and `eval --recommend`.

    requests --every third--> all settings: choose the two with the best evidence
             --the others---> these two and plain decoding: test each for a loss below `points`

Choosing and confirming use separate prompts, so that luck in the choice does not confirm a setting. Each of
the two tests has level 2.5% (Bonferroni), so a setting that loses `points` is recommended in at most 5% of
all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.evaluation.asking import EvaluationPlan, Request, Row, evaluate, table
from hamburger_edge.evaluation.checks import Prompt, read_prompts
from hamburger_edge.evaluation.judges import Judge
from hamburger_edge.evaluation.likelihood.base_judge import prompt_ids
from hamburger_edge.evaluation.pairs import merit, prompts_needed
from hamburger_edge.loop.dial import PLAIN, UNMEASURED, Recommended
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned

CHECKABLE = Path(__file__).with_name("checkable.jsonl")  # the built-in questions
MAX_TOKENS = 96  # per answer to a built-in question

FEWEST = 100  # minimum of prompts
CHOOSING = 3  # every third prompt chooses, the others confirm
LOOKS = 2  # settings to confirm
CHANCE = 0.05  # maximum probability of recommending a setting that loses `points`


@dataclass(frozen=True)
class Recommendation:
    choosing: list[Row]  # every setting, plain decoding first
    confirming: list[Row]  # plain decoding and the chosen settings, on other prompts
    points: float

    @property
    def best(self) -> Recommended | None:
        """The recommended setting, or None with too few prompts: then the model counts as not measured."""
        if not enough(self.prompts, self.points):
            return None
        return recommend(self.confirming, self.points).setting

    @property
    def prompts(self) -> int:
        return self.choosing[0].prompts + self.confirming[0].prompts

    @property
    def verdict(self) -> str:
        if self.best is None:
            return (
                f"nothing: to show that less than {self.points:g} points are lost takes "
                f"{fewest(self.points)} prompts, and there are {self.prompts}. Not measured, a model decodes "
                f"by {UNMEASURED}"
            )
        if self.best == PLAIN:
            return f"plain: no faster setting was shown to lose less than {self.points:g} points"
        return f"{self.best}, the fastest setting that was shown to lose less than {self.points:g} points"

    def to_json(self) -> dict[str, Any]:
        return {
            "points": self.points,
            "recommended": None if self.best is None else recommend(self.confirming, self.points).name,
            "choosing": [row.to_json() for row in self.choosing],
            "confirming": [
                {**row.to_json(), "chance_of_loss": row.chance_of_loss(self.points)}
                for row in self.confirming
            ],
        }

    def __str__(self) -> str:
        """Format for a terminal."""
        parts = (f"{title}\n{aligned(rows)}" for title, rows in self._tables())
        return "\n\n".join([*parts, f"recommended: {self.verdict}"])

    def markdown(self) -> str:
        return "\n\n".join(f"{title}\n\n{pipes(rows)}" for title, rows in self._tables())

    def _tables(self) -> list[tuple[str, list[list[str]]]]:
        one, other = self.choosing[0].prompts, self.confirming[0].prompts
        return [
            (f"{one} prompts, which chose:", table(self.choosing)),
            (f"{other} other prompts, which confirm:", table(self.confirming, self.points)),
        ]


def find_recommendation(
    model: Model,
    requests: Sequence[Request],
    judge: Judge,
    plan: EvaluationPlan,
    *,
    max_tokens: int,
    kept: Path | None = None,
    progress: Progress = no_progress,
) -> Recommendation:
    """Evaluate all settings, choose and confirm.

    `kept`: a file that stores each answer. The next call with the same requests resumes from it.
    """
    others = [request for number, request in enumerate(requests) if number % CHOOSING]
    one, other = (None, None) if kept is None else kept_files(kept)
    ask = partial(evaluate, model, judge=judge, max_tokens=max_tokens, progress=progress)
    every = ask(requests[::CHOOSING], settings=plan.settings(merges=model.info.has_graft), kept=one)
    settings = [PLAIN, *(row.setting for row in choose(every, plan.points))]
    confirmed = ask(others or requests, settings=settings, kept=other)
    return Recommendation(every, confirmed, plan.points)


def kept_files(kept: Path) -> tuple[Path, Path]:
    """Return the files of kept answers: of the choosing prompts and of the confirming prompts."""
    return kept, kept.with_suffix(f".confirming{kept.suffix}")


def choose(rows: Sequence[Row], points: float) -> list[Row]:
    """Return the LOOKS settings to confirm: those with the best evidence that they lose less than `points`.

    Only settings faster than plain decoding count.
    """

    def evidence(row: Row) -> tuple[float, float]:
        worse, better = row.losses
        return merit(worse, better, row.prompts, points / 100), row.faster

    return sorted((row for row in rows if row.faster > 1), key=evidence, reverse=True)[:LOOKS]


def recommend(rows: Sequence[Row], points: float) -> Row:
    """Return the fastest setting that is shown to lose less than `points`, or plain decoding.

    `rows` come from prompts that did not choose these settings.
    """
    bar = CHANCE / LOOKS
    shown = [row for row in rows if row.setting == PLAIN or row.chance_of_loss(points) <= bar]
    return max(shown, key=lambda row: row.faster)


def enough(prompts: int, points: float) -> bool:
    """Return whether `prompts` suffice to show a loss below `points` in the best case, with equal answers."""
    confirming = prompts - -(-prompts // CHOOSING)
    return prompts >= FEWEST and confirming >= prompts_needed(points / 100, CHANCE / LOOKS)


def fewest(points: float) -> int:
    """Return the smallest number of prompts that is `enough`."""
    least = max(FEWEST, prompts_needed(points / 100, CHANCE / LOOKS))
    return next(prompts for prompts in range(least, 3 * least) if enough(prompts, points))


def tell_bundle(folder: Path, **facts: Any) -> None:
    """Store measured facts in a bundle's manifest, where `load` reads them."""
    try:
        replace(load_manifest(folder), **facts).save(folder)
    except OSError as error:
        raise BundleError(
            f"{folder / FILE_NAME}: cannot be written ({error.strerror}): check space and permissions"
        ) from error


def tell_checkpoint(folder: Path, **facts: Any) -> None:
    """Store measured facts in a checkpoint. Bundles exported from it inherit them."""
    write_into(folder, **{name: None if fact is None else asdict(fact) for name, fact in facts.items()})


def checkable_requests(model: Model, questions: Sequence[Prompt], max_tokens: int) -> list[Request]:
    """Encode questions with checks as requests, and raise an error if the longest does not fit the cache."""
    requests = [
        Request(tuple(prompt_ids(model, question.text)), question.text, "", question.check, question.kind)
        for question in questions
    ]
    slots = max(len(request.ids) for request in requests) + max_tokens
    if slots > (has := min(model.info.cache_slots, model.info.context_length)):
        raise InputError(
            f"the longest question with {max_tokens} tokens takes {slots} slots, the model has {has}: give a "
            "larger --cache-slots, or fewer --max-tokens"
        )
    return requests


def checkable_questions(path: str | Path | None, points: float) -> list[Prompt]:
    """Return the prompts of a file that have a check; by default those of the built-in set."""
    prompts = [prompt for prompt in read_prompts(path or CHECKABLE) if prompt.check is not None]
    if not enough(len(prompts), points):
        raise InputError(
            f"{path}: {len(prompts)} prompts have a check, {fewest(points)} are needed to show a loss below "
            f"{points:g} points: add some, leave --prompts out, or give more --points"
        )
    return prompts
