"""`distill`, `segment` and `train`: the commands that make a graft."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamburger_edge.chat.markup import KINDS, MARKUP_FILE
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError, HamburgerError, InputError, require
from hamburger_edge.support.strict import read_lines
from hamburger_edge.support.terminal import Progress, is_terminal, note
from hamburger_edge.support.values import number_in, whole_in

if TYPE_CHECKING:
    from hamburger_edge.models.distillation.conversations import TurnTokens


def distill(options: argparse.Namespace) -> None:
    torch = require("torch", "train")
    from hamburger_edge.models.architecture.llama import Base
    from hamburger_edge.models.bases.loading import find_base
    from hamburger_edge.models.distillation.conversations import DistillSettings
    from hamburger_edge.models.distillation.distill import distill as make
    from hamburger_edge.models.distillation.distill import shard_size
    from hamburger_edge.runtimes.torch.backend import use_threads

    whole_in("--tokens", options.tokens, 1, 2**62)
    changes: dict[str, Any] = {}
    if options.rows is not None:
        changes["rows"] = whole_in("--rows", options.rows, 1, 2**62)
    if options.given is not None:
        changes["given"] = number_in("--given", options.given, 0, 1)
    whole_in("--seed", options.seed, 0, 2**63 - 1)
    use_threads(options.threads, "--threads")
    progress = Progress()
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
    out, rows = Path(options.output), changes.get("rows", DistillSettings.rows)
    changes["shard_conversations"] = shard_size(out, options.tokens, rows)
    settings = DistillSettings(tokens=options.tokens, seed=options.seed, **changes)
    read = [tokenizer.encode_parts([(text, False)]) for text in read_prompts(options.prompts)]
    prompts = [ids for ids in read if 0 < len(ids) <= settings.max_question]
    if len(prompts) < len(read):
        left_out = len(read) - len(prompts)
        print(f"{left_out} of {len(read)} prompts left out: empty, or above {settings.max_question} tokens")
    base = Base(loaded.config)
    base.load_state_dict(loaded.state)
    cuda = torch.cuda.is_available()

    def report(done: int, total: int, seconds: float) -> None:
        left = max(0, total - done) * seconds
        speed = f"{1 / max(seconds, 1e-9):.0f} tokens/s, {left / 60:.0f} min left"
        progress("distilling", done, total, speed)

    source = {"base": options.base, "sha256": reference.get("sha256", "")}
    data = make(base.to("cuda") if cuda else base, out, settings, turns, prompts, source, report)
    progress.close()
    print(f"{out}: {data.answer_tokens} answer tokens in {len(data.shards)} shards")


def turn_tokens(template: ChatTemplate, tokenizer: Tokenizer) -> TurnTokens:
    """Where the base takes over in its chat template: after it opens a user turn, and an answer."""
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
    """The "prompt" of every line of these JSONL files."""
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


def segment(options: argparse.Namespace) -> None:
    from hamburger_edge.models.bases.loading import find_base
    from hamburger_edge.models.training.batches import DistilledData
    from hamburger_edge.models.training.segment_report import RULES, render
    from hamburger_edge.models.training.segment_report import report as cut
    from hamburger_edge.models.training.segmentation import EntropyRule

    steps = whole_in("--max-steps", options.max_steps, 1, 64)
    for name, value in (("--low", options.low), ("--ratio", options.ratio)):
        if value is not None:
            number_in(name, value, 0, sys.float_info.max)
    data = DistilledData.load(Path(options.data))
    given = options.low is not None or options.ratio is not None
    rules = (EntropyRule(options.low or 0.0, options.ratio or 0.0),) if given else RULES
    try:
        base, _ = find_base(str(data.source.get("base")))
        decode = None if base.tokenizer is None else Tokenizer(base.tokenizer).decode
    except HamburgerError:  # the base is not here any more: figures only
        decode = None
    facts = cut(data, rules, max_steps=steps, decode=decode, sample=options.sample)
    if options.json:
        print(json.dumps(facts.to_json()))
    else:
        print(render(facts, colour=is_terminal(sys.stdout)))


def train(options: argparse.Namespace) -> None:
    require("torch", "train")
    from hamburger_edge.models.tiny import recipe as tiny
    from hamburger_edge.models.training.recipe import read_recipe
    from hamburger_edge.models.training.runs import train as learn
    from hamburger_edge.runtimes.torch.backend import use_threads

    use_threads(options.threads, "--threads")
    path, output = Path(options.recipe), Path(options.output)
    if tiny.is_recipe(path):  # brings a corpus of its own
        if options.finish:
            raise InputError(f"{path}: tiny is trained to its end: leave --finish out")
        written = tiny.build(tiny.read_tiny_recipe(path), output, minutes=options.minutes, report=note)
    else:
        recipe = read_recipe(path)
        written = learn(recipe, output, minutes=options.minutes, finish=options.finish, report=note)
    if written is not None:
        print(written)
