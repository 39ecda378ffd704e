"""Our runtimes as contenders that answer whole requests, called through the public `Model.stream`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from time import perf_counter

from hamburger_edge.benchmarks.contender import Request, TimedAnswer
from hamburger_edge.benchmarks.speed.our_speed import Ours
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.settings import Options
from hamburger_edge.loop.stats import Stats


class AnsweringModel(Ours):
    def answer(self, request: Request, variant: str) -> TimedAnswer:
        assert self.model is not None
        options = options_of(variant, request)
        began = perf_counter()
        with self.model.stream(request.prompt, reuse_prefix=False, **options) as stream:
            groups = [chunk.tokens for chunk in stream if chunk.tokens]
            unread = len(self.model.inference.engine.unread)
        return as_answer(groups, options, stream.stats, perf_counter() - began, unread)


def options_of(variant: str, request: Request) -> Options:
    """Parse a variant of `RequestPlan.variants` into options."""
    setting, _, forced = variant.partition("+")
    options: Options = {"max_tokens": request.most}
    options |= asdict(Recommended.parse(setting))  # type: ignore[typeddict-item]
    if forced:
        options |= {"json_schema": request.schema, "forced": forced}  # type: ignore[typeddict-item]
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
        forced=stats.forced_tokens if "forced" in options else None,
        host_s=total_s - stats.prefill_s - stats.macro_s - stats.micro_s,
    )
