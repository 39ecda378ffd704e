"""Export a trained checkpoint, evaluate it on its task, store the recommended setting, publish both."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hamburger_edge.evaluation.asking import Request, Row, evaluate
from hamburger_edge.evaluation.certainty_report import RIGHT, CertaintyReport
from hamburger_edge.evaluation.judges import find_judge, judge_files
from hamburger_edge.evaluation.recommending import (
    CHOOSING,
    LOOKS,
    Recommendation,
    find_recommendation,
    tell_bundle,
    tell_checkpoint,
)
from hamburger_edge.exporting import export_checkpoint
from hamburger_edge.loading import load
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, read_calibration
from hamburger_edge.models.checkpoints.checkpoint import CARD, PICTURE, copy_checkpoint
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.support.files import sha256, write_atomically
from hamburger_edge.support.folders import copy_folder
from hamburger_edge.support.strict import from_mapping, read_json
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned
from hamburger_edge.support.version import package_version
from hamburger_edge.tuning.dataset import FEW
from hamburger_edge.tuning.judging.baselines import Baseline, comparison, plain_score, unbeaten
from hamburger_edge.tuning.judging.tool_scores import ToolScore, show_tool_scores, tool_scores, tool_table
from hamburger_edge.tuning.run_certainty import calibrate, write_picture
from hamburger_edge.tuning.task import Task
from hamburger_edge.tuning.tune import Tuned
from hamburger_edge.tuning.tune_run import TuneRun
from hamburger_edge.tuning.wrong_answers import (
    RecordingJudge,
    WrongAnswer,
    next_step,
    show_wrong,
    write_wrong,
)

BUNDLE, EVALUATION, WRONG = "bundle", "evaluation.json", "wrong.jsonl"
NOT_MEASURED = "certainty: not measured, since too few prompts neither train nor judge: give more examples"
PILOT, FEWEST = 3, 40  # requests: timed first; evaluated at least


@dataclass(frozen=True)
class Outcome:
    """The scores of a run: the baselines, and the model at every setting."""

    found: Recommendation
    baselines: list[Baseline]
    wrong: list[WrongAnswer]  # of plain decoding
    tools: list[ToolScore]  # of plain decoding; empty for a model without tools
    certainty: CertaintyReport | None = None  # None: too few prompts to fit it
    right: float = RIGHT  # percent of right answers, for which a min_certainty is reported

    @property
    def plain(self) -> Baseline:
        return plain_score([self.found.choosing[0], self.found.confirming[0]])

    def to_json(self) -> dict[str, Any]:
        return {
            "baselines": [asdict(one) for one in self.baselines],
            "plain": asdict(self.plain),
            **({"tools": [asdict(tool) for tool in self.tools]} if self.tools else {}),
            **self.found.to_json(),
            "certainty": None if self.certainty is None else self.certainty.to_json(self.right),
        }

    def __str__(self) -> str:
        """Format for a terminal, with warnings first: few prompts, and an unbeaten baseline."""
        prompts = self.found.prompts
        noise = (
            f"warning: with {prompts} held-out prompts these scores are noise, since one answer is "
            f"{100 / prompts:.1f} points: give a file of hundreds to --held-out\n\n"
        )
        warning = unbeaten(self.plain, self.baselines)
        told = aligned(comparison(self.plain, self.baselines))
        wrong = show_wrong(self.wrong, prompts)
        few = noise if prompts < FEW else ""
        certainty = NOT_MEASURED if self.certainty is None else self.certainty.text(self.right)
        tools = [show_tool_scores(self.tools)] if self.tools else []
        parts = [f"warning: {warning}"] if warning else []
        return few + "\n\n".join([*parts, told, str(self.found), *tools, certainty, wrong])

    def markdown(self) -> str:
        warning = unbeaten(self.plain, self.baselines)
        told = pipes(comparison(self.plain, self.baselines))
        parts = [f"**Warning: {warning}.**"] if warning else []
        tools = [pipes(tool_table(self.tools))] if self.tools else []
        return "\n\n".join([*parts, told, self.found.markdown(), *tools])

    @property
    def certainty_markdown(self) -> str:
        if self.certainty is None:
            return f"## Certainty\n\n{NOT_MEASURED}."
        picture = f"![Share of right answers over certainty]({PICTURE})"
        return f"## Certainty\n\n{self.certainty.markdown(self.right)}.\n\n{picture}"


def evaluate_run(tuned: Tuned, run: TuneRun, *, threads: int | None = None) -> Outcome:
    """Export the run's checkpoint, evaluate every setting, and return the outcome.

    Bundle and checkpoint in the working folder store the recommended setting, the checkpoint also the
    precision. Kept figures of the same evaluation are reused.
    """
    recipe, task, work = tuned.recipe, tuned.task, run.work
    inputs = _inputs(tuned)
    outcome = _stored_outcome(work / EVALUATION, inputs)
    if outcome is None or not (work / BUNDLE).exists():
        (work / EVALUATION).unlink(missing_ok=True)  # of another bundle
        export_checkpoint(
            tuned.checkpoint,
            work / BUNDLE,
            precision=recipe.precision,
            verify=not run.hurried,  # the evaluation below measures the bundle's answers in any case
            force=True,
            progress=run.progress,
        )
    if outcome is None:
        with load(work / BUNDLE, "onnx", threads=threads) as model:
            requests = _requests_in_time(tuned, run, model)
            judge = RecordingJudge(find_judge(task.judge))
            recommendation = find_recommendation(
                model,
                requests,
                judge,
                recipe.evaluation,
                max_tokens=task.dataset.longest,
                progress=run.progress,
            )
            certainty = calibrate(tuned, model, requests, recommendation.best, run.progress)
        outcome = Outcome(
            recommendation, task.baselines(requests), judge.wrong, _tool_scores(task, judge), certainty
        )
    outcome = replace(outcome, right=recipe.right)
    with write_atomically(work / EVALUATION) as temporary:
        stored = {"asked": inputs, **asdict(outcome)}
        temporary.write_text(json.dumps(stored, indent=1), encoding="utf-8")
    write_wrong(work / WRONG, outcome.wrong)
    fit = None if outcome.certainty is None else outcome.certainty.certainty
    tell_bundle(work / BUNDLE, recommended=outcome.found.best, certainty=fit)
    tell_checkpoint(tuned.checkpoint, recommended=outcome.found.best, certainty=fit)
    write_into(tuned.checkpoint, recommended_precision=recipe.precision)
    return outcome


def _tool_scores(task: Task, judge: RecordingJudge) -> list[ToolScore]:
    """Return the scores of each tool; none for a model without tools."""
    catalogue, examples = task.dataset.catalogue, task.dataset.examples.examples
    if catalogue is None:
        return []
    learned = [turn.answer for number in task.split.train for turn in examples[number].turns]
    answers = [(row.expected, row.answer) for row in judge.rows.values()]
    return tool_scores([tool.name for tool in catalogue.tools], answers, learned)


def _requests_in_time(tuned: Tuned, run: TuneRun, model: Model) -> list[Request]:
    """Return as many requests as the budget has time for, at least FEWEST."""
    task, settings = tuned.task, tuned.recipe.evaluation.settings
    requests, budget = task.requests, run.budget
    if budget is None or len(requests) <= FEWEST:
        return requests
    began = time.monotonic()
    evaluate(model, requests[:PILOT], find_judge(task.judge), settings, max_tokens=task.dataset.longest)
    answer_seconds = (time.monotonic() - began) / PILOT / len(settings)
    answers = len(settings) / CHOOSING + (1 + LOOKS) * (1 - 1 / CHOOSING)  # per prompt, on average
    answers += 3 if tuned.recipe.off_topic else 2  # for the certainty
    count = max(FEWEST, min(len(requests), int(budget.left / answer_seconds / answers)))
    if count < len(requests):
        run.report(f"{count} of {len(requests)} held-out examples are evaluated in the time that is left")
    return requests[:count]


def _inputs(tuned: Tuned) -> dict[str, Any]:
    """Return all inputs of the figures. Files are listed by hash."""
    recipe, task, checkpoint = tuned.recipe, tuned.task, tuned.checkpoint
    manifest = read_json(checkpoint / MANIFEST)
    inputs = {
        "version": package_version(),
        "checkpoint": {
            **{
                name: manifest.get(name)
                for name in ("config", "base", "chat_template", "answer_prefix", "tools")
            },
            "files": {
                file.name: sha256(file)
                for file in sorted(checkpoint.iterdir())
                if file.is_file() and file.name not in (MANIFEST, CARD)
            },
        },
        "judge": task.judge,
        "judge_files": judge_files(task.judge),
        "precision": recipe.precision,
        "evaluation": asdict(recipe.evaluation),
        "requests": _hash_of([asdict(request) for request in task.requests]),
        "off_topic": _hash_of([asdict(request) for request in task.dataset.off_topic.judging]),
    }
    plain: dict[str, Any] = json.loads(json.dumps(inputs))
    return plain


def _hash_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _stored_outcome(path: Path, inputs: dict[str, Any]) -> Outcome | None:
    """Return the outcome stored at `path` if it has the same inputs, else None."""
    stored = read_json(path) if path.exists() else {}
    if stored.get("asked") != inputs or "tools" not in stored or "certainty" not in stored:
        return None
    found = stored["found"]
    choosing, confirming = (
        [from_mapping(Row, row, str(path)) for row in found[name]] for name in ("choosing", "confirming")
    )
    without_model = [from_mapping(Baseline, row, str(path)) for row in stored["baselines"]]
    wrong = [from_mapping(WrongAnswer, row, str(path)) for row in stored["wrong"]]
    tools = [from_mapping(ToolScore, row, str(path)) for row in stored["tools"]]
    certainty = stored["certainty"]
    report = certainty and from_mapping(CertaintyReport, certainty, str(path))
    return Outcome(Recommendation(choosing, confirming, found["points"]), without_model, wrong, tools, report)


@dataclass(frozen=True)
class Published:
    """The results of a run, outside its working folder."""

    checkpoint: Path
    bundle: Path
    wrong: Path  # file of the wrong answers
    advice: str  # what to do next
    texts: str  # a sentence about the examples in the checkpoint; "": it holds none

    def __str__(self) -> str:
        files = f"checkpoint  {self.checkpoint}\nbundle      {self.bundle}\nwrong       {self.wrong}"
        return f"{files}\n\n{self.advice}"


def bundle_beside(output: Path) -> Path:
    """Return the folder of the bundle that belongs to the checkpoint `output`."""
    return output.with_name(f"{output.name}.bundle")


def publish_run(tuned: Tuned, run: TuneRun, outcome: Outcome, output: Path) -> Published:
    """Copy the checkpoint, with its model card, and the evaluated bundle out of the working folder."""
    recipe, found = tuned.recipe, outcome.found
    texts = _texts(tuned)
    text = f"""# {output.absolute().name}

