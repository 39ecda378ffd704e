"""Examples as tokens: <|im_start|>question<|im_end|>answer<|im_end|>. The answer and its end are learned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
from hamburger_edge.models.distillation.written import certain
from hamburger_edge.models.training.data.batches import DistilledData

START, END = 1, 2  # <|im_start|>, <|im_end|>


@dataclass(frozen=True)
class Encoded:
    ids: npt.NDArray[np.uint16]  # [tokens] of all examples
    starts: npt.NDArray[np.int64]  # [examples + 1] where each begins
    answers: npt.NDArray[np.int64]  # [examples] tokens before each answer

    def __len__(self) -> int:
        return len(self.answers)

    def save(self, path: Path) -> None:
        np.savez_compressed(path, ids=self.ids, starts=self.starts, answers=self.answers)

    @classmethod
    def load(cls, path: Path) -> Encoded:
        with np.load(path) as found:
            return cls(found["ids"], found["starts"], found["answers"])

    def data(self) -> DistilledData:
        """As if the answers had been distilled from a base that was certain of them."""
        sizes = np.diff(self.starts)
        inside = np.arange(len(self.ids)) - np.repeat(self.starts[:-1], sizes)
        learned = inside >= np.repeat(self.answers, sizes)
        arrays = certain(self.starts, self.ids, np.where(learned, ANSWER, TEMPLATE))
        return DistilledData(**arrays, source={}, shards=[])


def encode(pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> Encoded:
    texts = list(chain.from_iterable(pairs))
    found = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
    rows = [[START, *asked, END, *said, END] for asked, said in zip(found[::2], found[1::2], strict=True)]
    return Encoded(
        np.fromiter(chain.from_iterable(rows), dtype=np.uint16),
        np.cumsum([0, *map(len, rows)]).astype(np.int64),
        np.array([len(asked) + 2 for asked in found[::2]], dtype=np.int64),
    )
