"""Training data from the base's conversations with itself.

Work is cut into shards. A shard is a fixed list of conversations with separate random numbers. So a killed
run repeats at most one shard and ends with the same bytes, with any number of workers. Each shard is one
safetensors file; `data.json` lists them with hashes and is replaced atomically after each.

Stored for every token: its id, its role, and the base's prediction at its position (entropy and top-k
log-probabilities). Segmentation and training need nothing more.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from hamburger_edge.errors import HamburgerWarning
from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.distillation.cluster import Cluster
from hamburger_edge.models.distillation.conversations import (
    Conversation,
    DistillSettings,
    Given,
    ShardRun,
    TurnTokens,
    plan,
)
from hamburger_edge.models.distillation.data_manifest import FORMAT, NAME, DataManifest, read_data_manifest
from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.models.distillation.joining import Joining, MadeShard
from hamburger_edge.models.distillation.storage import folder_at

USUAL_ANSWERS = 100  # tokens that a conversation adds: a low estimate


def to_arrays(conversations: Sequence[Conversation], top_k: int) -> dict[str, np.ndarray]:
    """Return one shard: flat arrays over all tokens, and the start of each conversation."""
    counts = [len(c.ids) for c in conversations]
    top = [entry for c in conversations for entry in c.top]
    return {
        "starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),  # [conversations + 1]
        "ids": np.asarray([i for c in conversations for i in c.ids], dtype=np.int32),  # [tokens]
        "roles": np.asarray([r for c in conversations for r in c.roles], dtype=np.uint8),
        "entropies": np.asarray([e for c in conversations for e in c.entropy], dtype=np.float16),
        "top_ids": np.asarray([t[0] for t in top], dtype=np.int32).reshape(-1, top_k),
        "top_log_probabilities": np.asarray([t[1] for t in top], dtype=np.float16).reshape(-1, top_k),
    }


def kept_type(out: str) -> torch.dtype | None:
    """Return the number type of the data that the folder already holds, which a resumed run keeps."""
    there = _manifest_in(out)
    types = {"bfloat16": torch.bfloat16, "float32": torch.float32}
    return None if there is None else types.get(there.dtype)


def shard_size(folder: str | Path, tokens: int, rows: int) -> int:
    """Return the conversations per shard: a few batches, or fewer if these hold enough tokens.

    A folder keeps its first size.
    """
    wanted = min(8 * rows, math.ceil(tokens / USUAL_ANSWERS))
    if there := _manifest_in(folder):
        size = there.settings.get("shard_conversations")
        if isinstance(size, int) and size > 0:
            if size < wanted / 2:
                warnings.warn(
                    f"{folder}: continues with shards of {size} conversations, too few for {tokens} tokens: "
                    "a new folder would be faster",
                    HamburgerWarning,
                    stacklevel=2,
                )
            return size
    return wanted


def _manifest_in(folder: str | Path) -> DataManifest | None:
    return read_data_manifest(folder) if folder_at(folder).exists(NAME) else None


class ShardMaker:
    """Make any shard of a run; it depends on (seed, number) alone."""

    def __init__(
        self,
        base: Base,
        settings: DistillSettings,
        turns: TurnTokens,
        prompts: Sequence[Sequence[int]],
        dtype: torch.dtype,
    ):
        generator = BatchGenerator(base, settings.context, dtype)
        generator.set_prefix(list(turns.prefix[:-1]))
        self.settings, self.given = settings, Given(prompts, settings)
        self.run = ShardRun(generator, settings, turns)

    def make(self, number: int, tick: Callable[[int], None] = lambda tokens: None) -> MadeShard:
        """Make a shard; `tick` receives the answer tokens of every finished conversation."""
        size, questions = self.settings.shard_conversations, set[bytes]()
        jobs = [plan(number * size + i, self.settings, self.given) for i in range(size)]
        kept = self.run.run(jobs, questions, tick)
        return MadeShard.of(save(to_arrays(kept, self.settings.top_k)), kept, questions, jobs)


def worker(
    base: Base,
    settings: DistillSettings,
    turns: TurnTokens,
    prompts: Sequence[Sequence[int]],
    dtype: torch.dtype,
    threads: int | None = None,
) -> Callable[[int], MadeShard]:
    """Make shards in a separate process, on its GPU if it has one."""
    if threads is not None:
        torch.set_num_threads(threads)
    base = base.to("cuda") if torch.cuda.is_available() else base
    return ShardMaker(base, settings, turns, prompts, dtype).make


def distill(
    base: Base,
    out: str | Path,
    settings: DistillSettings,
    turns: TurnTokens,
    prompts: Sequence[Sequence[int]],
    source: dict[str, str],
    report: Callable[[int, int, float], None] = lambda done, total, seconds: None,
    dtype: torch.dtype = torch.bfloat16,
    cluster: Cluster | None = None,
) -> DataManifest:
    """Fill `out`, a folder or a URL, with shards until they hold settings.tokens answer tokens.

    It continues an earlier run and returns the manifest. With a `cluster` the workers make the shards, each
    with a copy of the base.
    """
    order = np.random.Generator(np.random.Philox(key=[settings.seed, 2**32])).permutation(len(prompts))
    prompts = [prompts[i] for i in order]
    given = {k: v for k, v in dataclasses.asdict(settings).items() if k != "tokens"}
    manifest = DataManifest(
        format=FORMAT,
        source=source,
        shards=(),
        settings=json.loads(json.dumps(given)),
        turns=json.loads(json.dumps(dataclasses.asdict(turns))),
        dtype=str(dtype).removeprefix("torch."),
        prompts_sha256=hashlib.sha256(repr([list(map(int, p)) for p in prompts]).encode()).hexdigest(),
    )
    joining = Joining(folder_at(out), manifest, settings.tokens)
    counted = _Counted(settings, joining.done, report)
    makers: Iterable[tuple[int, MadeShard]]
    if cluster is None:
        maker = ShardMaker(base, settings, turns, prompts, dtype)
        # a free worker gets the next number once the earlier shard is joined
        makers = ((number, maker.make(number, counted.tick)) for number in iter(joining.wanted, None))
    else:
        build = functools.partial(worker, base, settings, turns, prompts, dtype, cluster.threads)
        makers = cluster.results(build, joining.wanted)
    for number, shard in makers:
        joining.add(number, shard)
        counted.whole(joining.done)
        if joining.finished:
            break
    return manifest


class _Counted:
    """Progress of a run. Shards are whole, so the last one usually holds more tokens than requested."""

    def __init__(self, settings: DistillSettings, done: int, report: Callable[[int, int, float], None]):
        self.settings, self.report = settings, report
        self.began, self.resumed = time.monotonic(), done
        self.whole(done, quietly=True)

    def whole(self, done: int, *, quietly: bool = False) -> None:
        """Report this many answer tokens in whole shards."""
        self.start = self.progress = done
        self.finished = 0  # conversations of the current shard
        if not quietly:
            self._say(max(done, self.settings.tokens))

    def tick(self, tokens: int) -> None:
        self.progress, self.finished = self.progress + tokens, self.finished + 1
        shard = max(1.0, (self.progress - self.start) / self.finished * self.settings.shard_conversations)
        self._say(round(self.start + math.ceil((self.settings.tokens - self.start) / shard) * shard))

    def _say(self, total: int) -> None:
        seconds_each = (time.monotonic() - self.began) / max(self.progress - self.resumed, 1)
        self.report(self.progress, max(total, self.progress), seconds_each)
