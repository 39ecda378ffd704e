"""`bench --prompts`: each program answers each request from an empty cache, in rotation.

prompts --> Running: choose, prepare, load --> one request each, A B C A B C ..., after a warm-up round
        --> check the answers --> RequestReport
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from hamburger_edge.benchmarks.contender import BenchmarkRequest, Program, Source, TimedAnswer
from hamburger_edge.benchmarks.requests.prompts import BenchmarkPrompt
from hamburger_edge.benchmarks.requests.request_plan import RequestPlan, pairs
from hamburger_edge.benchmarks.requests.request_report import CheckedAnswer, RequestReport, result
from hamburger_edge.benchmarks.speed.bench_report import shared_facts
from hamburger_edge.benchmarks.speed.interleave import all_ratios
from hamburger_edge.benchmarks.speed.running import Measured, Running, Start, start
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation.judges import Validator, equal
from hamburger_edge.support.progress import Progress, no_progress


class RequestBench:
    def __init__(
        self,
        source: Source,
        plan: RequestPlan,
        prompts: Sequence[BenchmarkPrompt],
        requests: Sequence[BenchmarkRequest],  # the prompts, as token ids
        tokenizer: Tokenizer,
        *,
        progress: Progress = no_progress,
        start: Start = start,
        clock: Callable[[], float] = perf_counter,
    ):
        self.source, self.plan = source, plan
        self.prompts, self.requests, self.tokenizer = prompts, requests, tokenizer
        self.validator = None if plan.schema is None else Validator(plan.schema)
        self.running = Running(
            source, only=plan.only, seconds=plan.seconds, progress=progress, start=start, clock=clock
        )

    def run(self, programs: Mapping[str, Program]) -> RequestReport:
        running = self.running
        rounds = self.plan.rounds or len(self.requests)
        try:
            members = running.open(running.choose(programs))
            answers = running.take_turns(members, rounds, self._answer)
            usage = {name: process.usage() for name, process in running.processes.items()}
        finally:
            running.close()
        judged = {
            name: [self._judge(*numbered) for numbered in enumerate(timed, 1)]
            for name, timed in answers.items()
        }
        return RequestReport(
            **shared_facts(self.source, running.skipped),
            schema=self.plan.schema,
            results=[
                result(name, judgements, running.facts[members[name][0]], usage[members[name][0]])
                for name, judgements in judged.items()
            ],
            ratios=_ratios(answers),
            answers=[
                {"name": name, **judgement.to_json()}
                for name, judgements in judged.items()
                for judgement in judgements
            ],
        )

    def _answer(self, process: Measured, variant: str, number: int) -> TimedAnswer:
        answer: TimedAnswer = process.ask("answer", self.requests[number % len(self.requests)], variant)
        return answer

    def _judge(self, number: int, timed: TimedAnswer) -> CheckedAnswer:
        """Decode and check an answer. A truncated answer gets no special treatment."""
        index = number % len(self.requests)
        ids = [token for token in timed.tokens if token not in self.requests[index].eos_ids]
        text, expected = self.tokenizer.decode(ids), self.prompts[index].answer
        return CheckedAnswer(
            index,
            timed,
            text,
            None if self.validator is None else self.validator.accepts(text),
            None if expected is None else equal(text, expected),
        )


def _ratios(answers: Mapping[str, Sequence[TimedAnswer]]) -> list[dict[str, object]]:
    """Return speed ratios per request, and per token because answers differ in length."""
    compared = pairs(list(answers))
    requests = {name: [1 / answer.total_s for answer in timed] for name, timed in answers.items()}
    tokens = {
        name: [len(answer.tokens) / answer.total_s for answer in timed] for name, timed in answers.items()
    }
    both = (all_ratios(requests, compared, "request"), all_ratios(tokens, compared, "token"))
    return [{**request, **token} for request, token in zip(*both, strict=True)]
