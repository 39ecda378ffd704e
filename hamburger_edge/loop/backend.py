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
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import SessionError
from hamburger_edge.loop.dial import UNMEASURED, Recommended
from hamburger_edge.loop.draft_index import DraftIndex
from hamburger_edge.loop.drafting import USUAL_COSTS, Costs

Floats = npt.NDArray[np.float32]
PositionRule = Literal["token", "slot"]
StopRule = Literal["before", "after"]

# What a runtime needs to come back to an earlier state: plain arrays, so that it can go to disk.
Snapshot = dict[str, npt.NDArray[Any]]

LONGEST_ANSWER_PREFIX = 64  # tokens


@dataclass(frozen=True)
class ModelInfo:
    """What the loop must know about a loaded model; filled in by the backend."""

    backend: str  # "torch", "onnx", "llamacpp"
    provider: str  # what computes: "cpu", "cuda", "coreml", ...
    precision: str  # of the stored weights: "fp32", "fp16", "int8", "int4", "q4_0", ...
    vocab_size: int
    hidden_size: int
    max_group_tokens: int  # most tokens one group may hold
    position_rule: PositionRule
    stop_rule: StopRule
    cache_slots: int  # slots the preallocated KV buffer holds
    context_length: int  # positions the base was trained for; a slot's position stays below it
    eos_ids: tuple[int, ...]
    draft_vocab: npt.NDArray[np.int64] | None  # token id of each micro logit; None: the whole vocabulary
    kv_bytes_per_slot: int
    fingerprint: str  # identifies weights and precision: sessions are only restored onto the same one
    recommended: Recommended = UNMEASURED  # mode and confidence where none are asked for
    answer_prefix: tuple[
        int, ...
    ] = ()  # tokens that its answers begin with, all of them: those of a task may
    edits_prompt: bool = False  # its answers are its prompts put right: see edits.py
    draft_index: DraftIndex | None = None  # what usually follows what in its answers
    draft_costs: Costs = USUAL_COSTS  # of drafted rows and micro steps, in units of a base call


class Readout(NamedTuple):
    """What the base says at the rows it was asked for."""

    logits: Floats  # [rows, vocab]
    p_stop: Floats  # [rows] chance that no further token should join the group after its first
    features: Any  # [rows, F, d] for micro_begin; opaque to the loop, indexable by row


class MicroReadout(NamedTuple):
    logits: Floats  # [vocab] or [draft vocabulary]
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


def check_saved_cache(snapshot: Snapshot, shape: tuple[int, ...], dtype: str, cache_slots: int) -> None:
    """`keys` and `values` [layers, K, slots, D] of this shape and type, for a cache of `cache_slots`,
    and finite."""
    if shape[2] > cache_slots:
        raise SessionError(f"the saved cache has {shape[2]} slots, this one {cache_slots}: load a larger one")
    if set(snapshot) != {"keys", "values"}:
        raise SessionError("the saved cache is not one of keys and values: it belongs to another runtime")
    for name, array in snapshot.items():
        if array.shape != shape or array.dtype != dtype:
            raise SessionError(
                f"the saved cache does not fit this model's: its {name} are {array.dtype} "
                f"{list(array.shape)}, expected {dtype} {list(shape)}"
            )
        if not all(np.isfinite(layer).all() for layer in array):
            raise SessionError(f"the saved cache is damaged: its {name} hold what is no number")
