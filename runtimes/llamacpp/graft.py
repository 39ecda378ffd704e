"""The parts of the graft that llama.cpp does not run, in numpy: token embeddings, merging, the stop head.

They take a few matrix-vector products per step, little compared with the base.
`models/architecture/compositional_embedder.py` defines the arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hamburger_edge.bundle.manifest import ModelSpec
from hamburger_edge.errors import BundleError
from hamburger_edge.loop.backend import Floats
from hamburger_edge.runtimes.llamacpp.gguf_file import GGUF, Table

# From 9216 weights or 262144 multiplications on, numpy's OpenBLAS uses threads. These spin afterwards and
# take the processors from llama.cpp: 30 ms instead of 0.7 for 2048 x 2048 on a busy machine. So matrices are
# cut into smaller blocks, and one call of matmul multiplies all blocks.
BLOCK, ROWS = 8192, 31


class Linear:
    def __init__(self, file: GGUF, name: str, outputs: int, inputs: int):
        height = max(n for n in range(1, max(1, BLOCK // inputs) + 1) if outputs % n == 0)
        self.blocks = file.array(f"{name}.weight", outputs, inputs).reshape(-1, height, inputs)
        self.bias = file.array(f"{name}.bias", outputs)

    def __call__(self, x: Floats) -> Floats:
        """[R, in] -> [R, out]"""
        if len(x) > ROWS:
            return np.concatenate([self(x[start : start + ROWS]) for start in range(0, len(x), ROWS)])
        products: Floats = np.matmul(self.blocks, x.T)  # [blocks, height, R]
        return products.reshape(-1, len(x)).T + self.bias


class LlamaCppEmbedder:
    """Groups -> slot embeddings; a group of one token is that token's row of the base's table."""

    def __init__(self, base: GGUF, graft: GGUF | None, model: ModelSpec):
        d, self.residual = model.hidden_size, model.merge_residual
        self.table = Table(base, base.shaped("token_embd.weight", model.vocab_size, d))
        if graft is None:
            return
        self.heads = int(graft.need("hamburger.merger_heads"))
        if self.heads < 1 or d % self.heads:
            raise BundleError(f"{graft.path}: {self.heads} merger heads do not divide {d}: export it again")
        self.member_positions = graft.array("embedder.places", model.max_group_tokens, d // 2)
        self.query, self.output = (Linear(graft, f"embedder.{name}", d, d) for name in ("query", "output"))
        self.key, self.value = (Linear(graft, f"embedder.{name}", d, d + d // 2) for name in ("key", "value"))

    def __call__(self, groups: Sequence[Sequence[int]]) -> Floats:
        """[N, d]; each run of groups of the same size is merged together."""
        parts = []
        for size, stretch in itertools.groupby(groups, len):
            members = self.table[np.array(list(stretch))]  # [N, size, d]
            parts.append(members[:, 0] if size == 1 else self.merge(members))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def merge(self, members: Floats) -> Floats:
        """[N, m, d] -> [N, d]: the residual plus attention, queried by the mean, over the group's members and
        their positions."""
        N, m, d = members.shape
        h, size = self.heads, d // self.heads
        mean: Floats = members.mean(1)  # [N, d]
        pairs = np.concatenate([members, np.broadcast_to(self.member_positions[:m], (N, m, d // 2))], axis=2)
        query = self.query(mean).reshape(N, 1, h, size)
        pairs = pairs.reshape(N * m, -1)
        key, value = (linear(pairs).reshape(N, m, h, size) for linear in (self.key, self.value))
        scores = (query * key).sum(3, keepdims=True) * np.float32(size**-0.5)  # [N, m, h, 1]
        weights = np.exp(scores - scores.max(1, keepdims=True))
        mixed = (weights * value).sum(1) / weights.sum(1)  # [N, h, size]
        return (mean if self.residual == "mean" else members[:, -1]) + self.output(mixed.reshape(N, d))


class StopHead:
    """States -> chance that the group should end; see `Hamburger.stop_logits`.

    By stop rule "after" a micro state comes with its logits, whose top probability is further evidence.
    Without a graft every group ends.
    """

    def __init__(self, graft: GGUF | None, model: ModelSpec):
        self.layers: list[Linear] = []
        if graft is None:
            return
        widths = graft.need("hamburger.stop_widths", list)
        if len(widths) < 2 or widths[0] != model.hidden_size or widths[-1] != 1:
            raise BundleError(f"{graft.path}: a stop head of widths {widths}: export the bundle again")
        self.layers = [
            Linear(graft, f"stop_head.{2 * layer}", outputs, inputs)
            for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths))
        ]
        self.evidence = graft.array("stop_evidence", 1) if model.stop_rule == "after" else None

    def __call__(self, states: Floats, logits: Floats | None = None) -> Floats:
        """[R, d] and, for micro states, [R, C] -> [R]"""
        if not self.layers:
            return np.ones(len(states), np.float32)
        for layer in self.layers[:-1]:
            states = layer(states)
            states = states * _sigmoid(states)  # SiLU
        stops: Floats = self.layers[-1](states)[:, 0]
        if self.evidence is not None and logits is not None:
            stops = stops - self.evidence * _log_odds(logits)
        return _sigmoid(stops)


def _log_odds(logits: Floats) -> Floats:
    """[R, C] -> [R]: log of p / (1 - p) of the most probable class, at most about 14"""
    best: Floats = -np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1))  # log p
    best = np.minimum(best, np.float32(-1e-6))
    odds: Floats = best - np.log(-np.expm1(best))
    return odds


def _sigmoid(x: Floats) -> Floats:
    chances: Floats = np.reciprocal(1 + np.exp(-np.clip(x, -80, 80)))  # clipped: exp must not overflow
    return chances
