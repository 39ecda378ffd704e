"""Training data made by the base itself, out of conversations that it holds with itself.

Work is cut into shards. A shard is a fixed list of conversations run from scratch with random numbers of
their own, so a killed run redoes at most one shard and ends with the same bytes. Each shard is one
safetensors file; `data.json` lists them with hashes and is rewritten, atomically, after each.

Stored for every token: its id, its role, and what the base predicted at its position (entropy and the top-k
log-probabilities), which is all that segmentation and training need.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from hamburger_edge.errors import ConfigError, HamburgerWarning
from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.distillation.conversations import (
    Conversation,
    DistillSettings,
    ShardRun,
    TurnTokens,
    plan,
)
from hamburger_edge.models.distillation.data_manifest import (
    FORMAT,
    NAME,
    DataManifest,
    Shard,
    read_data_manifest,
)
from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.support.files import library_writes, sha256, write_atomically

MOST_USELESS = 64  # conversations
USUAL_ANSWERS = 100  # tokens that a conversation adds, rather too few than too many


def to_arrays(conversations: Sequence[Conversation], top_k: int) -> dict[str, np.ndarray]:
    """One shard: flat arrays over all tokens, and where each conversation starts."""
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


def shard_size(folder: Path, tokens: int, rows: int) -> int:
    """Conversations of a shard: a few batches after one another, or as few as hold the tokens asked for.
    A folder keeps the size that it began with."""
    wanted = min(8 * rows, math.ceil(tokens / USUAL_ANSWERS))
    if (folder / NAME).exists():
        begun = read_data_manifest(folder).settings.get("shard_conversations")
        if isinstance(begun, int) and begun > 0:
            if begun < wanted / 2:
                warnings.warn(
                    f"{folder}: goes on in shards of {begun} conversations, as it was begun: in a folder of "
                    f"their own {tokens} tokens would come faster",
                    HamburgerWarning,
                    stacklevel=2,
                )
            return begun
    return wanted


def distill(
    base: Base,
    out: Path,
    settings: DistillSettings,
    turns: TurnTokens,
    prompts: Sequence[Sequence[int]],
    source: dict[str, str],
    report: Callable[[int, int, float], None] = lambda done, total, seconds: None,
    dtype: torch.dtype = torch.bfloat16,
) -> DataManifest:
    """Fill `out` with shards until they hold settings.tokens answer tokens. Resumes; returns the manifest."""
    out.mkdir(parents=True, exist_ok=True)
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
    manifest.shards, gone = _resume(out, manifest)
    generator = BatchGenerator(base, settings.context, dtype)
    generator.set_prefix(list(turns.prefix[:-1]))
    run = ShardRun(generator, settings, turns)
    done = manifest.answer_tokens - sum(manifest.shards[number].answer_tokens for number in gone)
    resumed, began = done, time.monotonic()
    useless = 0  # conversations in a row of which nothing was kept
    while gone or done < settings.tokens:
        number = gone.pop(0) if gone else len(manifest.shards)
        seen = {bytes.fromhex(key) for shard in manifest.shards[:number] for key in shard.questions}
        first = number * settings.shard_conversations
        jobs = [plan(first + i, settings, prompts) for i in range(settings.shard_conversations)]
        progress, finished = done, 0

        def tick(tokens: int, start: int = done) -> None:
            """Shards are made whole, and the last one usually holds more than was asked for."""
            nonlocal progress, finished
            progress, finished = progress + tokens, finished + 1
            shard = max(1.0, (progress - start) / finished * settings.shard_conversations)
            total = round(start + math.ceil((settings.tokens - start) / shard) * shard)
            report(progress, max(total, progress), (time.monotonic() - began) / max(progress - resumed, 1))

        before = set(seen)
        kept = run.run(jobs, seen, tick)
        useless = 0 if kept else useless + len(jobs)
        if useless >= MOST_USELESS:
            why, _ = Counter(job.rejected or "unfinished" for job in jobs).most_common(1)[0]
            raise ConfigError(
                f"{out}: nothing of {useless} conversations could be kept (most often: {why}): "
                "give --prompts, or a base that was made to chat"
            )
        name = f"shard-{number:05d}.safetensors"
        with write_atomically(out / name) as temporary, library_writes(temporary):
            save_file(to_arrays(kept, settings.top_k), temporary)
        shard = Shard(
            file=name,
            sha256=sha256(out / name),
            conversations=len(kept),
            tokens=sum(len(c.ids) for c in kept),
            answer_tokens=sum(c.answer_tokens for c in kept),
            questions=tuple(sorted(key.hex() for key in seen - before)),
        )
        manifest.shards = (*manifest.shards[:number], shard, *manifest.shards[number + 1 :])
        manifest.save(out)
        done += shard.answer_tokens
    return manifest


def _resume(folder: Path, wanted: DataManifest) -> tuple[tuple[Shard, ...], list[int]]:
    """The shards that were made before, and the numbers of those that are missing or damaged."""
    if not (folder / NAME).exists():
        return (), []
    there = read_data_manifest(folder)
    made = there.facts()
    for key, value in wanted.facts().items():
        if made[key] != value:
            raise ConfigError(
                f"{folder / NAME}: was made with another {key}; give another folder or delete this one to "
                "start over"
            )
    gone = [number for number, shard in enumerate(there.shards) if not shard.whole(folder)]
    for number in gone:
        warnings.warn(
            f"{folder / there.shards[number].file}: missing or damaged, is made again",
            HamburgerWarning,
            stacklevel=3,
        )
    return there.shards, gone
