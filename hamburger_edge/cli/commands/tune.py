"""`hamburger-edge tune`: make a model for one task from its examples."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.commands._training import require_training
from hamburger_edge.cli.options import JSON, OFF_TOPIC, REPORT, WANTED_RIGHT
from hamburger_edge.cli.outputs import check_file, show_report
from hamburger_edge.errors import InputError
from hamburger_edge.support.terminal import ProgressBar, note
from hamburger_edge.support.values import number_in

if TYPE_CHECKING:
    from hamburger_edge.tuning.tune_recipe import TuneRecipe


def run(options: argparse.Namespace) -> None:
    require_training()
    from hamburger_edge.export.target import check_target as check_bundle
    from hamburger_edge.models.checkpoints.saving import check_target
    from hamburger_edge.runtimes.torch.torch_backend import use_threads
    from hamburger_edge.tuning.planning import Budget
    from hamburger_edge.tuning.results.evaluate_run import evaluate_run
    from hamburger_edge.tuning.results.publish_run import bundle_beside, publish_run
    from hamburger_edge.tuning.tune import tune
    from hamburger_edge.tuning.tune_run import TuneRun

    output = check_target(options.output)
    check_bundle(bundle_beside(output), force=True)
    check_file(options.report)
    minutes = None if options.minutes is None else number_in("--minutes", options.minutes, 0, 1e6, above=True)
    use_threads(options.threads, "--threads")
    work = Path(options.work) if options.work else output.with_name(f"{output.name}.work")
    recipe = chosen_recipe(options, work)
    with ProgressBar() as progress:
        tune_run = TuneRun(work, None if minutes is None else Budget(minutes), note, progress)
        tuned = tune(recipe, tune_run)
        outcome = evaluate_run(tuned, tune_run, threads=options.threads)
        published = publish_run(tuned, tune_run, outcome, output)
    if published.texts:
        note(f"{published.checkpoint}: {published.texts}")
    folders = {"checkpoint": str(published.checkpoint), "bundle": str(published.bundle)}
    show_report(options, {**folders, **outcome.to_json()}, f"{outcome}\n\n{published}")


def chosen_recipe(options: argparse.Namespace, work: Path) -> TuneRecipe:
    """Return the recipe: --recipe, else the recipe of the run in `work`, else the defaults with EXAMPLES.

    The given options replace its fields. A run that has begun accepts only those of FREE anew.
    """
    from hamburger_edge.tuning.continuing import continued
    from hamburger_edge.tuning.tune_recipe import TuneRecipe, read_tune_recipe
    from hamburger_edge.tuning.tune_run import RECIPE

    given = _given(options)
    stored = work / RECIPE
    if options.recipe:
        recipe = read_tune_recipe(Path(options.recipe))
    elif stored.exists():
        recipe = read_tune_recipe(stored)
        for name, value in given.items():
            if name not in FREE and getattr(recipe, name) != value:
                raise InputError(
                    f"{stored}: this run began with {name} {getattr(recipe, name)!r}: leave that as it was, "
                    f"delete {work}, or name another --work"
                )
    elif "examples" in given:
        recipe = TuneRecipe(base=DEFAULT_BASE, examples=str(given["examples"]))
    else:
        raise InputError("give a file of EXAMPLES, or a --recipe that names one")
    recipe = replace(recipe, **given)
    if not options.continued:
        return recipe
    if stored.exists() and not options.recipe:
        if options.continued != recipe.start or not recipe.continues:
            raise InputError(
                f"{stored}: this run began without --continue {options.continued}: leave that as it was, "
                f"delete {work}, or name another --work"
            )
        return recipe
    for name in ("base", "layers", "tokens", "merge", "full", "tune_base", "template", "more_answers"):
        if name in given:
            raise InputError(
                f"--{name.replace('_', '-')}: --continue takes that from {options.continued}: leave it out"
            )
    return continued(recipe, options.continued)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "examples": options.examples,
        "lines": options.lines,
        "base": options.base,
        "held_out": options.held_out,
        "tools": options.tools,
        "template": options.template,
        "judge": options.judge,
        "off_topic": options.off_topic,
        "right": options.right,
        "precision": options.precision,
        "edits_prompt": True if options.edits_prompt else None,
        "calibration_text": False if options.no_calibration_text else None,
        "tune_base": False if options.no_tune_base else None,
        "merge": True if options.merge else None,
        "full": True if options.full else None,
        "layers": options.layers,
        "tokens": options.tokens,
        "more_examples": options.more_examples,
        "augment": options.augment,
        "more_answers": options.more_answers,
    }
    return {name: value for name, value in given.items() if value is not None}


DEFAULT_BASE = "smollm2-135m"
FREE = ("judge", "precision", "edits_prompt", "calibration_text", "right")  # change no training

COMMAND = Command(
    name="tune",
    summary="make a model of one task from its examples",
    options=(
        option(
            "examples",
            nargs="?",
            metavar="EXAMPLES",
            help="JSON lines of prompt and answer (with tools: and calls), or of messages; CSV; Parquet; or "
            "a command that writes JSON lines, always the same",
        ),
        option(
            "--lines",
            type=int,
            metavar="N",
            help="number of lines to read from a command, which may write without end (default 100000)",
        ),
        option("-o", "--output", required=True, metavar="CHECKPOINT", help="folder to write at the end"),
        option(
            "--base",
            metavar="BASE",
            help="smollm2-135m (default), gemma-3-270m, a model tuned elsewhere as a Hugging Face folder or "
            "GGUF file, or hf:ORG/NAME[@REVISION]",
        ),
        option(
            "--tools",
            metavar="FILE",
            help="functions that the answers call: JSON in OpenAI's form or JSON Schema's, or a Python file "
            "of functions and Pydantic models (default: `tools` in the examples, if they have any)",
        ),
        option("--held-out", metavar="FILE", help="examples to judge by (default: one in twenty prompts)"),
        option(
            "--minutes",
            type=float,
            metavar="M",
            help="time for all of it, export and evaluation too; a finished run stays as it is",
        ),
        option(
            "--continue",
            dest="continued",
            metavar="CHECKPOINT",
            help="a tuned model that learns these examples, too, in a fraction of the time; give those that "
            "it knows as well, since it forgets what it does not see",
        ),
        option("--recipe", metavar="RECIPE.toml", help="as a run before it wrote one"),
        option("--no-tune-base", action="store_true", help="the base knows the task already"),
        option(
            "--merge",
            action="store_true",
            help="train a graft, and let the base learn to read merged text, for modes hybrid and merge: a "
            "smaller KV cache, fewer right answers",
        ),
        option("--full", action="store_true", help="tune all of the base instead of a low-rank update"),
        option(
            "--layers",
            type=int,
            metavar="N",
            help="keep N layers of the base, with the first and the last one, and drop those that change the "
            "examples least (default: all)",
        ),
        option(
            "--tokens",
            type=int,
            metavar="N",
            help="keep N tokens of the base's vocabulary: those that the examples need, and frequent ones; "
            "any text can still be written (default: all)",
        ),
        option(
            "--more-examples",
            metavar="FILE",
            help="examples that only train, such as made ones; none of them is held out",
        ),
        option(
            "--augment",
            type=int,
            metavar="N",
            help="N copies of the examples more, with names and other texts that answers copy from their "
            "prompts exchanged among them (default 0)",
        ),
        option(
            "--more-answers",
            type=int,
            metavar="N",
            help="with --merge: prompts that the tuned base answers itself, for the graft to learn from too "
            "(default 0)",
        ),
        option(
            "--template",
            choices=["brief", "base"],
            help="marks around a prompt: as few as can be (default), or all of the base's",
        ),
        option(
            "--judge",
            metavar="NAME|COMMAND",
            help="exact, fields (of JSON), distance, calls, or a command that reads lines of prompt, "
            "expected and answer and writes a number from 0 to 1 for each (default: calls with tools, fields "
            "where all answers are objects, else exact)",
        ),
        OFF_TOPIC,
        WANTED_RIGHT,
        option(
            "--precision",
            choices=["int4", "int8", "fp16", "fp32"],
            help="of the evaluated bundle, and of exports of the checkpoint that name none (default int8)",
        ),
        option(
            "--edits-prompt",
            action="store_true",
            help="answers are corrected prompts: whatever the weights, names, numbers and codes stay as they "
            "are",
        ),
        option(
            "--no-calibration-text",
            action="store_true",
            help="leave the examples' texts out of the checkpoint: exports then calibrate on general text "
            "(default: most of them are in its calibration.jsonl)",
        ),
        option("--work", metavar="DIR", help="folder for everything on the way (default: OUTPUT.work)"),
        option("--threads", type=int, metavar="N", help="processor threads"),
        JSON,
        REPORT,
    ),
    examples=(
        "hamburger-edge tune commands.jsonl -o my-commands",
        "hamburger-edge tune commands.jsonl -o my-commands --tools tools.json",
        "hamburger-edge tune commands.csv -o my-commands --minutes 30 --held-out checked.csv",
        "hamburger-edge tune letters.jsonl -o my-letters --judge 'python judge.py'",
        "hamburger-edge tune 'python mistakes.py' -o my-proofreader --lines 50000",
        "hamburger-edge tune commands.jsonl -o my-commands --off-topic builtin",
        "hamburger-edge tune commands.jsonl -o my-commands --base ./my-tuned-model --no-tune-base",
        "hamburger-edge tune more-commands.jsonl -o my-commands-2 --continue my-commands --minutes 20",
    ),
    run=run,
    notes=(
        "The evaluated bundle is written beside the checkpoint, as CHECKPOINT.bundle.\n"
        "\n"
        "A run that was stopped or killed goes on where it was; the recipe it chose stands in the working\n"
        "folder. The checkpoint recommends the fastest setting that was shown, on prompts held out, to lose\n"
        "less than one answer in a hundred. That takes some 560 prompts; with fewer it recommends nothing,\n"
        "and decodes in verify mode.\n"
        "\n"
        "Prompts that neither trained nor judged calibrate the certainty of answers; the held-out ones show\n"
        "how often answers are right above each certainty. --off-topic sentences fit, too. If an example\n"
        'has an answer without content, such as {"intent": "none"} or [], they also train with it.'
    ),
    extra="train",
)
