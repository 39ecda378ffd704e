"""What is measured: one small adapter a program, all behind `Contender`, and how a bundle's weights reach it.

Adapters are named here and imported where they run, each in a process of its own (`speed/process.py`).
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
    """Where the weights are and how they are to be computed with: all an adapter is made from."""

    bundle: Path
    checkpoint: Path | None  # what the bundle was made from; None: not here, so peers get no weights
    precision: str  # of the bundle's base: "fp32", "int4", ...
    threads: int
    slots: int  # most KV entries an answer needs
    gguf_precision: str | None = None  # of the bundle's GGUF files, where it has some
    forms: Path | None = None  # folder for its base in the forms that peers read
    build: bool = True  # whether there is time to build what peers read


@dataclass(frozen=True)
class TimedTurn:
    """One greedy answer of exactly as many tokens as were asked for, timed."""

    tokens: tuple[int, ...]
    ttft_s: float  # from the prompt to the first group
    decode_s: float  # from then on
    first_tokens: int  # that came with the first group
    prompt_tokens: int
    steps: int  # groups; of a peer, forwards of the base
    # from the first group on, as `decode_s`
    base_calls: int  # forwards of the base
    macro_s: float = 0.0  # inside the base
    micro_s: float = 0.0
    micro_steps: int = 0
    # of the whole answer
    merged: int = 0  # groups of two tokens or more
    slots: int = 0  # KV entries the answer took
    host_s: float | None = None  # outside of every model; None: not told apart

    @classmethod
    def plain(
        cls,
        prompt: Sequence[int],
        said: Sequence[int],
        ttft_s: float,
        decode_s: float,
        steps: int | None = None,
    ) -> TimedTurn:
        """A peer's: one token first, all of its time the base's; `steps` forwards if not one a token."""
        steps = len(said) if steps is None else steps
        return cls(
            tokens=tuple(map(int, said)),
            ttft_s=ttft_s,
            decode_s=decode_s,
            first_tokens=1,
            prompt_tokens=len(prompt),
            steps=steps,
            base_calls=steps - 1,
            macro_s=decode_s,
            slots=len(said),
        )

    @property
    def decode_tps(self) -> float:
        return (len(self.tokens) - self.first_tokens) / max(self.decode_s, 1e-9)

    @property
    def prefill_tps(self) -> float:
        """Up to the first group, whose own cost is in it: what every program can be asked for."""
        return self.prompt_tokens / max(self.ttft_s, 1e-9)

    @property
    def macro_step_s(self) -> float:
        return self.macro_s / max(1, self.base_calls)


@dataclass(frozen=True)
class Request:
    """A prompt, to be answered up to an end token or the end of what a schema asks for."""

    prompt: tuple[int, ...]
    most: int  # tokens of the answer
    eos_ids: tuple[int, ...]
    schema: str | None = None  # a JSON schema's text


@dataclass(frozen=True)
class TimedAnswer:
    """One greedy answer to a request, from an empty cache, timed as a whole."""

    tokens: tuple[int, ...]  # with the end token, where it was said
    ttft_s: float  # until the first token that the model chose
    total_s: float
    base_calls: int  # forwards of the base; reading the prompt is one
    steps: int  # groups; of a peer, forwards of the base
    slots: int  # KV entries that the answer takes
    micro_steps: int = 0
    forced: int | None = None  # tokens that the schema left no choice about; None: not told
    host_s: float | None = None  # outside of every model; None: not told apart


@dataclass(frozen=True)
class Facts:
    """Of a loaded contender."""

    precision: str
    kv_bytes_per_slot: int


@dataclass(frozen=True)
class WeightBytes:
    """Weights that are read, in bytes, by ..."""

    macro: int  # a step of the base
    micro: int = 0  # a micro step
    embed: int = 0  # a merged group's embedding


class Contender(Protocol):
    """A program that answers prompts, greedily, one sequence at a time, whatever its end token."""

    def prepare(self) -> Path:
        """Build the files it reads, once; they stay in the cache folder. `load` is in another process, which
        gets the path as `made`: what building takes is not counted there."""
        ...

    def load(self) -> Facts: ...

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn: ...

    def weight_bytes(self) -> WeightBytes:
        """Asked for at the end: finding out takes memory."""
        ...

    def close(self) -> None: ...


class Continued(Contender, Protocol):
    """One whose answers can be taken further bit by bit, as long as there is room."""

    def begin(self, prompt: Sequence[int], tokens: int, variant: str) -> None:
        """An answer of up to so many tokens. The prompt is read now, or with the first `advance`."""
        ...

    def advance(self, tokens: int) -> tuple[int, float, int]:
        """Go on to so many tokens or just beyond: tokens, seconds since the first, bytes of cache in use."""
        ...


class Answering(Protocol):
    """One that answers whole requests."""

    def answer(self, request: Request, variant: str) -> TimedAnswer: ...


@dataclass(frozen=True)
class Program:
    """How to get at a contender."""

    adapter: str  # module:class
    packages: tuple[str, ...] = ()  # modules that must be there
    distribution: str = ""  # what pip calls them
    variants: tuple[str, ...] = ("",)  # of which each is measured, in the same process
    options: dict[str, Any] = field(default_factory=dict)
    needs_checkpoint: bool = True
    continues: bool = False  # a peer that is `Continued`: its cost against length is measured
    answers: bool = False  # a peer that is `Answering`
    unusable: str | None = None  # why it has nothing to run

    @property
    def missing(self) -> str | None:
        """Why it cannot run here, with the command that changes that."""
        if self.unusable:
            return self.unusable
        for module in self.packages:
            if not installed(module):
                return str(missing(self.distribution, "'.[bench]'"))
        return None


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is not there
        return False
