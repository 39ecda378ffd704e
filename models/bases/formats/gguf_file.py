"""A llama.cpp GGUF file as a base: its keys, and its weights as float32 arrays by our names. No PyTorch."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import CheckpointError, require
from hamburger_edge.models.bases.formats.gguf_blocks import KINDS, decode
from hamburger_edge.models.bases.formats.renaming import GGUF, rename
from hamburger_edge.support.files import open_regular
from hamburger_edge.support.gguf_header import StoredTensor, read_header

Floats = npt.NDArray[np.float32]

# architecture -> rows of Q and K are stored for interleaved rotary pairs
ARCHITECTURES = {
    "llama": True,
    "qwen2": False,
    "qwen3": False,
    "gemma3": False,
    "granite": True,
    "smollm3": True,
}


class GGUFFile:
    """Header and tensors of one GGUF file, with every failure a CheckpointError that names it."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with open_regular(path) as file:
                self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            header = read_header(self.memory, strings=True)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, struct.error, KeyError, OverflowError, MemoryError) as error:
            raise CheckpointError(f"{path}: truncated or not a GGUF file ({error}): get it again") from error
        self.keys, self.tensors = header.keys, header.tensors

    def get(self, key: str, default: Any = None) -> Any:
        return self.keys.get(key, default)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise CheckpointError(f"{self.path}: GGUF key {key} is missing: convert the model again")
        return value

    def array(self, name: str) -> Floats:
        """Decode the tensor of this name in the file into new memory."""
        tensor = self.tensors[name]
        kind = KINDS.get(tensor.type)
        if kind is None:
            return self._decoded_by_gguf(name, tensor)
        count = math.prod(tensor.shape)
        size = count // kind.weights * kind.bytes
        if tensor.shape[-1] % kind.weights or tensor.offset + size > len(self.memory):
            raise CheckpointError(
                f"{self.path}: truncated or not a GGUF file (tensor {name} lies outside it): get it again"
            )
        return decode(kind, memoryview(self.memory)[tensor.offset : tensor.offset + size], tensor.shape)

    def _decoded_by_gguf(self, name: str, tensor: StoredTensor) -> Floats:
        """Of a rarer type."""
        require("gguf", "export")
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

        try:
            kind = GGMLQuantizationType(tensor.type)
            weights, size = GGML_QUANT_SIZES[kind]
            count = math.prod(tensor.shape) // weights * size
            data = np.frombuffer(self.memory, np.uint8, count, tensor.offset)
            values: Floats = quants.dequantize(data.reshape(*tensor.shape[:-1], -1), kind)
        except (NotImplementedError, KeyError, ValueError) as error:
            label = error if isinstance(error, ValueError) else kind.name
            raise CheckpointError(
                f"{self.path}: tensor {name} has type {label}, which cannot be read: "
                "use a file of type F16, Q8_0, Q4_0 ... Q6_K"
            ) from error
        return values

    def our_names(self) -> dict[str, str]:
        """Our name of each weight -> the file's."""
        names: dict[str, str] = {}
        for theirs in self.tensors:
            try:
                ours = rename(theirs, GGUF)
            except KeyError:
                raise CheckpointError(
                    f"{self.path}: unknown tensor {theirs}: this architecture variant is not supported"
                ) from None
            if ours is not None:
                names[ours] = theirs
        return names

    def weight(self, ours: str, theirs: str) -> Floats:
        """A weight as our layers have it: rows of Q and K in halves."""
        array, family = self.array(theirs), architecture_of(self)
        for part, key in ("q_proj", "head_count"), ("k_proj", "head_count_kv"):
            if ARCHITECTURES[family] and f".self_attn.{part}." in ours:
                heads = self.get(f"{family}.attention.{key}") or self.need(f"{family}.attention.head_count")
                return np.ascontiguousarray(unpermute(array, int(heads)))
        return array


def architecture_of(file: GGUFFile) -> str:
    architecture = file.need("general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{file.path}: GGUF architecture {architecture!r} is not supported "
            f"(known: {', '.join(ARCHITECTURES)})"
        )
    return str(architecture)


def unpermute(rows: Any, heads: int) -> Any:
    """Rows of each head from interleaved pairs (0, D/2, 1, D/2+1, ...) to halves (0, 1, ..., D-1).

    Takes arrays and tensors.
    """
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def permute(rows: Any, heads: int) -> Any:
    """The inverse of `unpermute`, for writing."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
