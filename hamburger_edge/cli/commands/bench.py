"""`hamburger-edge bench`: speed and memory on this machine; a checkout can also compare other programs.

It measures answers of a fixed length to built-in prompts, or complete requests with --prompts.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON, REPORT, bundle_of, read_schema
from hamburger_edge.cli.outputs import check_file, check_folder, show_report
from hamburger_edge.errors import CheckpointError, InputError, MissingExtraError, require
from hamburger_edge.structured.structure import Structure
from hamburger_edge.support.processors import MOST_THREADS, usable_processors
from hamburger_edge.support.terminal import ProgressBar
from hamburger_edge.support.values import number_in

if TYPE_CHECKING:
    from hamburger_edge.benchmarks.contender import Program
    from hamburger_edge.benchmarks.peers.serving.server_report import ServingReport
    from hamburger_edge.benchmarks.requests.conversation import ConversationReport
    from hamburger_edge.benchmarks.requests.request_plan import RequestPlan
    from hamburger_edge.benchmarks.requests.request_report import RequestReport
    from hamburger_edge.benchmarks.speed.speed_plan import BenchPlan
    from hamburger_edge.benchmarks.speed.speed_report import SpeedReport

TOKENS = 1 << 20
LONGEST = 4096  # tokens of a conversation, if the context has room


# Options that apply to one kind of measurement only.
OF_LENGTHS = ("shape", "force_group", "tokens", "longest", "plot")
OF_REQUESTS = ("json_schema", "max_tokens", "confidence", "conversation")
OF_SERVERS = ("prompts", "only", "minutes", *(name for name in OF_LENGTHS if name != "tokens"))


def run(options: argparse.Namespace) -> None:
    if options.serve:
        for name in (*OF_SERVERS, *OF_REQUESTS):
            if getattr(options, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} does not go with  --serve")
        check_file(options.report)
        _serving(options)
        return
    whole = options.prompts is not None
    for name in OF_LENGTHS if whole else OF_REQUESTS:
        if getattr(options, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise InputError(
                f"{flag} {'does not go with' if whole else 'is of whole requests: give'}  --prompts"
            )
    check_file(options.report)
    if options.costs:
        _costs(options)
        return
    if options.against and not options.peers:
        raise InputError("--against is for other programs: add  --peers")
    for flag, needs in (("--peers", options.peers), ("--prompts", whole)):
        if needs:
            _in_checkout(flag)
    if options.conversation:
        for flag, given in (("--peers", options.peers), ("--json-schema", options.json_schema)):
            if given:
                raise InputError(f"{flag} does not go with  --conversation")
    (_requests if whole else _lengths)(options)


def _show(
    options: argparse.Namespace,
    report: SpeedReport | RequestReport | ConversationReport | ServingReport,
    tables: str,
) -> None:
    show_report(options, report.to_json(), tables)


def _lengths(options: argparse.Namespace) -> None:
    from hamburger_edge.benchmarks.speed.shapes import shape_bundle
    from hamburger_edge.benchmarks.speed.speed_bench import Bench
    from hamburger_edge.benchmarks.speed.speed_plan import all_programs, prompts, source_of
    from hamburger_edge.benchmarks.speed.speed_plots import plot
    from hamburger_edge.benchmarks.speed.speed_report import tables

    plan = plan_of(options)
    check_folder(options.plot)
    if options.plot:
        require("matplotlib", "bench")
    if (options.bundle is None) == (options.shape is None):
        raise InputError("give either a BUNDLE or  --shape NAME")
    threads = _threads(options)
    with ProgressBar() as progress:
        if options.shape:
            bundle = shape_bundle(options.shape, progress=progress)
        else:
            bundle = bundle_of(options.bundle)
        manifest = load_manifest(bundle)
        check_files(bundle, manifest)
        checkpoint = None if options.shape else find_checkpoint(options.against, manifest)
        if plan.force_group is not None and not manifest.model.has_graft:
            raise InputError("--force-group: this model is plain, without groups: leave it out")
        if plan.force_group is not None and plan.force_group > manifest.model.max_group_tokens:
            raise InputError(f"--force-group must be 1 to {manifest.model.max_group_tokens} for this model")
        texts = prompts(
            Tokenizer(manifest.tokenizer_in(bundle)), ChatTemplate.from_json(manifest.chat_template)
        )
        source = source_of(
            bundle,
            manifest,
            checkpoint,
            threads,
            longest_prompt=max(map(len, texts)),
            tokens=plan.tokens,
            flag="--tokens",
            longest=plan.longest,
            build=plan.build,
            forms=_forms(options, checkpoint),
        )
        programs = all_programs(plan, manifest, _peers(options))
        report = Bench(source, plan, texts, progress=progress).run(programs)
    report = replace(report, base=manifest.base.name)
    _show(options, report, tables(report))
    if options.plot:
        for path in plot(report, Path(options.plot)):
            print(path)


def _requests(options: argparse.Namespace) -> None:
    from hamburger_edge.benchmarks.requests import conversation
    from hamburger_edge.benchmarks.requests.prompts import read_prompts, requests
    from hamburger_edge.benchmarks.requests.request_bench import RequestBench
    from hamburger_edge.benchmarks.requests.request_plan import programs, recommended
    from hamburger_edge.benchmarks.requests.request_report import tables
    from hamburger_edge.benchmarks.speed.speed_plan import source_of

    plan, prompts = request_plan_of(options), read_prompts(options.prompts)
    if options.bundle is None:
        raise InputError("give a BUNDLE")
    threads, bundle = _threads(options), bundle_of(options.bundle)
    with ProgressBar() as progress:
        manifest = load_manifest(bundle)
        check_files(bundle, manifest)
        plan = replace(plan, recommended=recommended(manifest))
        checkpoint = find_checkpoint(options.against, manifest)
        tokenizer = Tokenizer(manifest.tokenizer_in(bundle))
        template = ChatTemplate.from_json(manifest.chat_template)
        eos_ids = manifest.model.eos_ids
        encoded = requests(
            prompts, tokenizer, template, max_tokens=plan.max_tokens, eos_ids=eos_ids, schema=plan.schema
        )
        source = source_of(
            bundle,
            manifest,
            checkpoint,
            threads,
            longest_prompt=max(len(request.prompt) for request in encoded),
            tokens=plan.max_tokens,
            flag="--max-tokens",
            longest=LONGEST if options.conversation else 0,
            build=plan.build,
            forms=_forms(options, checkpoint),
        )
        if options.conversation:
            plan = conversation.settings_of(plan)
            held = conversation.converse(
                source, plan, prompts, programs(plan, manifest, {}), progress=progress
            )
            held = replace(held, base=manifest.base.name)
            _show(options, held, conversation.tables(held))
            return
        bench = RequestBench(source, plan, prompts, encoded, tokenizer, progress=progress)
        report = bench.run(programs(plan, manifest, _peers(options)))
    report = replace(report, base=manifest.base.name)
    _show(options, report, tables(report))


def _costs(options: argparse.Namespace) -> None:
    from hamburger_edge.benchmarks.speed.call_times import time_bundle

    if options.bundle is None:
        raise InputError("give a BUNDLE")
    report = time_bundle(bundle_of(options.bundle), _threads(options))
    show_report(options, report.to_json(), report.text())


def _serving(options: argparse.Namespace) -> None:
    if options.bundle is None:
        raise InputError("give a BUNDLE")
    require("uvicorn", "serve")
    _in_checkout("--serve")
    from hamburger_edge.benchmarks.peers.serving.server_bench import compared, serving_plan
    from hamburger_edge.benchmarks.peers.serving.server_report import tables

    threads, bundle = _threads(options), bundle_of(options.bundle)
    manifest = load_manifest(bundle)
    check_files(bundle, manifest)
    tokens = _whole("--tokens", options.tokens, 2, TOKENS)
    rounds = _whole("--rounds", options.rounds, 1, TOKENS)
    plan = serving_plan(manifest, threads, tokens=tokens, rounds=rounds, quick=options.quick)
    checkpoint = find_checkpoint(options.against, manifest)
    with ProgressBar() as progress:
        report = compared(bundle, manifest, checkpoint, plan, build=not options.quick, progress=progress)
    _show(options, report, tables(report))


def plan_of(options: argparse.Namespace) -> BenchPlan:
    """Return the quick or the full plan, with the given options applied."""
    from hamburger_edge.benchmarks.speed.speed_plan import QUICK, BenchPlan

    given: dict[str, Any] = {
        "tokens": _whole("--tokens", options.tokens, 2, TOKENS),
        "rounds": _whole("--rounds", options.rounds, 1, TOKENS),
        "longest": _whole("--longest", options.longest, 0, TOKENS),
        "force_group": _whole("--force-group", options.force_group, 2, TOKENS),
    }
    if options.minutes is not None:
        given["seconds"] = 60 * number_in("--minutes", options.minutes, 0, TOKENS)
    if options.shape and given["force_group"] is None:
        given["force_group"] = 2
    plan = QUICK if options.quick else BenchPlan()
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(plan, only=tuple(options.only or ()), random=bool(options.shape), **changes)


def request_plan_of(options: argparse.Namespace) -> RequestPlan:
    """Return the plan for complete requests, with the given options applied."""
    from hamburger_edge.benchmarks.requests.request_plan import QUICK, RequestPlan, setting

    given: dict[str, Any] = {
        "max_tokens": _whole("--max-tokens", options.max_tokens, 1, TOKENS),
        "rounds": _whole("--rounds", options.rounds, 1, TOKENS),
    }
    if options.minutes is not None:
        given["seconds"] = 60 * number_in("--minutes", options.minutes, 0, TOKENS)
    if options.confidence:
        given["settings"] = tuple(dict.fromkeys(map(setting, options.confidence)))
    if options.json_schema is not None:
        structure = Structure.of(json_schema=read_schema(options.json_schema))
        assert structure is not None
        given["schema"] = structure.text
    plan = QUICK if options.quick else RequestPlan()
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(plan, only=tuple(options.only or ()), **changes)


def _peers(options: argparse.Namespace) -> Mapping[str, Program]:
    if not options.peers:
        return {}
    from hamburger_edge.benchmarks.peers.programs import PEERS

    return PEERS


def _forms(options: argparse.Namespace, checkpoint: Path | None) -> Path | None:
    """Return the folder for the model files of other programs."""
    if not options.peers or checkpoint is None:
        return None
    from hamburger_edge.benchmarks.peers.peer_files import folder_of

    return folder_of(checkpoint)


def _in_checkout(flag: str) -> None:
    if importlib.util.find_spec("hamburger_edge.benchmarks.peers") is None:
        raise InputError(
            f"{flag} is not in an installed package: run it in a checkout, after  pip install --editable "
            "'.[bench]'"
        )


def find_checkpoint(given: str | None, manifest: Manifest) -> Path | None:
    """Return the bundle's checkpoint: `given`, else the name in the manifest; None if that is not found."""
    if given is not None and given.endswith(".ckpt"):
        raise InputError(f"{given}: peers are built from a checkpoint folder: save it as one first")
    try:
        from hamburger_edge.models.checkpoints.built_in import resolve

        folder: Path = resolve(manifest.graft.name if given is None else given)
    except (CheckpointError, MissingExtraError):  # not here, or the built-in models are not installed
        if given is not None:
            raise
        return None
    return folder


