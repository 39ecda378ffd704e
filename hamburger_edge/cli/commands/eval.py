"""`hamburger-edge eval`: the quality loss of merging and quantization."""

from __future__ import annotations

import argparse
import contextlib
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import (
    JSON,
    OFF_TOPIC,
    REPORT,
    RUNTIME,
    WANTED_RIGHT,
    bundle_of,
    runtime_options,
)
from hamburger_edge.cli.outputs import check_file, show_report
from hamburger_edge.errors import InputError
from hamburger_edge.loading import load
from hamburger_edge.support.terminal import ProgressBar
from hamburger_edge.support.values import number_in, whole_in

if TYPE_CHECKING:
    from hamburger_edge.evaluation.checks import Prompt
    from hamburger_edge.evaluation.likelihood.quality import QualityPlan
    from hamburger_edge.evaluation.likelihood.quality_report import QualityReport


def run(options: argparse.Namespace) -> None:
    if options.recommend and options.certainty:
        raise InputError("--recommend and --certainty are two measurements: find the setting first")
    if options.certainty:
        _certainty(options)
        return
    if options.recommend:
        _recommend(options)
        return
    for flag, wanted in (
        ("checkpoint", "--recommend or --certainty"),
        ("points", "--recommend"),
        ("off_topic", "--certainty"),
        ("right", "--certainty"),
    ):
        if getattr(options, flag) is not None:
            raise InputError(f"--{flag.replace('_', '-')} is for {wanted}: add that, or leave it out")
    from hamburger_edge.evaluation.checks import BUILT_IN, read_prompts
    from hamburger_edge.evaluation.likelihood.quality import QUICK, QualityPlan, quick

    # check all inputs before the long work
    prompts = read_prompts(options.prompts or BUILT_IN)
    prompts = quick(prompts) if options.quick else prompts
    given = {n: getattr(options, n) for n in ("max_tokens", "temperature", "seed")}
    plan = replace(
        QUICK if options.quick else QualityPlan(), **{n: v for n, v in given.items() if v is not None}
    )
    if options.confidence is not None:
        plan = replace(plan, confidences=_grid(options.confidence))
    check_file(options.report)
    report = _measure(options, prompts, plan)
    show_report(options, report.to_json(), str(report))


def _recommend(options: argparse.Namespace) -> None:
    """Measure, and write the recommendation into the bundle and into --checkpoint if given."""
    from hamburger_edge.bundle.reading import load_manifest
    from hamburger_edge.evaluation.asking import EvaluationPlan
    from hamburger_edge.evaluation.judges import checked
    from hamburger_edge.evaluation.recommending import (
        MAX_TOKENS,
        checkable_questions,
        checkable_requests,
        find_recommendation,
        kept_files,
    )
    from hamburger_edge.models.checkpoints.facts import check_checkpoint

    for flag in ("reference", "temperature", "seed", "off_topic", "right"):
        if getattr(options, flag) is not None:
            raise InputError(
                f"--{flag.replace('_', '-')} has no part in --recommend, which decodes greedily: leave it out"
            )
    if options.quick or len(options.bundle) != 1 or options.backend == "all":
        raise InputError("--recommend takes one bundle, one backend and all questions: no --quick")
    bundle = bundle_of(options.bundle[0])
    load_manifest(bundle)
    checkpoint = None if options.checkpoint is None else check_checkpoint(Path(options.checkpoint))
    plan = EvaluationPlan()
    if options.points is not None:
        plan = replace(plan, points=number_in("--points", options.points, 0, 50, above=True))
    questions = checkable_questions(options.prompts, plan.points)
    check_file(options.report)
    if options.confidence is not None:
        plan = replace(plan, confidences=_merging(_grid(options.confidence)))
    kept = bundle.absolute().with_name(f"{bundle.absolute().name}.answers.jsonl")
    max_tokens = (
        MAX_TOKENS if options.max_tokens is None else whole_in("--max-tokens", options.max_tokens, 1, 4096)
    )
    with ProgressBar() as progress:
        progress("loading", 0, 0)
        with load(bundle, options.backend, **runtime_options(options)) as model:
            requests = checkable_requests(model, questions, max_tokens)
            recommendation = find_recommendation(
                model, requests, checked, plan, max_tokens=max_tokens, kept=kept, progress=progress
            )
    _store(
        options,
        recommendation.to_json(),
        str(recommendation),
        bundle,
        checkpoint,
        recommended=recommendation.best,
    )
    for file in kept_files(kept):  # the report is written
        file.unlink(missing_ok=True)


