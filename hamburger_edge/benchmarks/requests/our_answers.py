"""Our runtimes as contenders that answer whole requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from hamburger_edge.benchmarks.contender import BenchmarkRequest, Source, TimedAnswer, TimedMessage
from hamburger_edge.benchmarks.speed.our_speed import PLAIN, Ours, setting_options
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.loop.answer_run import AnswerRun, Steps
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import StepToken
from hamburger_edge.model import Model

PLAIN_SINGLE = f"{PLAIN}+single"  # variant: one base call per token, under a schema


class AnsweringModel(Ours):
    def __init__(self, source: Source, *, backend: str, model: Model | None = None):
        super().__init__(source, backend=backend, model=model)
        self.models: dict[str, Model] = {}  # by variant; a conversation keeps its cache
        self.chats: dict[str, Chat] = {}

    def answer(self, request: BenchmarkRequest, variant: str) -> TimedAnswer:
        assert self.model is not None
        inference = self.model.inference
        options = options_of(variant, request)
        driver = single if variant == PLAIN_SINGLE else None
        began = perf_counter()
        prompt = inference.prompt_groups(request.prompt)
        with inference.answer(prompt, Settings.of(options), reuse="none", driver=driver) as stream:
            groups = [chunk.tokens for chunk in stream if chunk.tokens]
            unread = len(inference.engine.unread)
        return as_answer(groups, options, stream.stats, perf_counter() - began, unread)

    def send(self, text: str, system: str | None, max_tokens: int, variant: str) -> TimedMessage:
        """Answer the next turn of this variant's conversation."""
        assert self.model is not None
        if variant not in self.chats:
            self.models[variant] = self.opened() if self.models else self.model
            options: Options = {"max_tokens": max_tokens, **setting_options(variant)}
            self.chats[variant] = self.models[variant].chat(system, **options)
        chat = self.chats[variant]
        first = None
        with chat.send(text) as stream:
            for _ in stream:
                first = first or replace(stream.stats)  # a copy, because the stream updates its stats
        stats = stream.stats
        return TimedMessage(
            length=sum(map(len, chat.groups)),
            slots=len(chat.groups),
            tokens=stats.tokens - stats.first_tokens,
            seconds=stats.decode_s,
            base_calls=stats.base_calls - (first.base_calls if first else 0),
            text=chat.messages[-1].text,
        )

    def close(self) -> None:
        for model in self.models.values():
            model.close()
        super().close()


def single(run: AnswerRun) -> Steps:
    """Decode plainly with one base call per token, also for tokens that the schema forces."""
    while not run.over:
        if (row := run.read()) is not None:
            forced = run.sampler.forced is not None
            choice = run.sampler.choose(row.logits)
            yield run.put([[StepToken(choice.token, choice.probability, row.p_stop, forced=forced)]])


def options_of(variant: str, request: BenchmarkRequest) -> Options:
    """Parse a variant of `RequestPlan.variants` into options."""
    setting, _, structured = variant.partition("+")
    options: Options = {"max_tokens": request.max_tokens, **setting_options(setting)}
    if structured:
        options["json_schema"] = request.schema
    return options


def as_answer(
    groups: Sequence[tuple[int, ...]], options: Options, stats: Stats, total_s: float, unread: int
) -> TimedAnswer:
    """Return the timings of an answer. `unread`: number of generated groups not yet in the cache."""
    return TimedAnswer(
        tokens=tuple(token for group in groups for token in group),
        ttft_s=stats.ttft_s,
        total_s=total_s,
        base_calls=stats.base_calls + (stats.prefill_s > 0),  # plus the prefill, if there was one
        steps=stats.macro_steps,
        slots=stats.slots - stats.prompt_tokens + unread,
        micro_steps=stats.micro_steps,
        forced=stats.forced_tokens if "json_schema" in options else None,
        host_s=total_s - stats.prefill_s - stats.macro_s - stats.micro_s,
    )
