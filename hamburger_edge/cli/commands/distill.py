"""`hamburger-edge distill`: generate a training set with a base model."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hamburger_edge.chat.template import KINDS, MARKUP_FILE, ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.commands._training import CLUSTER, cluster
from hamburger_edge.errors import ConfigError, InputError, require
from hamburger_edge.support.strict import read_lines
from hamburger_edge.support.terminal import ProgressBar
from hamburger_edge.support.values import number_in, whole_in

if TYPE_CHECKING:
    from hamburger_edge.models.distillation.conversations import TurnTokens


def run(options: argparse.Namespace) -> None:
    torch = require("torch", "train")
    from hamburger_edge.models.architecture.llama import Base
    from hamburger_edge.models.bases.loading import find_base
    from hamburger_edge.models.distillation.conversations import DistillSettings
    from hamburger_edge.models.distillation.distill import distill, kept_type, shard_size
    from hamburger_edge.models.training.speed import faster_type
    from hamburger_edge.runtimes.torch.torch_backend import use_threads

    whole_in("--tokens", options.tokens, 1, 2**62)
    changes: dict[str, Any] = {}
    if options.rows is not None:
        changes["rows"] = whole_in("--rows", options.rows, 1, 2**62)
    if options.given is not None:
        changes["given"] = number_in("--given", options.given, 0, 1)
    whole_in("--seed", options.seed, 0, 2**63 - 1)
    use_threads(options.threads, "--threads")
    progress = ProgressBar()
    loaded, reference = find_base(options.base, progress=progress)
    if loaded.tokenizer is None:
        raise ConfigError(f"{options.base}: has no tokenizer.json: put the model's beside its weights")
    if loaded.chat_template is None:
        raise ConfigError(
            f"{options.base}: has no chat template that is understood: put a {MARKUP_FILE} beside its "
            f'weights, such as {{"kind": "llama3"}} (known: {", ".join(KINDS)})'
        )
    tokenizer = Tokenizer(loaded.tokenizer)
    turns = turn_tokens(ChatTemplate.from_json(loaded.chat_template), tokenizer)
    out: str = options.output
    rows = changes.get("rows", DistillSettings.rows)
    changes["shard_conversations"] = shard_size(out, options.tokens, rows)
    settings = DistillSettings(tokens=options.tokens, seed=options.seed, **changes)
    read = [tokenizer.encode_parts([(text, False)]) for text in read_prompts(options.prompts)]
    prompts = [ids for ids in read if 0 < len(ids) <= settings.max_question]
    if len(prompts) < len(read):
        left_out = len(read) - len(prompts)
        print(f"{left_out} of {len(read)} prompts left out: empty, or above {settings.max_question} tokens")
    base = Base(loaded.config)
    base.load_state_dict(loaded.state)

    def report(done: int, total: int, seconds: float) -> None:
        left = max(0, total - done) * seconds
        speed = f"{1 / max(seconds, 1e-9):.0f} tokens/s, {left / 60:.0f} min left"
        progress("distilling", done, total, speed)

    source = {"base": options.base, "sha256": reference.get("sha256", "")}
    with cluster(options) as workers:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if workers is None:
            base.to(device)
        dtype = kept_type(out) or faster_type(device)
        data = distill(base, out, settings, turns, prompts, source, report, dtype, workers)
    progress.close()
    print(f"{out}: {data.answer_tokens} answer tokens in {len(data.shards)} shards")


def turn_tokens(template: ChatTemplate, tokenizer: Tokenizer) -> TurnTokens:
    """Return the template's tokens around the text that the base generates: user turns and answers."""
    from hamburger_edge.models.distillation.conversations import TurnTokens

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode_parts([(text, True)]))

    system = template.default_system or ""
    opening = template.prefix
    if system:
        opening += template.before_system + system + template.after_system
    after_user, after_answer = ids(template.after_user), ids(template.after_answer)
    if not after_user or not after_answer or after_user[0] != after_answer[0]:
        raise ConfigError("distilling needs a chat template whose user turns and answers end with one token")
    return TurnTokens(
        prefix=ids(opening + template.before_user),
        user_to_answer=ids(template.after_user + template.before_answer)[1:],
        answer_to_user=ids(template.after_answer + template.before_user)[1:],
        end=after_user[0],
    )


def read_prompts(files: Iterable[str]) -> list[str]:
    """Return the "prompt" of every line of these JSONL files."""
    prompts = []
    for where, line in itertools.chain.from_iterable(map(read_lines, files)):
        try:
            prompt = json.loads(line)["prompt"]
        except (ValueError, KeyError, TypeError, RecursionError):
            prompt = None
        if not isinstance(prompt, str):
            raise InputError(f'{where}: expected {{"prompt": "..."}}')
        prompts.append(prompt)
    return prompts


COMMAND = Command(
    name="distill",
    summary="let a base model write the training set",
    options=(
        option(
            "base",
            metavar="BASE",
            help="smollm2-135m, gemma-3-270m, hf:ORG/NAME[@REVISION], a GGUF file or a Hugging Face folder",
        ),
        option(
            "-o",
            "--output",
            required=True,
            metavar="DATA",
            help="folder, or URL, for the shards; resumes there",
        ),
        option("--tokens", type=int, required=True, metavar="N", help="answer tokens to collect"),
        option("--prompts", action="append", default=[], metavar="FILE.jsonl", help="questions to mix in"),
        option(
            "--given",
            type=float,
            metavar="SHARE",
            help="conversations that begin with one of --prompts (default 0.4)",
        ),
        option("--seed", type=int, default=0, metavar="N", help="default 0"),
        option("--rows", type=int, metavar="N", help="conversations side by side (default 128)"),
        option("--threads", type=int, metavar="N", help="processor threads"),
        *CLUSTER,
    ),
    examples=(
        "hamburger-edge distill smollm2-135m -o data --tokens 1000000",
        "hamburger-edge distill smollm2-135m -o data --tokens 1000000 --prompts questions.jsonl",
        "hamburger-edge distill smollm2-135m -o s3://bucket/data --tokens 200000000 --ray auto --workers 8",
    ),
    run=run,
    notes='Each line of a prompt file is {"prompt": "..."}. The data is the same, byte for byte,\n'
    "however many workers make it, as long as they are of one kind. It is computed in 16 or 32 bits,\n"
    "whichever this machine multiplies faster. A URL is one that fsspec knows.",
    extra="train",
)
