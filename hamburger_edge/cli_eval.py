"""`hamburger-edge eval`: what merging and quantization cost in quality."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from hamburger_edge.cli_options import runtime_options
from hamburger_edge.errors import InputError
from hamburger_edge.terminal import Progress


def evaluate(options: argparse.Namespace) -> None:
    from hamburger_edge.benchmarks.checks import BUILT_IN, read_prompts
    from hamburger_edge.benchmarks.eval import QUICK, Evaluation, Plan, quick
    from hamburger_edge.benchmarks.eval_models import name_of, own_base, reference_base, sources
    from hamburger_edge.benchmarks.eval_tables import tables

    # whatever can be wrong is found out before the long part begins
    prompts = read_prompts(options.prompts or BUILT_IN)
    prompts = quick(prompts) if options.quick else prompts
    given = {n: getattr(options, n) for n in ("max_tokens", "temperature", "seed")}
    plan = replace(QUICK if options.quick else Plan(), **{n: v for n, v in given.items() if v is not None})
    if options.confidence is not None:
        plan = replace(plan, confidences=_grid(options.confidence))
    _check_outputs(options.json, options.plot)
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
        evaluation = Evaluation(base, prompts, plan, models=len(found), progress=progress)
        models = []
        for number, source in enumerate(found):
            if number == 0 and not options.reference:
                models.append(evaluation.run(base.name, base.judge.model))
                continue
            with source.open(**settings) as model:
                models.append(evaluation.run(name_of(source, model), model))
    report = evaluation.report(models, options.prompts or "the built-in set")
    if options.plot:
        from hamburger_edge.benchmarks.eval_plots import plot

        for path in plot(report, Path(options.plot)):
            print(path, file=sys.stderr)
    text = json.dumps(report.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    if options.json == "-":
        print(text)
        return
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    print(tables(report))


def _grid(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise InputError(
            f"confidence must be numbers from 0 to 1 with commas between, such as 0.9,0.8; got {text!r}"
        ) from error


def _check_outputs(report: str | None, pictures: str | None) -> None:
    if report not in (None, "-"):
        path = Path(str(report))
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise InputError(f"{path}: no file can be written there: name a file in a folder that exists")
    if pictures is not None:
        from hamburger_edge.benchmarks.eval_plots import pyplot

        if Path(pictures).exists() and not Path(pictures).is_dir():
            raise InputError(f"{pictures}: is a file: name a folder for the pictures")
        pyplot()
