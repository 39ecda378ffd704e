"""Sample tokens from logits after transformers' logits processors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import LogitsProcessorList

from hamburger_edge.loop.backend import Floats, ModelInfo
from hamburger_edge.loop.grammar import Grammar
from hamburger_edge.loop.sampling import Choice, Sampler
from hamburger_edge.loop.scores import Head
from hamburger_edge.loop.settings import SamplingSettings


class ProcessedSampler(Sampler):
    """Applies processors to logits of the whole vocabulary.

    In a micro step, tokens outside the draft vocabulary have minus infinity. A processor may be called twice
    for one position, and for tokens that are rejected later.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        info: ModelInfo,
        processors: LogitsProcessorList,
        prompt: Sequence[int],
        grammar: Grammar | None,
    ) -> None:
        super().__init__(settings, info.vocab_size, info.draft_vocab, top_probabilities=None, grammar=grammar)
        self._processors, self._said = processors, list(prompt)
        self._tokens = np.arange(info.vocab_size) if info.draft_vocab is None else info.draft_vocab

    @property
    def adjusts(self) -> bool:
        return bool(self._processors) or super().adjusts

    @property
    def forbids_forced(self) -> bool:
        token = self.forced
        if token is None or not self._processors:
            return super().forbids_forced
        even = np.zeros(self._base.size, dtype=np.float32)
        return super().forbids_forced or bool(np.isneginf(self._processed(even, self._base)[token]))

    def choose_micro(self, logits: Floats, logprob: float = 0.0) -> Choice | None:
        processed = self._processed(logits, self._micro)
        left = processed if self.grammar is None else processed[self.grammar.allowed_micro()]
        if np.isneginf(left.max(initial=-np.inf)):
            return None  # no draft token is permitted: the base chooses the next one
        return super().choose_micro(processed, logprob)

    def _permitted(self, logits: Floats) -> Choice:
        return super()._permitted(self._processed(logits, self._base))

    def _processed(self, logits: Floats, head: Head) -> Floats:
        if not self._processors:
            return logits
        scores = np.full((1, self._base.size), -np.inf, dtype=np.float32)
        tokens = np.arange(self._base.size) if head is self._base else self._tokens
        scores[0, tokens] = logits
        said = torch.tensor([[*self._said, *self.answer]])
        changed = self._processors(said, torch.from_numpy(scores))  # type: ignore[arg-type]
        processed: Floats = changed[0].numpy()[tokens]
        return processed
