"""`hamburger-edge eval`: what merging and quantization cost in quality."""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hamburger_edge.cli.outputs import check_file, check_folder
from hamburger_edge.cli.parser import runtime_options
from hamburger_edge.errors import InputError
from hamburger_edge.support.terminal import Progress, note

if TYPE_CHECKING:
    from hamburger_edge.benchmarks.quality.checks import Prompt
    from hamburger_edge.benchmarks.quality.evaluation import Plan
    from hamburger_edge.benchmarks.quality.report import Report


def evaluate(options: argparse.Namespace) -> None:
    from hamburger_edge.benchmarks.quality.checks import BUILT_IN, read_prompts
    from hamburger_edge.benchmarks.quality.evaluation import QUICK, Plan, quick
    from hamburger_edge.benchmarks.quality.tables import tables

    # whatever can be wrong is found out before the long part begins
    prompts = read_prompts(options.prompts or BUILT_IN)
    prompts = quick(prompts) if options.quick else prompts
    given = {n: getattr(options, n) for n in ("max_tokens", "temperature", "seed")}
    plan = replace(QUICK if options.quick else Plan(), **{n: v for n, v in given.items() if v is not None})
    if options.confidence is not None:
        plan = replace(plan, confidences=_grid(options.confidence))
    check_file(options.json)
    check_folder(options.plot)
    if options.plot:
        from hamburger_edge.benchmarks.quality.plots import plot, pyplot

        pyplot()  # or say what to install
    report = _measure(options, prompts, plan)
    text = json.dumps(report.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    print(text if options.json == "-" else tables(report), flush=True)  # whatever becomes of the files
    if options.json not in (None, "-"):
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    if options.plot:
        for path in plot(report, Path(options.plot)):
            note(str(path))


def _measure(options: argparse.Namespace, prompts: list[Prompt], plan: Plan) -> Report:
    """Every bundle is opened once to see that it can be, then again for its turn: one at a time in memory."""
    from hamburger_edge.benchmarks.quality.evaluation import Evaluation, check_room, check_tokens
    from hamburger_edge.benchmarks.quality.models import name_of, own_base, reference_base, sources

    found = sources(options.bundle, options.backend)
    settings = runtime_options(options)
    with contextlib.ExitStack() as opened, Progress() as progress:
        progress("loading", 0, 0)
        if options.reference:
            base = reference_base(options.reference, context=options.context, threads=options.threads)
            opened.enter_context(base.judge.model)
        else:
            first = opened.enter_context(found[0].open(**settings))
            base = own_base(first, name_of(found[0], first))
        others = found if options.reference else found[1:]
        for source in others:
            with source.open(**settings) as model:
                check_tokens(base, prompts, name_of(source, model), model)
                check_room(base, prompts, plan, name_of(source, model), model)
        own = not options.reference
        evaluation = Evaluation(base, prompts, plan, models=len(found), judge_is_one=own, progress=progress)
        models = [] if options.reference else [evaluation.run(base.name, base.judge.model)]
        for source in others:
            with source.open(**settings) as model:
                models.append(evaluation.run(name_of(source, model), model))
        return evaluation.report(models, options.prompts or "the built-in set")


def _grid(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise InputError(
            f"confidence must be numbers from 0 to 1 with commas between, such as 0.9,0.8; got {text!r}"
        ) from error
