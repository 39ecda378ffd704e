"""Training batches, laid out by processes of their own: one cannot keep a GPU busy."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from hamburger_edge.models.architecture.hamburger import GroupBatch
from hamburger_edge.models.training.data.batches import Batches, Cuts, DistilledData, TrainingBatch

AHEAD = 6  # batches that a process may be ahead
Portions = Callable[[int, int], tuple[DistilledData, list[int]]]


class Stream:
    """Batches without an end, from processes that each lay out portions of examples of their own."""

    def __init__(self, portions: Portions, processes: int, *, cuts: Cuts | None, **shape: Any):
        """`portions(process, number)`: examples, and which of them; the same number is asked for once."""
        context = multiprocessing.get_context("fork")  # what the portions are made of is not copied
        self.queues = [context.Queue(AHEAD) for _ in range(processes)]
        self.workers = [
            context.Process(target=_produce, args=(queue, portions, number, cuts, shape), daemon=True)
            for number, queue in enumerate(self.queues)
        ]
        for worker in self.workers:
            worker.start()

    def __iter__(self) -> Iterator[TrainingBatch]:
        while True:
            for queue in self.queues:
                yield _unpacked(queue.get())

    def end(self) -> None:
        for worker in self.workers:
            worker.terminate()


def _produce(queue: Any, portions: Portions, process: int, cuts: Cuts | None, shape: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    for number in itertools.count():
        data, conversations = portions(process, number)
        batches = Batches(data, conversations, cuts=cuts, seed=process, **shape)
        for rows in batches.laid_out(number):
            queue.put(_packed(batches.build(rows)))


def _packed(batch: TrainingBatch) -> dict[str, np.ndarray]:
    """Token ids in 16 bits, sizes in 8: what goes through a pipe."""
    groups = batch.groups
    assert groups.documents is not None
    return {
        "groups": groups.groups.numpy().astype(np.uint16),
        "targets": groups.targets.numpy().astype(np.uint16),
        "sizes": groups.sizes.numpy().astype(np.uint8),
        "target_sizes": groups.target_sizes.numpy().astype(np.uint8),
        "documents": groups.documents.numpy().astype(np.int16),
        "top_ids": batch.top_ids.numpy().astype(np.uint16),
        "top_log_probabilities": batch.top_log_probabilities.numpy().astype(np.float16),
        "judged_sizes": batch.judged_sizes.numpy().astype(np.uint8),
    }


def _unpacked(arrays: dict[str, np.ndarray]) -> TrainingBatch:
    tensors = {
        name: torch.from_numpy(array.astype(np.int64))
        for name, array in arrays.items()
        if array.dtype.kind != "f"
    }
    groups = GroupBatch(
        **{name: tensors[name] for name in ("groups", "sizes", "targets", "target_sizes", "documents")}
    )
    log_probabilities = torch.from_numpy(arrays["top_log_probabilities"].astype(np.float32))
    return TrainingBatch(
        groups, tensors["top_ids"], log_probabilities, tensors["judged_sizes"], np.zeros(0, dtype=np.int64)
    )
