"""Scales between a norm and the products that read its output, moved from one into the others, in numpy.

    norm's weight [K] / 2^e        products' weights [N, K] * 2^e
    rows of up_proj / 2^e          columns of down_proj * 2^e

Products round their inputs with one scale for all channels. A few channels of a norm's output are 25 times as
large as the median one, and leave it few steps. Powers of two round nothing: in float32 the model computes
the same bits as before.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import CheckpointError

READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.up_proj": ("mlp.down_proj",),  # of bases with `output_norms`
}
SHARE = 0.6  # of a channel's size that the norm loses; the products' weights get coarser with it
SMALLEST = 1e-5  # of a channel that no text uses

Exponents = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Folds:
    exponents: Mapping[str, Exponents]  # "base.layers.0.input_layernorm" -> [K]; of up_proj, [outputs]

    def apply(self, name: str, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The weight of this name with its share of the scales; others stay as they are."""
        path = name.removesuffix(".weight")
        if path in self.exponents:
            lost = -self.exponents[path].astype(np.int32)
            weight = np.ldexp(weight, lost[:, None] if path.endswith("_proj") else lost)
        for source, readers in READERS.items():
            for reader in readers:
                if path.endswith(reader) and path.removesuffix(reader) + source in self.exponents:
                    gained = self.exponents[path.removesuffix(reader) + source].astype(np.int32)
                    weight = np.ldexp(weight, gained)
        return weight

    def to_json(self) -> dict[str, str]:
        return {
            norm: base64.b64encode(exponents.tobytes()).decode() for norm, exponents in self.exponents.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Folds:
        try:
            decoded = {norm: base64.b64decode(text, validate=True) for norm, text in data.items()}
            return cls({norm: np.frombuffer(exponents, np.int8) for norm, exponents in decoded.items()})
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"folds: {error}: make the assembly again") from error


def exponents_of(inputs: npt.NDArray[Any], weights: Sequence[npt.NDArray[Any]]) -> Exponents:
    """From the largest magnitude of each input channel [K], and the weights [N, K] that read them."""
    columns = np.max([np.abs(weight).max(0) for weight in weights], axis=0)
    norm, reader = (np.log2(np.maximum(sizes, SMALLEST)) for sizes in (inputs, columns))
    size = SHARE * norm - (1 - SHARE) * reader
    exponents: Exponents = np.clip(np.rint(size - size.mean()), -8, 8).astype(np.int8)
    return exponents
