"""One step of the optimizers, from several batches that processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from hamburger_edge.models.training.data.batches import TrainingBatch
from hamburger_edge.models.training.updates.processes import Processes


@dataclass
class StepResult:
    """The result of a step, of all processes together."""

    results: dict[str, Tensor] = field(default_factory=dict)  # metrics: [sum, count] each
    tokens: int = 0
    fault: str | None = None  # the reason if nothing was learned


@dataclass
class Learner:
    processes: Processes
    objective: nn.Module  # from `Processes.prepare`
    learning: list[Tensor]
    optimizers: list[Optimizer]
    autocast: Callable[[], AbstractContextManager[Any]]
    clip: float

    def step(self, batches: Iterable[TrainingBatch], count: int) -> StepResult:
        """Learn from the mean loss of `count` batches in each process.

        If it is not finite nothing is learned: it would stay in weights, moments and means for good.
        """
        done = StepResult()
        self._forget()
        for number, batch in enumerate(batches):
            last = number + 1 == count
            with nullcontext() if last else self.processes.apart(self.objective):
                with self.autocast():
                    results: dict[str, Tensor] = self.objective(batch)
                loss = results.pop("loss")
                if self.processes.any(not torch.isfinite(loss)):
                    self._forget()
                    return StepResult(fault=f"the loss is {loss.item()}")
                (loss / count).backward()
            for name, pair in results.items():
                done.results[name] = done.results[name] + pair if name in done.results else pair
            done.tokens += int((batch.groups.target_sizes > 0).sum())
        norm = torch.nn.utils.clip_grad_norm_(self.learning, self.clip)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if self.processes.any(not torch.isfinite(norm)):
            self._forget()
            return StepResult(fault=f"the gradient's norm is {norm.item()}")
        for optimizer in self.optimizers:
            optimizer.step()
        return self._together(done)

    def _together(self, done: StepResult) -> StepResult:
        tokens = torch.tensor([float(done.tokens), 0.0], device=self.processes.device)
        total = self.processes.summed({**done.results, "tokens": tokens})
        return StepResult(tokens=int(total.pop("tokens")[0]), results=total)

    def _forget(self) -> None:
        for parameter in self.objective.parameters():
            parameter.grad = None
