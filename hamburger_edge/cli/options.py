"""Options that several commands share, and functions that read their values."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hamburger_edge.cli.command import option
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import DEFAULT_CONFIDENCE, MODES
from hamburger_edge.loop.settings import Options
from hamburger_edge.model import Model
from hamburger_edge.support.files import read_regular
from hamburger_edge.support.terminal import ProgressBar

_CONFIDENCES = [(mode, confidence) for mode, confidence in DEFAULT_CONFIDENCE.items() if mode != "plain"]

JSON = option("--json", action="store_true", help="print one JSON object instead of text")
REPORT = option("--report", metavar="FILE", help="also write all figures to this file, as JSON")
OFF_TOPIC = option(
    "--off-topic",
    metavar="FILE|builtin",
    help='sentences that are no task of the model, a line of {"prompt": TEXT} each; builtin: 3,200 everyday '
    "sentences and 200 fragments, builtin-except:Music,Weather without those of some domains. They fit the "
    "certainty, and the table lists the share that passes",
)
WANTED_RIGHT = option(
    "--right",
    type=float,
    metavar="PERCENT",
    help="right answers among those that pass: chooses the reported min_certainty (default 95)",
)
BUNDLE = option(
    "bundle", metavar="BUNDLE", help="folder made by `export`, a built-in model, or a checkpoint (PyTorch)"
)
RUNTIME = (
    option("--backend", default="auto", choices=["auto", "onnx", "llamacpp", "torch"], help="runtime to use"),
    option(
        "--provider",
        rare=True,
        metavar="NAME",
        help="onnx: what computes, cpu, cuda, coreml or auto (default cpu)",
    ),
    option("--threads", type=int, metavar="N", help="processor threads (default: one for each core)"),
    option(
        "--cache-slots",
        rare=True,
        type=int,
        metavar="SLOTS",
        help="slots the KV buffer holds (default 4096, or the model's context)",
    ),
    option(
        "--kv-cache-dtype",
        rare=True,
        metavar="TYPE",
        help="of the KV cache: llamacpp has f16 (default), q8_0, q4_0 and f32; onnx has what was exported",
    ),
    option(
        "--gpu-layers", rare=True, type=int, metavar="N", help="llamacpp: layers on the GPU (default -1: all)"
    ),
)
ANSWER = (
    option(
        "--max-tokens",
        type=int,
        metavar="N",
        help="most tokens of an answer (default 256; twice the prompt's and 8 if the model edits it)",
    ),
    option(
        "--confidence",
        type=float,
        metavar="C",
        help="how sure each further token of a group must be, 0 to 1 (default: what the model recommends "
        "for the mode, else the mode's own: " + ", ".join(f"{m} {c}" for m, c in _CONFIDENCES) + ")",
    ),
    option(
        "--mode",
        choices=MODES,
        help="plain: one token a step; verify: the base checks every drafted token; hybrid: certain tokens "
        "are merged into one cache entry, the base checks the rest; merge: every group is merged (default: "
        "what the model recommends, else verify)",
    ),
    option("--temperature", type=float, metavar="T", help="0 (default) is greedy"),
    option("--top-k", rare=True, type=int, metavar="K", help="sample among the K best tokens"),
    option(
        "--top-p",
        rare=True,
        type=float,
        metavar="P",
        help="sample among the best tokens that hold this probability",
    ),
    option(
        "--min-p",
        rare=True,
        type=float,
        metavar="P",
        help="leave out tokens below this share of the best one's",
    ),
    option(
        "--repetition-penalty",
        rare=True,
        type=float,
        metavar="R",
        help="above 1: tokens of prompt and answer become less likely",
    ),
    option(
        "--presence-penalty",
        rare=True,
        type=float,
        metavar="R",
        help="taken off the score of every token of the answer",
    ),
    option(
        "--frequency-penalty", rare=True, type=float, metavar="R", help="the same, for each time it was said"
    ),
    option("--seed", type=int, metavar="N", help="same seed, same text"),
    option("--stop", action="append", metavar="TEXT", help="end the answer before this text (repeatable)"),
    option(
        "--json-schema",
        metavar="FILE|TEXT",
        help="the answer is JSON that follows this schema; forced tokens cost nothing",
    ),
    option("--regex", rare=True, metavar="TEXT", help="the answer matches this regular expression"),
    option("--grammar", rare=True, metavar="FILE", help="the answer follows this grammar, in Lark's syntax"),
    option("--system", metavar="TEXT", help="system message instead of the model's own"),
    option(
        "--show-steps",
        action="store_true",
        help="show which tokens came in one step: in colours, or where there are none by a line on standard "
        "error with | between them",
    ),
)


def open_model(options: argparse.Namespace) -> Model:
    """Load the model that `bundle` names; show progress while a built-in model is made."""
    from hamburger_edge.loading import load

    with ProgressBar() as progress:
        return load(options.bundle, options.backend, progress=progress, **runtime_options(options))


def bundle_of(name: str, backend: str = "auto") -> Path:
    """Return the bundle's folder; show progress while a built-in model's bundle is made."""
    from hamburger_edge.loading import find_bundle

    with ProgressBar() as progress:
        return find_bundle(name, backend, progress=progress)


def runtime_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the runtime options that are not None."""
    names = ("provider", "threads", "cache_slots", "kv_cache_dtype", "gpu_layers")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def answer_options(options: argparse.Namespace) -> Options:
    """Return the answer options that are not None; schema and grammar files are read."""
    given = {n: getattr(options, n) for n in Options.__annotations__ if getattr(options, n, None) is not None}
    if (schema := given.get("json_schema")) is not None:
        given["json_schema"] = read_schema(schema)
    if (grammar := given.get("grammar")) is not None:
        given["grammar"] = _read("--grammar", grammar)
    chosen: Options = {**given}  # type: ignore[typeddict-item]
    return chosen


def read_schema(given: str) -> str:
    """Return a JSON schema, given as text or as a file."""
    return given if given.lstrip().startswith("{") else _read("--json-schema", given)


def read_option_json(flag: str, given: str) -> Any:
    """Return the value of JSON that is given as text or as a file."""
    text = given if given.lstrip().startswith("{") else _read(flag, given)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{flag}: not JSON ({error})") from error


def _read(flag: str, name: str) -> str:
    try:
        return read_regular(name, limit=1 << 20).decode("utf-8")
    except OSError as error:
        raise InputError(f"{flag} {name}: cannot be read ({error.strerror}): name a file") from error
    except ValueError as error:  # not UTF-8, or an invalid file name
        raise InputError(f"{flag} {name}: is not UTF-8 text: name a text file") from error
