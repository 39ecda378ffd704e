"""Sample tokens from logits after transformers' logits processors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessorList

from hamburger_edge.loop.backend import Floats
from hamburger_edge.loop.sampling import Choice, Sampler
from hamburger_edge.loop.scores import Head, Ints
from hamburger_edge.loop.settings import SamplingSettings


class ProcessedSampler(Sampler):
    """Applies processors to logits of the whole vocabulary.

    In a micro step, tokens outside the draft vocabulary have minus infinity. A processor may be called twice
    for one position, and for tokens that are rejected later.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        vocab_size: int,
        draft_vocab: Ints | None = None,
        *,
        processors: LogitsProcessorList,
        **options: Any,
    ) -> None:
        super().__init__(settings, vocab_size, draft_vocab, **options)
        self._processors, self._prompt_tokens = processors, list[int]()
        self._tokens = np.arange(vocab_size) if draft_vocab is None else draft_vocab

    def begin(self, prompt: Iterable[int]) -> None:
        self._prompt_tokens = list(prompt)
        super().begin(self._prompt_tokens)

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
        text = torch.tensor([[*self._prompt_tokens, *self.answer]])
        changed = self._processors(text, torch.from_numpy(scores))  # type: ignore[arg-type]
        processed: Floats = changed[0].numpy()[tokens]
        return processed
