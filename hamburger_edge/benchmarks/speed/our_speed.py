"""Our runtimes as contenders, with sampler and text decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Unpack

import numpy as np

from hamburger_edge.benchmarks.contender import Facts, Source, TimedTurn, WeightBytes
from hamburger_edge.benchmarks.weight_bytes import gguf_weight_bytes, onnx_weight_bytes
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.stream import Stream
from hamburger_edge.errors import require
from hamburger_edge.loading import load
from hamburger_edge.loop.backend import Backend
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.modes.fixed_groups import groups_of_size
from hamburger_edge.loop.settings import Options, Settings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.model import Model

CHUNK = 256  # tokens per base call while scoring
# A variant is a setting for `Recommended.parse`, or FORCED followed by a group size.
PLAIN, FORCED = "plain", "force-"
VERIFY: Final = "verify"
TEMPERATURE = 0.7  # of the answers of the curve


class Ours:
    def __init__(self, source: Source, *, backend: str, model: Model | None = None):
        self.source, self.backend, self.model = source, backend, model
        self.stream: Stream | None = None

    def prepare(self) -> Path:
        return self.source.bundle

    def load(self) -> Facts:
        self.model = self.opened()
        return Facts(self.model.info.precision, self.model.info.kv_bytes_per_slot)

    def opened(self) -> Model:
        slots, threads = self.source.slots, self.source.threads
        fixed = self.backend == "onnx" and load_manifest(self.source.bundle).cache_slots
        return load(self.source.bundle, self.backend, threads=threads, cache_slots=None if fixed else slots)

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn:
        groups: list[tuple[int, ...]] = []
        first = Stats()
        with self._stream(prompt, tokens, variant) as stream:
            for chunk in stream:
                if not groups:
                    first = replace(stream.stats)  # a copy, because the stream updates its stats
                groups.append(chunk.tokens)
        slots = [(token,) for group in groups for token in group] if variant == VERIFY else groups
        return as_turn(groups, slots, first, stream.stats)

    def begin(self, prompt: Sequence[int], tokens: int, variant: str) -> None:
        """Start an answer of at most `tokens` tokens, which `advance` extends.

        It is sampled: long greedy answers loop, and loops are easy to draft and to merge.
        """
        self.stream = self._stream(prompt, tokens, variant, temperature=TEMPERATURE, seed=0)

    def advance(self, tokens: int) -> tuple[int, float, int]:
        """Generate until the answer has at least `tokens` tokens.

        Return its number of tokens, the seconds since the first group, and the cache bytes in use.
        """
        assert self.stream is not None
        while self.stream.stats.tokens < tokens and next(self.stream, None) is not None:
            pass
        stats = self.stream.stats
        return stats.tokens, stats.decode_s, stats.kv_bytes

    def score(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, float]:
        """Return the mean nats per token under the plain base, and the share of its greedy choices."""
        assert self.model is not None
        return score(self.model.backend, prompt, answer)

    def weight_bytes(self) -> WeightBytes:
        return weight_bytes(self.source.bundle, self.backend)

    def close(self) -> None:
        if self.model is not None:
            self.model.close()

    def _stream(
        self, prompt: Sequence[int], tokens: int, variant: str, **sampling: Unpack[Options]
    ) -> Stream:
        assert self.model is not None
        inference = self.model.inference
        options: Options = {"max_tokens": tokens, "ignore_eos": True, **sampling}
        if variant.startswith(FORCED):
            driver = groups_of_size(int(variant.removeprefix(FORCED)))
            options["mode"] = "merge"
        else:
            driver = None
            options |= setting_options(variant)
        groups = inference.prompt_groups(prompt, raw=True)
        return inference.answer(groups, Settings.of(options), reuse="none", driver=driver)


def setting_options(setting: str) -> Options:
    """Return the mode and the confidence of a setting as options."""
    return asdict(Recommended.parse(setting))  # type: ignore[return-value]


def as_turn(
    groups: Sequence[tuple[int, ...]], slots: Sequence[tuple[int, ...]], first: Stats, stats: Stats
) -> TimedTurn:
    """Return the timings of a turn. `first`: the stats at the first group, which the step times exclude."""
    return TimedTurn(
        tokens=tuple(token for group in groups for token in group),
        ttft_s=stats.ttft_s,
        decode_s=stats.decode_s,
        first_tokens=stats.first_tokens,
        prompt_tokens=stats.prompt_tokens,
        steps=stats.macro_steps,
        base_calls=stats.base_calls - first.base_calls,
        macro_s=stats.macro_s - first.macro_s,
        micro_s=stats.micro_s - first.micro_s,
        micro_steps=stats.micro_steps - first.micro_steps,
        merged=sum(len(slot) > 1 for slot in slots),
        slots=sum(1 for slot in slots if slot),
        host_s=stats.host_s,
    )


def score(backend: Backend, prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, float]:
    """Return the mean negative log-likelihood and the agreement; leave the cache empty."""
    text = [*prompt, *answer][:-1]  # row i predicts the token after text[i]
    first, losses, agreed = len(prompt) - 1, 0.0, 0
    backend.truncate(0)
    for start in range(0, len(text), CHUNK):
        part = range(start, min(start + CHUNK, len(text)))
        rows = [at - start for at in part if at >= first] or [0]
        readout = backend.macro([(text[at],) for at in part], list(part), rows)
        if part[-1] < first:
            continue
        tokens = [answer[start + row - first] for row in rows]
        scores = readout.logits.astype(np.float64)
        top = scores.max(1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(1, keepdims=True))
        losses -= float(logs[np.arange(len(rows)), tokens].sum())
        agreed += int((scores.argmax(1) == tokens).sum())
    backend.truncate(0)
    return losses / len(answer), agreed / len(answer)


def weight_bytes(bundle: Path, backend: str) -> WeightBytes:
    manifest = load_manifest(bundle)
    if backend == "onnx":
        sizes = {graph.name: onnx_weight_bytes(bundle / graph.file) for graph in manifest.graphs}
        return WeightBytes(sizes["base"], sizes.get("micro_decoder", 0), sizes["embedder"])
    assert manifest.gguf is not None
    parts = manifest.gguf
    if parts.graft is None or parts.micro_decoder is None:
        return WeightBytes(gguf_weight_bytes(bundle / parts.base.file))
    graft: Any = require("gguf", "bench").GGUFReader(bundle / parts.graft.file).tensors
    stop = sum(int(tensor.n_bytes) for tensor in graft if tensor.name.startswith("stop_"))
    return WeightBytes(
        macro=gguf_weight_bytes(bundle / parts.base.file) + stop,
        micro=gguf_weight_bytes(bundle / parts.micro_decoder.file) + stop,
        embed=sum(int(tensor.n_bytes) for tensor in graft if tensor.name.startswith("embedder.")),
    )
