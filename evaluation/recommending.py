"""Choose the fastest mode and confidence that lose no answers, for `tune` and `eval --recommend`.

    requests --every third--> all settings: the two with the best evidence are chosen
             --the others---> those two beside plain decoding: each has to show that it loses less
                              than `points`

The prompts that choose confirm nothing, or the lucky setting would win. Each of the two has half of the
chance of error (Bonferroni), so a setting that loses `points` is recommended in at most 5% of all runs.
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
from hamburger_edge.evaluation.pairs import merit, prompts_needed
from hamburger_edge.evaluation.reading import prompt_ids
from hamburger_edge.loop.dial import PLAIN, UNMEASURED, Recommended
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned

CHECKABLE = Path(__file__).with_name("checkable.jsonl")  # the built-in questions
MAX_TOKENS = 96  # of an answer to one of them

FEWEST = 100  # prompts
CHOOSING = 3  # one prompt of so many chooses
LOOKS = 2  # settings that are confirmed
CHANCE = 0.05  # of recommending a setting that loses `points`


@dataclass(frozen=True)
class Recommendation:
    choosing: list[Row]  # every setting, plain decoding first
    confirming: list[Row]  # plain decoding and the chosen, on other prompts
    points: float

    @property
    def best(self) -> Recommended | None:
        """None: there are too few prompts to show anything, and the model counts as not measured."""
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
        """For a terminal."""
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
    """`kept`: a file for the answers as they come, by which the next call with the same questions goes on."""
    others = [request for number, request in enumerate(requests) if number % CHOOSING]
    one, other = (None, None) if kept is None else kept_files(kept)
    ask = partial(evaluate, model, judge=judge, max_tokens=max_tokens, progress=progress)
    every = ask(requests[::CHOOSING], settings=plan.settings, kept=one)
    settings = [PLAIN, *(row.setting for row in choose(every, plan.points))]
    confirmed = ask(others or requests, settings=settings, kept=other)
    return Recommendation(every, confirmed, plan.points)


def kept_files(kept: Path) -> tuple[Path, Path]:
    """Of the prompts that choose, and of those that confirm."""
    return kept, kept.with_suffix(f".confirming{kept.suffix}")


def choose(rows: Sequence[Row], points: float) -> list[Row]:
    """Those to be confirmed: of the settings faster than plain decoding, the ones with the best evidence that
    less than `points` is lost."""

    def evidence(row: Row) -> tuple[float, float]:
        worse, better = row.losses
        return merit(worse, better, row.prompts, points / 100), row.faster

    return sorted((row for row in rows if row.faster > 1), key=evidence, reverse=True)[:LOOKS]


def recommend(rows: Sequence[Row], points: float) -> Row:
    """Of settings on prompts that did not choose them, the fastest that loses less than `points`, or plain
    decoding."""
    bar = CHANCE / LOOKS
    shown = [row for row in rows if row.setting == PLAIN or row.chance_of_loss(points) <= bar]
    return max(shown, key=lambda row: row.faster)


def enough(prompts: int, points: float) -> bool:
    """Whether anything can be shown: at the best, that no answer differs."""
    confirming = prompts - -(-prompts // CHOOSING)
    return prompts >= FEWEST and confirming >= prompts_needed(points / 100, CHANCE / LOOKS)


def fewest(points: float) -> int:
    """Prompts that are `enough`."""
    least = max(FEWEST, prompts_needed(points / 100, CHANCE / LOOKS))
    return next(prompts for prompts in range(least, 3 * least) if enough(prompts, points))


def tell_bundle(folder: Path, setting: Recommended | None) -> None:
    """Written where `load` reads it."""
    try:
        replace(load_manifest(folder), recommended=setting).save(folder)
    except OSError as error:
        raise BundleError(
            f"{folder / FILE_NAME}: cannot be written ({error.strerror}): check space and permissions"
        ) from error


def tell_checkpoint(folder: Path, setting: Recommended | None) -> None:
    """For the bundles that are made of it."""
    write_into(folder, recommended=None if setting is None else asdict(setting))


def checkable_requests(model: Model, questions: Sequence[Prompt], max_tokens: int) -> list[Request]:
    """Questions with a rule instead of an answer, as the model reads them."""
    requests = [
        Request(tuple(prompt_ids(model, each.text)), each.text, "", each.check, each.kind)
        for each in questions
    ]
    most = max(len(request.ids) for request in requests) + max_tokens
    if most > (has := min(model.info.cache_slots, model.info.context_length)):
        raise InputError(
            f"the longest question with {max_tokens} tokens takes {most} slots, the model has {has}: give a "
            "larger --cache-slots, or fewer --max-tokens"
        )
    return requests


def checkable_questions(path: str | Path | None, points: float) -> list[Prompt]:
    """Those of a file that can be checked; the built-in set where none is named."""
    prompts = [prompt for prompt in read_prompts(path or CHECKABLE) if prompt.check is not None]
    if not enough(len(prompts), points):
        raise InputError(
            f"{path}: {len(prompts)} prompts have a check, {fewest(points)} are needed to show a loss below "
            f"{points:g} points: add some, leave --prompts out, or give more --points"
        )
    return prompts
