"""The one seam of the program: what the hierarchical loop asks of a runtime.

Tokens go in, numpy arrays come out. Embeddings and KV caches never cross the seam, so a runtime may
keep both wherever it computes (an ONNX Runtime device buffer, a llama.cpp context, a torch tensor).

    groups --macro--> Readout: logits, p_stop, features --micro_begin--> micro(token) --> logits, p_stop
              |                                                              ^               |
              +-- appends one KV slot a group                                +---------------+
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.support.values import shown

Floats = npt.NDArray[np.float32]
PositionRule = Literal["token", "slot"]
StopRule = Literal["before", "after"]

# Who decides a group's further tokens, and on what the base reads; see the glossary.
Mode = Literal["trust", "reread", "verify"]
MODES: tuple[Mode, ...] = get_args(Mode)

# What a runtime needs to come back to an earlier state: plain arrays, so that it can go to disk.
Snapshot = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Recommended:
    """How a model answers fastest without losing answers, as those who made it found."""

    mode: Mode = "trust"
    confidence: float = 0.8

    @classmethod
    def parse(cls, text: str) -> Recommended:
        """0.9, verify, or verify-0.8: what `str` writes, and a mode alone."""
        word, dash, number = text.partition("-")
        mode = next((mode for mode in MODES if mode == word), None)
        try:
            return cls(mode) if mode and not dash else cls(mode or "trust", float(number if mode else text))
        except (ConfigError, ValueError):
            raise InputError(
                f"a setting is a confidence of 0 to 1, a mode ({', '.join(MODES)}) or both, as verify-0.8, "
                f"got {shown(text)}"
            ) from None

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise ConfigError(f"recommended.confidence must be 0 to 1, got {self.confidence}")

    def __str__(self) -> str:
        """0.9, or with a mode of its own verify-0.8"""
        return f"{'' if self.mode == 'trust' else f'{self.mode}-'}{float(self.confidence)}"


LONGEST_OPENING = 64  # tokens

# Of a model that nobody has measured: plain decoding's text, whatever its graft is worth.
UNMEASURED = Recommended("verify")


@dataclass(frozen=True)
class ModelInfo:
    """What the loop must know about a loaded model; filled in by the backend."""

    backend: str  # "torch", "onnx", "llamacpp"
    provider: str  # what computes: "cpu", "cuda", "coreml", ...
    precision: str  # of the stored weights: "fp32", "fp16", "int8", "int4", "q4_0", ...
    vocab_size: int
    hidden_size: int
    max_steps: int  # most tokens one group may hold
    position_rule: PositionRule
    stop_rule: StopRule
    capacity: int  # slots the preallocated KV buffer holds
    context_length: int  # positions the base was trained for; a slot's position stays below it
    eos_ids: tuple[int, ...]
    shortlist: npt.NDArray[np.int64] | None  # token id of each micro logit; None: the whole vocabulary
    kv_bytes_per_slot: int
    fingerprint: str  # identifies weights and precision: sessions are only restored onto the same one
    recommended: Recommended = Recommended()  # mode and confidence where none are asked for
    opening: tuple[int, ...] = ()  # tokens that its answers begin with, all of them: those of a task may


class Readout(NamedTuple):
    """What the base says at the rows it was asked for."""

    logits: Floats  # [rows, vocab]
    p_stop: Floats  # [rows] chance that no further token should join the group after its first
    features: Any  # [rows, F, d] for micro_begin; opaque to the loop, indexable by row


class MicroReadout(NamedTuple):
    logits: Floats  # [vocab] or [shortlist]
    # by rule "before": chance that the group should end with the token these logits choose;
    # by rule "after": chance that it should end without that token
    p_stop: float


class Backend(Protocol):
    """A runtime holding one sequence. Not thread-safe: `Model` serialises access."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def slots(self) -> int:
        """KV entries in use."""
        ...

    def macro(
        self, groups: Sequence[Sequence[int]], positions: Sequence[int], rows: Sequence[int]
    ) -> Readout:
        """Append one slot per group at the given positions; read out at `rows` (indices into groups).

        A group of one token is that token's own embedding; longer groups are merged. A call into the empty
        cache leaves a slot of it free, unless its positions are 0, 1, 2, ... Returned arrays are valid until
        the next call of `macro`.
        """
        ...

    def micro_begin(self, features: Any) -> None:
        """Start a group from one row of `Readout.features`: empties the micro decoder's cache."""
        ...

    def micro(self, token: int) -> MicroReadout:
        """Feed the group's latest token; returns the scores of the next. Arrays valid until the next call."""
        ...

    def truncate(self, slots: int) -> None:
        """Forget every slot from `slots` on; free of cost."""
        ...

    def snapshot(self) -> Snapshot:
        """Copy the KV contents of the slots in use."""
        ...

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        """Replace the KV contents by a snapshot's, bit for bit. What is not one of so many slots of this very
        model, or holds what is no number, is a SessionError, before any of it is in the cache."""
        ...

    def close(self) -> None:
        """Free everything; further calls raise. Closing twice is harmless."""
        ...
