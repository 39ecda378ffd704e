"""Which conversations train, calibrate or judge: a hash of the question decides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

JUDGING_SHARE = 0.05  # of the questions, by default; half as many more calibrate


@dataclass
class Split:
    """Numbers of conversations: trained on, held out, for calibration."""

    train: list[int]
    calibration: list[int]
    held_out: list[int]


def side(question: npt.ArrayLike, held_out: float) -> Literal["train", "calibration", "held_out"]:
    """Return the side of conversations that begin with these tokens."""
    tokens = np.asarray(question, dtype=np.int32)
    bucket = int.from_bytes(hashlib.sha256(tokens.tobytes()).digest()[:4]) / 2**32
    if bucket < held_out:
        return "held_out"
    return "calibration" if bucket < 1.5 * held_out else "train"


def split_questions(questions: Iterable[npt.ArrayLike], held_out: float) -> Split:
    """Split conversations by a hash of the question's tokens, so that no question is on two sides."""
    split = Split([], [], [])
    for number, question in enumerate(questions):
        getattr(split, side(question, held_out)).append(number)
    return split