A HAMburger on {recipe.base}, tuned to one task with {len(tuned.task.conversations)} examples.

It was asked {found.prompts} prompts that nothing was trained on: whole requests at
{recipe.precision}, settings in turn.

{outcome.markdown()}

Recommended: {found.verdict}. `run`, `chat` and `load` use that by default.

{outcome.certainty_markdown}

{texts or "The checkpoint holds no calibration text"}.
"""
    checkpoint = copy_checkpoint(tuned.checkpoint, output, card=text)
    if outcome.certainty is not None:
        write_picture(checkpoint, outcome.certainty)
    bundle = copy_folder(run.work / BUNDLE, bundle_beside(output))
    epochs = recipe.tuning.stages[0].epochs if recipe.tune_base and recipe.tuning else None
    advice = next_step(outcome.plain, outcome.baselines, outcome.wrong, epochs)
    return Published(checkpoint, bundle, run.work / WRONG, advice, texts)


def _texts(tuned: Tuned) -> str:
    path = tuned.checkpoint / CALIBRATION
    if not path.exists():
        return ""
    return (
        f"{CALIBRATION} holds prompts and answers of {len(read_calibration(path))} of the "
        f"{len(tuned.task.conversations)} examples word for word, for exports to calibrate on: "
        "delete it before you share this checkpoint, if they are private"
    )