def _certainty(options: argparse.Namespace) -> None:
    """Fit the certainty, and write it into the bundle and into --checkpoint if given."""
    from hamburger_edge.bundle.reading import load_manifest
    from hamburger_edge.evaluation.certainty_fit import measure_certainty, read_questions
    from hamburger_edge.evaluation.certainty_report import RIGHT
    from hamburger_edge.evaluation.off_topic import read_off_topic
    from hamburger_edge.evaluation.recommending import CHECKABLE
    from hamburger_edge.models.checkpoints.facts import check_checkpoint

    for flag in ("reference", "temperature", "seed", "confidence", "points"):
        if getattr(options, flag) is not None:
            raise InputError(f"--{flag} has no part in --certainty, which asks as recommended: leave it out")
    if options.quick or len(options.bundle) != 1 or options.backend == "all":
        raise InputError("--certainty takes one bundle, one backend and all prompts: no --quick")
    bundle = bundle_of(options.bundle[0])
    load_manifest(bundle)
    checkpoint = None if options.checkpoint is None else check_checkpoint(Path(options.checkpoint))
    questions, judge = read_questions(options.prompts or CHECKABLE)
    off_topic = [] if options.off_topic is None else read_off_topic(options.off_topic)
    off_topic = random.Random(0).sample(off_topic, min(len(off_topic), len(questions)))
    right = RIGHT if options.right is None else number_in("--right", options.right, 0, 100, above=True)
    check_file(options.report)
    with ProgressBar() as progress:
        progress("loading", 0, 0)
        with load(bundle, options.backend, **runtime_options(options)) as model:
            report = measure_certainty(
                model,
                questions,
                judge,
                off_topic=off_topic,
                max_tokens=options.max_tokens,
                progress=progress,
            )
    shown = report.to_json(right), report.text(right)
    _store(options, *shown, bundle, checkpoint, certainty=report.certainty)


def _store(
    options: argparse.Namespace,
    report: dict[str, Any],
    text: str,
    bundle: Path,
    checkpoint: Path | None,
    **facts: Any,
) -> None:
    """Write measured facts into the bundle and the checkpoint, if there is one, and show the report."""
    from hamburger_edge.evaluation.recommending import tell_bundle, tell_checkpoint

    tell_bundle(bundle, **facts)
    written = [str(bundle)]
    if checkpoint is not None:
        tell_checkpoint(checkpoint, **facts)
        written.append(str(checkpoint))
    show_report(options, report, f"{text}\nwritten into {' and '.join(written)}")


def _merging(confidences: tuple[float, ...]) -> tuple[float, ...]:
    """Return the confidences below 1; plain decoding is always measured."""
    chosen = tuple(confidence for confidence in confidences if confidence < 1)
    if not chosen or not all(confidence >= 0 for confidence in chosen):
        raise InputError("--confidence must name settings below 1 to choose among, such as 0.95,0.9,0.8")
    return chosen


def _measure(options: argparse.Namespace, prompts: list[Prompt], plan: QualityPlan) -> QualityReport:
    """Measure every bundle.

    The first pass opens each bundle to check it, the second measures it. Memory holds the base and one
    other model.
    """
    from hamburger_edge.evaluation.likelihood.models import name_of, own_base, reference_base, sources
    from hamburger_edge.evaluation.likelihood.quality import Evaluation, check_room, check_tokens

    bundles = sources(options.bundle, options.backend)
    settings = runtime_options(options)
    with contextlib.ExitStack() as opened, ProgressBar() as progress:
        progress("loading", 0, 0)
        if options.reference:
            threads = settings.get("threads")
            judge = reference_base(options.reference, cache_slots=options.cache_slots, threads=threads)
        else:
            first, *bundles = bundles
            model = first.open(**settings)
            judge = own_base(model, name_of(first, model))
        opened.enter_context(judge.model)
        for source in bundles:
            with source.open(**settings) as model:
                check_tokens(judge, prompts, name_of(source, model), model)
                check_room(judge, prompts, plan, name_of(source, model), model)
        evaluation = Evaluation(judge, prompts, plan, progress)
        reports = [] if options.reference else [evaluation.run(judge.name, judge.model)]
        for source in bundles:
            with source.open(**settings) as model:
                reports.append(evaluation.run(name_of(source, model), model))
        return evaluation.report(reports, options.prompts or "the built-in set")


