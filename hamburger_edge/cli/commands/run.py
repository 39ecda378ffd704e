"""`hamburger-edge run`: answer one prompt."""

from __future__ import annotations

import argparse
import sys

from hamburger_edge.chat.stream import Stream
from hamburger_edge.cli.answers import GroupPainter, cut_line, stats_line
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import (
    ANSWER,
    BUNDLE,
    JSON,
    RUNTIME,
    answer_options,
    open_model,
    read_option_json,
)
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.errors import InputError
from hamburger_edge.model import Model
from hamburger_edge.support.terminal import interruptible, is_terminal, note

# Statistics in the output of `run --json`.
STATS = (
    "tokens",
    "macro_steps",
    "tokens_per_step",
    "slots",
    "kv_bytes",
    "kv_bytes_uncompressed",
    "ttft_s",
    "decode_tps",
    "provider",
    "precision",
)


UNSURE = 3  # exit code of an unsure answer


def run(options: argparse.Namespace) -> int:
    if options.raw and options.system is not None:
        raise InputError("--raw takes the prompt as it is: leave --system out")
    prompt: str | bytes = sys.stdin.buffer.read() if options.prompt == "-" else options.prompt
    with open_model(options) as model:
        if options.as_calls:
            return _print_calls(model, prompt, options)
        stream = model.stream(prompt, raw=options.raw, system=options.system, **answer_options(options))
        painter = GroupPainter(is_terminal(sys.stdout)) if options.show_steps else None
        held = (
            model.info.edits_prompt and not painter
        )  # an unsure correction prints the prompt's text instead
        with stream, interruptible(stream.cancel):
            for chunk in stream:
                if not options.json and not held:
                    text = painter.paint(chunk.text, len(chunk.tokens)) if painter else chunk.text
                    print(text, end="", flush=True)
        if stream.finish_reason == "cancelled":
            raise KeyboardInterrupt
        if options.json:
            info = model.info
            reports_unsure = options.min_certainty is not None or stream.unsure
            facts = {
                **stream.stats.to_json(),
                "provider": info.provider,
                "precision": info.precision,
            }
            print_json(
                {
                    "text": stream.text,
                    "tokens": [token for group in stream.groups for token in group],
                    "groups": stream.groups,
                    "finish_reason": stream.finish_reason,
                    **({} if stream.complete is None else {"complete": stream.complete}),
                    **({} if stream.certainty is None else {"certainty": stream.certainty}),
                    **({"unsure": stream.unsure} if reports_unsure else {}),
                    "stats": {name: facts[name] for name in STATS},
                }
            )
            return UNSURE if stream.unsure else 0
        print(stream.text if held else "", flush=True)
        for line in (painter and painter.line(), cut_line(stream, model.info), unsure_line(stream, options)):
            if line:
                note(line)
        if options.show_steps or options.stats:
            note(stats_line(stream.stats))
        return UNSURE if stream.unsure else 0


def unsure_line(stream: Stream, options: argparse.Namespace) -> str | None:
    if not stream.unsure:
        return None
    original = "; the text is the prompt's own" if stream.reverted else ""
    if options.min_certainty is None:
        return f"unsure: the answer was cut or repeats itself{original}"
    limit = f"below {options.min_certainty:g}{original}"
    return f"unsure: the answer's certainty is {stream.certainty or 0:.3g}, {limit}"


def _print_calls(model: Model, prompt: str | bytes, options: argparse.Namespace) -> int:
    """Print the calls as a JSON list; with --json as an object that has the certainty, too."""
    if options.raw or options.show_steps:
        raise InputError("--calls prints calls of a prompt: leave --raw and --show-steps out")
    names = None if options.names is None else read_option_json("--names", options.names)
    with interruptible(model.cancel):
        calls = model.call(prompt, names=names, system=options.system, **answer_options(options))
    certainty = [{} if call.certainty is None else {"certainty": call.certainty} for call in calls]
    parts = zip(calls, certainty, strict=True)
    listed = [{"name": call.name, "arguments": call.arguments, **more} for call, more in parts]
    known = {} if calls.certainty is None else {"certainty": calls.certainty}
    reports_unsure = options.min_certainty is not None
    print_json(
        {"calls": listed, **known, **({"unsure": calls.unsure} if reports_unsure else {})}
        if options.json
        else listed
    )
    if calls.unsure:
        what, limit = "the calls" if calls else "no call", options.min_certainty
        note(f"unsure: the certainty of {what} is {calls.certainty:.3g}, below {limit:g}")
    elif not calls and calls.certainty is not None and not options.json:
        note(f"no call: the certainty is {calls.certainty:.3g}")
    return UNSURE if calls.unsure else 0


COMMAND = Command(
    name="run",
    summary="answer one prompt",
    options=(
        BUNDLE,
        option("prompt", metavar="PROMPT", help="the prompt, or - to read it from standard input"),
        *RUNTIME,
        *ANSWER,
        option(
            "--calls",
            dest="as_calls",
            action="store_true",
            help="print the calls of a model with tools, as a JSON list",
        ),
        option(
            "--names",
            rare=True,
            metavar="FILE|TEXT",
            help='with --calls: allowed values of arguments, as JSON: {"area": ["Kitchen", "Hall"]}',
        ),
        option("--raw", action="store_true", help="no chat template: go on with the prompt as it is"),
        option(
            "--min-certainty",
            type=float,
            metavar="P",
            help=f"an answer that is right with a lower probability ends with exit code {UNSURE} and a note "
            "on standard error (0 to 1; for models whose certainty was measured)",
        ),
        option("--stats", action="store_true", help="print speed and compression at the end"),
        JSON,
    ),
    examples=(
        'hamburger-edge run bundle "Why is the sky blue?" --show-steps',
        'hamburger-edge run bundle "Write a poem." --temperature 0.7 --seed 1 --confidence 0.9',
        "cat letter.txt | hamburger-edge run bundle - --json",
        'hamburger-edge run bundle "What does it weigh?" --json-schema answer.schema.json',
        'hamburger-edge run voice-commands "play some jazz" --min-certainty 0.9',
    ),
    run=run,
)
