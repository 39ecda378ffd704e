"""`Contender`, the interface of a measured program, with its inputs and results.

Each program has one small adapter. `Program.adapter` names it, and only the process that runs it imports it
(`speed/process.py`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hamburger_edge.errors import missing


@dataclass(frozen=True)
class Source:
    """The constructor argument of every adapter: the weights, their precision, threads and cache size."""

    bundle: Path
    checkpoint: Path | None  # source of the bundle; None: not available, so peers have no weights
    precision: str  # of the bundle's base model: "fp32", "int4", ...
    threads: int
    slots: int  # cache capacity: the most KV entries that an answer needs
    gguf_precision: str | None = None  # of the bundle's GGUF files; None: it has none
    forms: Path | None = None  # folder of the base weights in the peers' file formats
    build: bool = True  # False: use only files that are already built for the peers


@dataclass(frozen=True)
class TimedTurn:
    """Timings of one greedy answer with exactly the requested number of tokens."""

    tokens: tuple[int, ...]
    ttft_s: float  # from the start to the first group
    decode_s: float  # after the first group
    first_tokens: int  # tokens of the first group
    prompt_tokens: int
    steps: int  # number of groups; for a peer: forward passes of the base
    # after the first group, like `decode_s`
    base_calls: int  # forward passes of the base
    macro_s: float = 0.0  # time inside the base
    micro_s: float = 0.0
    micro_steps: int = 0
    # for the whole answer
    merged: int = 0  # groups of two or more tokens
    slots: int = 0  # KV entries of the answer
    host_s: float | None = None  # time outside the models; None: not measured

    @classmethod
    def plain(
        cls,
        prompt: Sequence[int],
        answer: Sequence[int],
        ttft_s: float,
        decode_s: float,
        steps: int | None = None,
    ) -> TimedTurn:
        """Return a peer's turn: one first token, all time in the base; `steps` defaults to `len(said)`."""
        steps = len(answer) if steps is None else steps
        return cls(
            tokens=tuple(map(int, answer)),
            ttft_s=ttft_s,
            decode_s=decode_s,
            first_tokens=1,
            prompt_tokens=len(prompt),
            steps=steps,
            base_calls=steps - 1,
            macro_s=decode_s,
            slots=len(answer),
        )

    @property
    def decode_tps(self) -> float:
        return (len(self.tokens) - self.first_tokens) / max(self.decode_s, 1e-9)

    @property
    def prefill_tps(self) -> float:
        """`prompt_tokens / ttft_s`; every program can report the time to the first group."""
        return self.prompt_tokens / max(self.ttft_s, 1e-9)

    @property
    def macro_step_s(self) -> float:
        return self.macro_s / max(1, self.base_calls)


@dataclass(frozen=True)
class BenchmarkRequest:
    """A prompt and its limits. The answer ends at an end token or where the schema is complete."""

    prompt: tuple[int, ...]
    max_tokens: int  # of the answer
    eos_ids: tuple[int, ...]
    schema: str | None = None  # a JSON schema's text


@dataclass(frozen=True)
class TimedAnswer:
    """Timings of one greedy answer to a request, from an empty cache."""

    tokens: tuple[int, ...]  # including the end token, if the model generated one
    ttft_s: float  # from the start to the first token that the model chose
    total_s: float
    base_calls: int  # forward passes of the base, including the prefill
    steps: int  # number of groups; for a peer: forward passes of the base
    slots: int  # KV entries of the answer
    micro_steps: int = 0
    forced: int | None = None  # tokens that the schema determines; None: not measured
    host_s: float | None = None  # time outside the models; None: not measured


@dataclass(frozen=True)
class TimedMessage:
    """An answer of a conversation. Times, tokens and calls are those after the answer's first group."""

    length: int  # tokens of the conversation up to the end of this answer
    slots: int  # that they take in the cache
    tokens: int
    seconds: float
    base_calls: int
    text: str


@dataclass(frozen=True)
class Facts:
    """Properties of a loaded contender."""

    precision: str
    kv_bytes_per_slot: int


@dataclass(frozen=True)
class WeightBytes:
    """Weight bytes that one step of each kind reads."""

    macro: int  # macro step: a forward pass of the base
    micro: int = 0
    embed: int = 0  # embedder: once per merged group


class Contender(Protocol):
    """A program that answers prompts greedily, one sequence at a time. `turn` ignores end tokens."""

    def prepare(self) -> Path:
        """Build the program's input files once, in the cache folder, and return their path.

        `load` runs in another process, which receives the path as `prepared`. So the time and memory of the
        build do not count.
        """
        ...

    def load(self) -> Facts: ...

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn: ...

    def weight_bytes(self) -> WeightBytes:
        """Count the weight bytes. The benchmark calls this last, because counting takes memory."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Program:
    """The adapter of a contender, its requirements and its variants."""

    adapter: str  # module:class
    packages: tuple[str, ...] = ()  # modules that must be installed
    distribution: str = ""  # their name in pip
    variants: tuple[str, ...] = ("",)  # settings to measure, all in the same process
    options: dict[str, Any] = field(default_factory=dict)
    needs_checkpoint: bool = True
    continues: bool = False  # its `begin` and `advance` extend an answer, as those of `Ours`
    answers: bool = False  # its `answer(request, variant)` returns a TimedAnswer
    unusable: str | None = None  # reason why it cannot run, independent of packages

    @property
    def missing(self) -> str | None:
        """The reason why the program cannot run here, with the command that fixes it; None: it can run."""
        if self.unusable:
            return self.unusable
        for module in self.packages:
            if not installed(module):
                return str(missing(self.distribution, "'.[bench]'"))
        return None


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
