"""The command line: one function a command; what a command needs is imported inside it."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hamburger_edge.cli.parser import answer_options, build_parser, runtime_options
from hamburger_edge.errors import HamburgerError, InputError, needing
from hamburger_edge.support.terminal import (
    GroupPainter,
    Progress,
    interruptible,
    is_terminal,
    note,
    silence,
    stats_line,
)

# What `run --json` says about an answer.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors of ours become one line and exit code 1."""
    debug = False
    _open_streams()
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if isinstance(sys.stdout, io.TextIOWrapper):  # text that the terminal cannot show is no error
        sys.stdout.reconfigure(errors="replace")
    try:
        options = build_parser(_FUNCTIONS).parse_args(arguments)
        debug = options.debug
        with needing("train" if options.function in (distill, segment, train) else "export"):
            options.function(options)
        sys.stdout.flush()
        return 0
    except HamburgerError as error:
        if debug:
            traceback.print_exc()
        note(f"error: {error}")
        return 1
    except (MemoryError, RuntimeError) as error:
        of_a_gpu = type(error).__name__ == "OutOfMemoryError"  # torch's
        if not (of_a_gpu or isinstance(error, MemoryError)):
            raise
        if debug:
            traceback.print_exc()
        note("error: not enough memory: close other programs, or ask for less (context, rows, precision)")
        return 1
    except KeyboardInterrupt:
        note("")
        note("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output went away
        silence(sys.stdout)
        return 0
    except OSError as error:
        if debug:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        silence(sys.stdout)  # a full disk below it would fail again at the end
        place = "" if error.filename is None else f"{error.filename}: "
        note(f"error: {place}{error.strerror or error}: check that it is there, its rights and the space")
        return 1


def _open_streams() -> None:
    """A standard stream that whoever started us closed is None: read and write nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 open to the end


def fetch(options: argparse.Namespace) -> None:
    from hamburger_edge.models.bases.fetch import fetch as bring

    with Progress() as progress:
        folder = bring(options.name, progress=progress, verify=options.verify)
    print(folder)


def export(options: argparse.Namespace) -> None:
    from hamburger_edge.export.pipeline import export as write

    with Progress() as progress:
        bundle = write(
            options.source,
            options.output,
            formats=options.format or ["onnx"],
            flavor=options.flavor,
            precision=options.precision,
            gguf_precision=options.gguf_precision,
            block_size=options.block_size,
            keep_head=options.keep_head,
            prefer=options.prefer,
            kv=options.kv,
            context=options.context,
            verify=not options.no_verify,
            force=options.force,
            progress=progress,
        )
    print(bundle)


def verify(options: argparse.Namespace) -> None:
    from hamburger_edge.export.parity.gate import verify as check

    with Progress() as progress:
        report = check(
            Path(options.bundle), against=options.against, backend=options.backend, progress=progress
        )
    if options.json:
        _print_json(report.to_json())
    else:
        print(report)


def inspect(options: argparse.Namespace) -> None:
    from hamburger_edge.bundle.inspection import describe, show

    facts = describe(Path(options.bundle), context=options.context)
    if options.json:
        _print_json(facts)
    else:
        print(show(facts))


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.loading import load

    if options.raw and options.system is not None:
        raise InputError("--raw takes the prompt as it is: leave --system out")
    prompt: str | bytes = sys.stdin.buffer.read() if options.prompt == "-" else options.prompt
    with load(options.bundle, options.backend, **runtime_options(options)) as model:
        stream = model.stream(
            prompt, raw=options.raw, system=options.system, **answer_options(options, probabilities=False)
        )
        painter = GroupPainter(is_terminal(sys.stdout)) if options.show_steps else None
        groups = []
        with stream, interruptible(stream.cancel):
            for record in stream:
                if record.tokens:
                    groups.append(list(record.tokens))
                if not options.json:
                    text = painter.paint(record.text, len(record.tokens)) if painter else record.text
                    print(text, end="", flush=True)
        if stream.finish_reason == "cancelled":
            raise KeyboardInterrupt
        if options.json:
            info = model.info
            facts = {
                **stream.stats.to_json(),
                "provider": info.provider,
                "precision": info.precision,
            }
            _print_json(
                {
                    "text": stream.text,
                    "tokens": [token for group in groups for token in group],
                    "groups": groups,
                    "stats": {name: facts[name] for name in STATS},
                }
            )
            return
        print()
        if options.show_steps or options.stats:
            note(stats_line(stream.stats))


def chat(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.chat import converse
    from hamburger_edge.loading import load

    with load(options.bundle, options.backend, **runtime_options(options)) as model:
        converse(model, system=options.system, show_steps=options.show_steps, **answer_options(options))


def demo(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.demo import demo as show

    show(options.model, precision=options.precision)


def evaluate(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.eval import evaluate as judge

    judge(options)


def bench(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.bench import bench as measure

    measure(options)


def distill(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.training import distill as make

    make(options)


def segment(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.training import segment as cut

    cut(options)


def train(options: argparse.Namespace) -> None:
    from hamburger_edge.cli.training import train as learn

    learn(options)


def _print_json(data: Any) -> None:
    readable = sys.stdout.encoding.lower() == "utf-8"
    print(json.dumps(data, ensure_ascii=not readable))


def _show_warning(message: Warning | str, *_: Any) -> None:
    note(f"warning: {message}")


_FUNCTIONS = {
    "fetch": fetch,
    "export": export,
    "verify": verify,
    "inspect": inspect,
    "run": run,
    "chat": chat,
    "demo": demo,
    "bench": bench,
    "eval": evaluate,
    "distill": distill,
    "segment": segment,
    "train": train,
}


if __name__ == "__main__":
    sys.exit(main())
