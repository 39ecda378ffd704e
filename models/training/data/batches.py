"""Distilled shards as training batches.

Conversations are cut into slots (by the entropy rule, at random, or one token per slot), then laid end to end
in rows of a fixed number of slots. Every slot before an answer token predicts the following tokens: up to
`max_group_tokens`, independent of the cuts, and none outside the draft vocabulary after the first. No micro
step can choose such a token, so the stop head must learn to end there: it is trained on that position too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.hamburger import GroupBatch
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.distillation.data_manifest import Shard, read_data_manifest
from hamburger_edge.models.distillation.shard_files import ARRAYS, read_shard
from hamburger_edge.models.distillation.storage import Folder
from hamburger_edge.models.distillation.written import question_of
from hamburger_edge.models.training.data.segmentation import (
    EntropyRule,
    cut_at_random,
    cut_by_entropy,
    cut_by_lengths,
)
from hamburger_edge.models.training.data.split import Split, split_questions


@dataclass
class TrainingBatch:
    """A GroupBatch and the plain base's prediction of each target token."""

    groups: GroupBatch
    top_ids: Tensor  # [G, m, k]
    top_log_probabilities: Tensor  # [G, m, k]
    judged_sizes: Tensor  # [G] the target size, plus one if a token outside the draft vocabulary follows
    starts: npt.NDArray[np.int64]  # [G] start of each group in the data

    @property
    def judged(self) -> Tensor:
        """[G, m-1] bool: the stop head is trained on token i+1."""
        steps = torch.arange(1, self.top_ids.shape[1], device=self.judged_sizes.device)
        return steps < self.judged_sizes[:, None]

    def groups_of(self, picked: slice) -> TrainingBatch:
        """Return the targets of some of the groups."""
        tops = self.top_ids[picked], self.top_log_probabilities[picked]
        return TrainingBatch(self.groups, *tops, self.judged_sizes[picked], self.starts[picked])

    def to(self, device: torch.device | str) -> TrainingBatch:
        tops = self.top_ids.to(device), self.top_log_probabilities.to(device)
        return TrainingBatch(self.groups.to(device), *tops, self.judged_sizes.to(device), self.starts)


@dataclass
class DistilledData:
    """All shards of one or more data folders, flat over tokens."""

    starts: npt.NDArray[np.int64]  # [conversations + 1]
    ids: npt.NDArray[np.int32]  # [tokens]
    roles: npt.NDArray[np.uint8]
    entropies: npt.NDArray[np.float16]
    top_ids: npt.NDArray[np.int32]  # [tokens, k]
    top_log_probabilities: npt.NDArray[np.float16]
    source: dict[str, Any]  # the base that wrote the answers
    shards: list[Shard]

    @classmethod
    def load(cls, *folders: str | Path | Folder) -> DistilledData:
        manifests = [read_data_manifest(folder) for folder in folders]
        for folder, manifest in zip(folders, manifests, strict=True):
            if not manifest.shards:
                raise ConfigError(f"{folder}: holds no shards: run distill again")
            if manifest.base != manifests[0].base:
                raise ConfigError(
                    f"{folder}: was distilled from another base than {folders[0]}: name folders of one base"
                )
        shards = [
            (folder, shard)
            for folder, manifest in zip(folders, manifests, strict=True)
            for shard in manifest.shards
        ]
        arrays = [read_shard(folder, shard) for folder, shard in shards]
        if len({a["top_ids"].shape[1:] for a in arrays}) > 1:
            raise ConfigError(
                f"{folders[0]}: keeps another number of likeliest tokens than the folders beside it"
            )
        offsets = np.cumsum([0, *(a["starts"][-1] for a in arrays)])
        starts = [a["starts"][:-1] + offset for a, offset in zip(arrays, offsets, strict=False)]
        # each array leaves the shards as it is joined: twice everything may exceed the memory
        joined = {name: np.concatenate([a.pop(name) for a in arrays]) for name in ARRAYS if name != "starts"}
        return cls(
            starts=np.concatenate([*starts, offsets[-1:]]),
            source=manifests[0].source,
            shards=[shard for _, shard in shards],
            **joined,
        )

    @property
    def sha256(self) -> str:
        """Hash all shards in order."""
        return hashlib.sha256("".join(shard.sha256 for shard in self.shards).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.starts) - 1

    def split(self, held_out: float) -> Split:
        return split_questions(map(self._question, range(len(self))), held_out)

    def _question(self, number: int) -> npt.NDArray[np.int32]:
        span = slice(*self.starts[number : number + 2])
        return question_of(self.ids[span], self.roles[span])

    def frequent_tokens(self, size: int, conversations: Iterable[int]) -> npt.NDArray[np.int64]:
        """Return the `size` most frequent tokens of these answers and of the base's choices there, sorted
        by id."""
        chosen_from = np.zeros(len(self), dtype=bool)
        chosen_from[list(conversations)] = True
        answers = (self.roles == ANSWER) & np.repeat(chosen_from, np.diff(self.starts))
        counts = Counter(self.ids[answers].tolist())
        counts.update(self.top_ids[answers][:, 0].tolist())
        chosen = [token for token, _ in counts.most_common(size)]
        present = set(chosen)
        fill = (token for token in range(2**31) if token not in present)  # low ids are frequent merges
        while len(chosen) < size:
            chosen.append(next(fill))
        return np.sort(np.asarray(chosen, dtype=np.int64))