def _threads(options: argparse.Namespace) -> int:
    return _whole("--threads", options.threads, 1, MOST_THREADS) or usable_processors()


def _whole(name: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        raise InputError(f"{name} must be {low} to {high}, got {value}")
    return value


COMMAND = Command(
    name="bench",
    summary="speed and memory on this machine, also beside other programs",
    options=(
        option("bundle", nargs="?", metavar="BUNDLE", help="folder made by `export`, or a built-in model"),
        option("--shape", metavar="NAME", help="random weights instead: llama-3.2-1b or tiny"),
        option(
            "--force-group",
            type=int,
            metavar="N",
            help="also with every group of N tokens (with --shape default 2)",
        ),
        option(
            "--peers", action="store_true", help="in a checkout: beside other programs that are installed"
        ),
        option(
            "--against",
            metavar="CHECKPOINT",
            help="with --peers: what the bundle was made from (default: the bundle stores its name)",
        ),
        option("--only", action="append", metavar="NAME", help="measure this alone (repeatable)"),
        option("--threads", type=int, metavar="N", help="processor threads of each (default: all)"),
        option("--tokens", type=int, metavar="N", help="new tokens of an answer (default 64)"),
        option(
            "--rounds",
            type=int,
            metavar="N",
            help="answers of each, in turn (default one to each prompt)",
        ),
        option(
            "--longest",
            type=int,
            metavar="N",
            help="cost against length up to here, of onnx, onnxruntime-genai and llama.cpp "
            "(default 4096; 0: no)",
        ),
        option(
            "--prompts",
            metavar="FILE.jsonl",
            help='in a checkout: whole requests instead: a line each, {"prompt": ...}, with "answer" (the '
            'right one) and "system" if wanted',
        ),
        option(
            "--json-schema",
            metavar="FILE|TEXT",
            help="of whole requests: their answers follow this schema, in every program",
        ),
        option(
            "--conversation",
            action="store_true",
            default=None,
            help="of whole requests: they are turns of one conversation; times by its length",
        ),
        option("--max-tokens", type=int, metavar="N", help="of whole requests: most tokens (default 256)"),
        option(
            "--confidence",
            action="append",
            metavar="SETTING",
            help="of whole requests: a mode, or one with its confidence as verify-0.8 (repeatable; default: "
            "what the model recommends, plain, merge at 0.95, 0.9 and 0.8, verify; with a schema what it "
            "recommends, or merge-0.8)",
        ),
        option(
            "--costs",
            action="store_true",
            help="the time of a call by its rows, and what drafts cost on this machine",
        ),
        option(
            "--serve",
            action="store_true",
            help="in a checkout: servers instead, `serve` and llama-cpp-python's, with 1, 4 and 16 clients",
        ),
        option("--minutes", type=float, metavar="M", help="stop measuring after M minutes"),
        option("--quick", action="store_true", help="fewer and shorter answers; peers' files are not made"),
        JSON,
        REPORT,
        option("--plot", metavar="DIR", help="write speed.png, length.png and compression.png"),
    ),
    examples=(
        "hamburger-edge bench bundle --quick",
        "hamburger-edge bench bundle --peers --against my-checkpoint --report bench.json --plot pictures",
        "hamburger-edge bench bundle --peers --only onnx --only llama.cpp --threads 4",
        "hamburger-edge bench --shape llama-3.2-1b --force-group 2",
        "hamburger-edge bench bundle --prompts commands.jsonl --json-schema command.json",
        "hamburger-edge bench bundle --prompts questions.jsonl --conversation --max-tokens 96",
        "hamburger-edge bench bundle --serve --report serving.json",
    ),
    run=run,
    notes=(
        "All take turns, A B C A B C, so that what disturbs the machine disturbs all alike; the first round\n"
        "warms up. Names: onnx and llamacpp (at @CONFIDENCE, @MODE or both), optimum, transformers;\n"
        "onnxruntime-genai, also with -int4, -int4-k_quant or -int8; llama.cpp, also with -q4_1, -q4_0,\n"
        "-iq4_nl or -q8_0; each of these also with -lookup. Each runs in a process of\n"
        "its own. What they read is built once and kept in the cache folder; programs that are not\n"
        "installed are named and left out.\n"
        "Whole requests (--prompts) are answered from an empty cache up to the end token or\n"
        "the end of the schema, by onnx, llamacpp, onnxruntime-genai and llama.cpp; with a schema ours at\n"
        "@C+split, at @C without it, and at @plain+single with one base call per token."
    ),
)
