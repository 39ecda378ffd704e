"""Export a trained checkpoint, evaluate it on its task, and store the recommended setting."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hamburger_edge.evaluation.asking import Request, Row, evaluate
from hamburger_edge.evaluation.certainty_report import CertaintyReport
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
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.models.checkpoints.saving import CARD
from hamburger_edge.support.files import sha256, write_atomically
from hamburger_edge.support.strict import from_mapping, read_json
from hamburger_edge.support.version import package_version
from hamburger_edge.tuning.data.copied_values import not_in_prompt
from hamburger_edge.tuning.judging.baselines import Baseline
from hamburger_edge.tuning.judging.tool_scores import ToolScore, tool_scores
from hamburger_edge.tuning.planning import FEWEST_PROMPTS
from hamburger_edge.tuning.results.outcome import Outcome
from hamburger_edge.tuning.results.run_certainty import calibrate
from hamburger_edge.tuning.results.wrong_answers import (
    RecordingJudge,
    WrongAnswer,
    write_wrong,
)
from hamburger_edge.tuning.task import Task
from hamburger_edge.tuning.tune import Tuned
from hamburger_edge.tuning.tune_run import TuneRun

BUNDLE, EVALUATION, WRONG = "bundle", "evaluation.json", "wrong.jsonl"
FACTS = "config", "base", "chat_template"  # of a checkpoint, on which its answers depend
PILOT = 3  # requests that are timed first


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
            verify="graphs" if run.hurried else True,  # the evaluation below measures answers in any case
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
            recommendation,
            task.baselines(requests),
            judge.wrong,
            _tool_scores(task, judge),
            _not_in_prompt(task, judge),
            certainty,
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


def _not_in_prompt(task: Task, judge: RecordingJudge) -> int | None:
    if task.judge not in ("fields", "calls"):
        return None
    answers = [(row.prompt, row.expected, row.answer) for row in judge.rows.values()]
    return not_in_prompt(answers, task.dataset.catalogue)


def _requests_in_time(tuned: Tuned, run: TuneRun, model: Model) -> list[Request]:
    """Return as many requests as the budget has time for, at least FEWEST_PROMPTS."""
    task, settings = tuned.task, tuned.recipe.evaluation.settings(merges=model.info.has_graft)
    requests, budget = task.requests, run.budget
    if budget is None or len(requests) <= FEWEST_PROMPTS:
        return requests
    began = time.monotonic()
    evaluate(model, requests[:PILOT], find_judge(task.judge), settings, max_tokens=task.dataset.longest)
    answer_seconds = (time.monotonic() - began) / PILOT / len(settings)
    answers = len(settings) / CHOOSING + (1 + LOOKS) * (1 - 1 / CHOOSING)  # per prompt, on average
    answers += 3 if tuned.recipe.off_topic else 2  # for the certainty
    count = budget.prompts(answer_seconds, answers)
    if count < len(requests):
        least = ", the fewest," if count == FEWEST_PROMPTS else ""
        run.report(
            f"{count} of {len(requests)} held-out examples{least} are evaluated in the time that is left"
        )
    return requests[:count]


def _inputs(tuned: Tuned) -> dict[str, Any]:
    """Return all inputs of the figures. Files are listed by hash."""
    recipe, task, checkpoint = tuned.recipe, tuned.task, tuned.checkpoint
    manifest = read_json(checkpoint / MANIFEST)
    inputs = {
        "version": package_version(),
        "checkpoint": {
            **{name: manifest.get(name) for name in (*FACTS, "edits_prompt", "copied_fields", "tools")},
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
    if stored.get("asked") != inputs or not {"tools", "not_in_prompt", "certainty"} <= stored.keys():
        return None
    rows = stored["found"]
    choosing, confirming = (
        [from_mapping(Row, row, str(path)) for row in rows[name]] for name in ("choosing", "confirming")
    )
    without_model = [from_mapping(Baseline, row, str(path)) for row in stored["baselines"]]
    wrong = [from_mapping(WrongAnswer, row, str(path)) for row in stored["wrong"]]
    tools = [from_mapping(ToolScore, row, str(path)) for row in stored["tools"]]
    certainty = stored["certainty"]
    report = certainty and from_mapping(CertaintyReport, certainty, str(path))
    recommendation, copies = Recommendation(choosing, confirming, rows["points"]), stored["not_in_prompt"]
    return Outcome(recommendation, without_model, wrong, tools, copies, report)
