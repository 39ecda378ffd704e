"""The interface between the hierarchical loop and a runtime.

Tokens go in, numpy arrays come out. Embeddings and KV caches never cross this interface. A runtime keeps
both on its device (an ONNX Runtime buffer, a llama.cpp context, a torch tensor).

    groups --macro--> Readout: logits, p_stop, features --micro_begin--> micro(token) --> logits, p_stop
              |                                                              ^               |
              +-- appends one KV slot per group                              +---------------+
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hamburger_edge.drafts.draft_index import DraftIndex
from hamburger_edge.drafts.drafting import USUAL_COSTS, Costs
from hamburger_edge.errors import SessionError
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.dial import UNMEASURED, Recommended

Floats = npt.NDArray[np.float32]
PositionRule = Literal["token", "slot"]
StopRule = Literal["before", "after"]

# The KV contents of a runtime as plain arrays, which can be saved to disk and restored.
Snapshot = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ModelInfo:
    """Properties of a loaded model that the loop depends on; filled in by the backend."""

    backend: str  # "torch", "onnx", "llamacpp"
    provider: str  # execution provider: "cpu", "cuda", "coreml", ...
    precision: str  # of the stored weights: "fp32", "fp16", "int8", "int4", "q4_0", ...
    vocab_size: int
    hidden_size: int
    max_group_tokens: int  # upper limit of tokens per group; 1: a plain model, which makes no micro steps
    position_rule: PositionRule
    stop_rule: StopRule
    cache_slots: int  # slots of the preallocated KV buffer
    context_length: int  # positions the base was trained for; every position is below it
    eos_ids: tuple[int, ...]
    draft_vocab: npt.NDArray[np.int64] | None  # token id of each micro logit; None: the whole vocabulary
    kv_bytes_per_slot: int
    fingerprint: str  # of weights and precision: a session is restored only onto an equal one
    recommended: Recommended = UNMEASURED  # default mode and confidence
    edits_prompt: bool = False  # its answers are corrected prompts: see edits.py
    copied_fields: tuple[str, ...] = ()  # of JSON answers or calls: their strings are spans of the prompt
    tools: tuple[dict[str, Any], ...] = ()  # its answers call these, see calls/; in OpenAI's form
    draft_index: DraftIndex | None = None  # of the usual next tokens in its answers
    certainty: Certainty | None = None  # how probably an answer is right; None: not measured
    pairs_rows: bool = False  # each base call has an even number of slots; see `Manifest.pairs_rows`
    draft_costs: Costs = USUAL_COSTS  # of drafted rows and micro steps, in units of a base call
    machine_costs: Costs | None = None  # the same, measured here; only where they change no answer

    @property
    def has_graft(self) -> bool:
        return self.max_group_tokens > 1


class Readout(NamedTuple):
    """The base's outputs, one row per output index."""

    logits: Floats  # [rows, vocab]
    p_stop: Floats  # [rows] probability that the group should end after its first token
    features: Any  # [rows, F, d] for micro_begin; opaque to the loop, indexable by row


class MicroReadout(NamedTuple):
    logits: Floats  # [vocab] or [draft vocabulary]
    # stop rule "before": probability that the group should end with the token of these logits;
    # stop rule "after": probability that it should end without that token
    p_stop: float


class Backend(Protocol):
    """A runtime holding one sequence. Not thread-safe: `Model` serialises access."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def slots(self) -> int:
        """KV entries in use."""

    def macro(
        self, groups: Sequence[Sequence[int]], positions: Sequence[int], output_indices: Sequence[int]
    ) -> Readout:
        """Append one slot per group at the given positions; read out after the groups of `output_indices`.

        A group of one token is fed as that token's embedding; longer groups are merged. A call into the
        empty cache must leave at least one slot free, unless its positions are 0, 1, 2, ... Returned arrays
        are valid until the next call of `macro`.
        """

    def micro_begin(self, features: Any) -> None:
        """Empty the micro decoder's cache and start a group from one row of `Readout.features`."""

    def micro(self, token: int) -> MicroReadout:
        """Feed the group's latest token and return the next scores, valid until the next call."""

    def truncate(self, slots: int) -> None:
        """Forget every slot from `slots` on, without any computation."""

    def snapshot(self) -> Snapshot:
        """Copy the KV contents of the slots in use."""

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        """Replace the KV contents by a snapshot's, bit for bit.

        A snapshot of another model or another number of slots raises SessionError, and so do values that are
        not finite. The cache is unchanged then.
        """

    def close(self) -> None:
        """Free everything; further calls raise. Closing twice is harmless."""


def check_saved_cache(snapshot: Snapshot, shape: tuple[int, ...], dtype: str, cache_slots: int) -> None:
    """Check that `keys` and `values` [layers, K, slots, D] have this shape and type and are finite.

    Their slots must also fit into `cache_slots`.
    """
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