@dataclass(frozen=True)
class Cuts:
    """How answers are cut into slots: shares of conversations; the rest has one token per slot."""

    entropy: float = 0.6
    random: float = 0.25
    agreement: float = 0.0  # as the model at the beginning of the stage would group them
    low: tuple[float, ...] = (0.05, 0.2, 0.5)  # entropy rules to choose from, in pairs with `ratio`
    ratio: tuple[float, ...] = (0.3, 0.5, 0.7)

    @property
    def merged(self) -> float:
        return self.entropy + self.random + self.agreement


class Batches:
    """An endless, reproducible order of batches: batch n of epoch e depends on (seed, e, n) alone.

    drop_last: leave out a short last batch, for training; another epoch has its conversations.
    """

    def __init__(
        self,
        data: DistilledData,
        conversations: list[int],
        *,
        max_group_tokens: int,
        draft_vocab: npt.NDArray[np.int64] | None,
        vocab_size: int,
        rows: int,
        row_slots: int,
        cuts: Cuts | None,
        seed: int,
        drop_last: bool = False,
    ):
        self.data, self.conversations, self.cuts, self.seed = data, conversations, cuts, seed
        self.max_group_tokens, self.rows, self.row_slots = max_group_tokens, rows, row_slots
        self.drop_last = drop_last
        self.own_lengths: npt.NDArray[np.int8] | None = None  # [tokens], see own_groups.py
        self.may_join = np.ones(vocab_size, dtype=bool)
        if draft_vocab is not None:
            self.may_join[:] = False
            self.may_join[draft_vocab] = True

    def plan(self, epoch: int) -> list[list[list[_Slots]]]:
        """Lay out batches as rows of conversations, without building them."""
        return list(self.laid_out(epoch))

    def laid_out(self, epoch: int) -> Iterator[list[list[_Slots]]]:
        """Yield the same, one after another."""
        draw = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        yielded = False
        rows: list[list[_Slots]] = []
        space: list[int] = []
        for index in draw.permutation(len(self.conversations)):
            slots = self._slots(self.conversations[index], draw)
            # first row with room, among the rows of the current batch
            row = next((r for r, room in enumerate(space) if room >= len(slots)), None)
            if row is None:
                if len(rows) == self.rows:
                    yield rows
                    yielded, rows, space = True, [], []
                row = len(rows)
                rows.append([])
                space.append(self.row_slots)
            rows[row].append(slots)
            space[row] -= len(slots)
        if len(rows) == self.rows or not (self.drop_last and yielded):  # the only batch may be short
            yield rows

    def _slots(self, conversation: int, draw: np.random.Generator) -> _Slots:
        start, stop = (int(x) for x in self.data.starts[conversation : conversation + 2])
        answer = self.data.roles[start:stop] == ANSWER
        may_join = answer & self.may_join[self.data.ids[start:stop]]
        may_join[1:] &= answer[:-1]  # an answer's first token opens a group
        kind = draw.random()
        sizes = [1] * (stop - start)
        if self.cuts is not None and kind < self.cuts.entropy:
            which = int(draw.integers(len(self.cuts.low)))
            rule = EntropyRule(self.cuts.low[which], self.cuts.ratio[which])
            sizes = cut_by_entropy(
                self.data.entropies[start:stop].astype(np.float32), self.max_group_tokens, rule, may_join
            )
        elif self.cuts is not None and kind < self.cuts.entropy + self.cuts.random:
            sizes = cut_at_random(stop - start, self.max_group_tokens, draw, may_join)
        elif self.own_lengths is not None and self.cuts is not None and kind < self.cuts.merged:
            sizes = cut_by_lengths(self.own_lengths[start:stop], may_join)
        sizes = sizes[: self.row_slots]  # a conversation longer than a row loses its end
        ends = np.cumsum(sizes)  # first token after each slot, relative to start
        # from each token on, the number of tokens that may follow in one group
        numbers, breaks = np.arange(stop - start), np.append(np.flatnonzero(~may_join), stop - start)
        run = np.append(breaks[np.searchsorted(breaks, numbers, side="right")] - numbers, 0)
        target_sizes = np.where(
            (ends < stop - start) & np.append(answer, False)[ends],
            run[ends].clip(max=self.max_group_tokens),
            0,
        )
        # the answer continues after the targets with a token that may not join
        goes_on = np.append(answer[:-1] & answer[1:], False)  # [i]: token i and the one behind it
        unsaid = (
            goes_on[ends + target_sizes - 1] & (target_sizes > 0) & (target_sizes < self.max_group_tokens)
        )
        judged_sizes = target_sizes + unsaid
        return _Slots(start + ends - np.asarray(sizes), np.asarray(sizes), target_sizes, judged_sizes)

    def build(self, rows: list[list[_Slots]]) -> TrainingBatch:
        shape, m = (len(rows), self.row_slots), self.max_group_tokens
        first = np.zeros(shape, dtype=np.int64)  # index of each slot's first token
        sizes, target_sizes, judged_sizes = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        documents = np.full(shape, -1, dtype=np.int64)
        for row, items in enumerate(rows):
            at = 0
            for document, slots in enumerate(items):
                here = slice(at, at + len(slots))
                first[row, here], sizes[row, here] = slots.first, slots.sizes
                target_sizes[row, here], documents[row, here] = slots.target_sizes, document
                judged_sizes[row, here] = slots.judged_sizes
                at += len(slots)
        last = len(self.data.ids) - 1
        members_at = np.arange(m)
        members = np.minimum(first[..., None] + members_at, last)
        follow = np.minimum((first + sizes)[..., None] + members_at, last)
        read = follow[target_sizes > 0]  # [G, m]
        ids = self.data.ids
        return TrainingBatch(
            GroupBatch(
                groups=torch.from_numpy(ids[members].astype(np.int64)),
                sizes=torch.from_numpy(sizes),
                targets=torch.from_numpy(ids[follow].astype(np.int64)),
                target_sizes=torch.from_numpy(target_sizes),
                documents=torch.from_numpy(documents),
            ),
            top_ids=torch.from_numpy(self.data.top_ids[read].astype(np.int64)),
            top_log_probabilities=torch.from_numpy(self.data.top_log_probabilities[read].astype(np.float32)),
            judged_sizes=torch.from_numpy(judged_sizes[target_sizes > 0]),
            starts=read[:, 0],
        )


@dataclass
class _Slots:
    """One conversation, cut."""

    first: npt.NDArray[np.int64]  # index of the slot's first token in the data
    sizes: npt.NDArray[np.int64]
    target_sizes: npt.NDArray[np.int64]
    judged_sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)