def _grid(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError as error:
        raise InputError(
            f"confidence must be numbers from 0 to 1 with commas between, such as 0.9,0.8; got {text!r}"
        ) from error


COMMAND = Command(
    name="eval",
    summary="what merging and quantization cost in quality",
    options=(
        option(
            "bundle",
            nargs="+",
            metavar="BUNDLE",
            help="bundles, built-in models or checkpoint folders, side by side",
        ),
        option(
            "--reference",
            metavar="CHECKPOINT",
            help="judge by this checkpoint's base in float32 PyTorch, without what the graft changed in "
            "it (default: by the first BUNDLE's own base, one token a slot)",
        ),
        option(
            "--backend",
            default="auto",
            choices=["auto", "onnx", "llamacpp", "torch", "all"],
            help="runtime to use; all: every one that a bundle has files for",
        ),
        *RUNTIME[1:],
        option(
            "--prompts",
            metavar="FILE.jsonl",
            help="prompts, some with checkable answers (default: the built-in set of 64)",
        ),
        option("--confidence", metavar="C,C,...", help="default 0.9,0.8,0.7; 1 is always there"),
        option("--max-tokens", type=int, metavar="N", help="most tokens of an answer (default 128)"),
        option("--temperature", type=float, metavar="T", help="0 (default) is greedy"),
        option("--seed", type=int, metavar="N", help="default 0"),
        option(
            "--recommend",
            action="store_true",
            help="find the fastest setting that costs no answers, and write it into the bundle",
        ),
        option(
            "--certainty",
            action="store_true",
            help="fit the certainty of answers to prompts with known answers, and write it into the bundle",
        ),
        option("--points", type=float, metavar="P", help="of 100, that it must not lose (default 1)"),
        option(
            "--checkpoint",
            metavar="CHECKPOINT",
            help="with --recommend or --certainty: write the result into this checkpoint's folder too, so "
            "that its bundles have it",
        ),
        OFF_TOPIC,
        WANTED_RIGHT,
        option("--quick", action="store_true", help="two prompts of a kind, 48 tokens, confidence 0.8"),
        JSON,
        REPORT,
    ),
    examples=(
        "hamburger-edge eval bundle --quick",
        "hamburger-edge eval my-checkpoint fp32-bundle int8-bundle int4-bundle --reference my-checkpoint",
        "hamburger-edge eval bundle --recommend",
        "hamburger-edge eval bundle --certainty --prompts questions.jsonl --checkpoint my-checkpoint",
        "hamburger-edge eval bundle --certainty --prompts questions.jsonl --off-topic builtin --right 98",
        "hamburger-edge eval bundle --prompts questions.jsonl --report quality.json",
    ),
    run=run,
    notes="A plain base is the judge: it reads every answer, one token a slot, of all bundles alike. What a\n"
    "bundle loses at confidence 1 lies in its weights, what it loses from there on lies in merging.\n"
    "Without --reference no PyTorch is needed, but the judge is as quantized as the first bundle, and\n"
    "what training changed in the base (a low-rank delta) counts as the base's own.\n\n"
    'Each line of a prompt file is {"prompt": TEXT, "kind": WORD, "check": {"type": T, "value": V}}; '
    "kind and check\nmay be left out. T is exact, contains, regex, or number (the answer's last one).\n\n"
    "--recommend asks 1,000 short questions that rules can check (or those of --prompts that have a check).\n"
    "A third of them is answered at every setting, and chooses two; these two are confirmed on the others,\n"
    "beside plain decoding. An exact test of the pairs has to show that a setting loses less than --points\n"
    "(by error in at most 5% of runs). The fastest such setting becomes what `run`, `chat` and `load` use\n"
    "by default; `inspect` shows it. Answers are kept in BUNDLE.answers.jsonl until then: the\n"
    "same command goes on where it was stopped.\n\n"
    "--certainty asks the prompts of --prompts as the model recommends: those with a check, or lines of\n"
    '{"prompt": TEXT, "answer": TEXT}. Every second answer fits the coefficients that turn an answer\'s\n'
    "likelihood into the probability that it is right, the others judge them. Take prompts that trained\n"
    "nothing, at least 100. --off-topic sentences, at most as many as prompts, fit as wrong answers with a\n"
    "tenth of the prompts' weight; the table lists the share of them that passes.",
)
