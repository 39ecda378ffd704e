"""A GGUF file under construction: keys, and tensors in the types of a precision."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType as Type
from torch import Tensor

from hamburger_edge.bundle.manifest import GGUFEntry, Precision, PrecisionPlan, gguf_precision
from hamburger_edge.export.quantization.block_quantizer import SMALLEST, quantize_with_minimum, round_to_grid
from hamburger_edge.export.quantization.input_covariance import InputCovariance

TYPES = {"f32": Type.F32, "f16": Type.F16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0, "q4_1": Type.Q4_1}
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7}  # llama.cpp's numbers for a whole file
BLOCK = 32  # weights that share a scale in all of the quantized types


def make_gguf_plan(precision: str) -> PrecisionPlan:
    """Plan a file: 4-bit files keep the vocabulary at 8 bits, like ONNX bundles; the graft's tensors are
    floats."""
    name = gguf_precision(precision)
    head = "q8_0" if name.startswith("q4") else name
    graft = "f32" if name == "f32" else "f16"
    return PrecisionPlan(
        base=cast(Precision, name),
        head=cast(Precision, head),
        graft=cast(Precision, graft),
        block_size=BLOCK if name.startswith("q") else 0,
    )


class GGUFBuilder:
    """Collects keys and tensors; `write` puts them on disk."""

    def __init__(self, path: Path, architecture: str, part: str, export: str):
        self.path, self.architecture = path, architecture
        self.writer = gguf.GGUFWriter(path, architecture)
        self.key("hamburger.part", part)
        self.key("hamburger.export", export)

    def key(self, name: str, value: Any) -> None:
        """Add a key with the value's own type; integers are unsigned, None is left out."""
        if isinstance(value, bool):
            self.writer.add_bool(name, value)
        elif isinstance(value, int):
            self.writer.add_uint32(name, value)
        elif isinstance(value, float):
            self.writer.add_float32(name, value)
        elif isinstance(value, str):
            self.writer.add_string(name, value)
        elif value is not None and len(value):  # GGUF has no empty lists
            self.writer.add_array(name, list(value))

    def keys(self, **values: Any) -> None:
        """Add keys of the architecture; __ stands for a dot."""
        for name, value in values.items():
            self.key(f"{self.architecture}.{name.replace('__', '.')}", value)

    def tensor(
        self,
        name: str,
        tensor: Tensor,
        precision: Precision = "f32",
        covariance: InputCovariance | None = None,
    ) -> None:
        """Add a tensor in the type of the precision.

        Vectors are float32, as llama.cpp expects. Rows that do not divide into a type's blocks stay at 16
        bits. The `covariance` of a 4-bit layer's inputs improve its rounding.
        """
        kind = TYPES[precision] if tensor.ndim > 1 else Type.F32
        if kind not in (Type.F32, Type.F16) and tensor.shape[-1] % BLOCK:
            kind = Type.F16
        if kind in (Type.Q4_0, Type.Q4_1) and covariance is not None:
            data = four_bits(tensor.detach().float(), kind, covariance)
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(tensor.detach().float().numpy()), kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def write(self) -> GGUFEntry:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        sizes = [info.nbytes for tensors in self.writer.tensors for info in tensors.values()]
        self.writer.write_tensors_to_file()
        self.writer.close()
        data = sum(self.writer.ggml_pad(size, self.writer.data_alignment) for size in sizes)
        header_bytes = self.path.stat().st_size - data
        with open(self.path, "rb") as file:
            digest = hashlib.sha256(file.read(header_bytes)).hexdigest()
        return GGUFEntry(self.path.name, header_bytes, digest)


def four_bits(weight: Tensor, kind: Type, covariance: InputCovariance) -> npt.NDArray[np.uint8]:
    """[N, K] -> [N, bytes]: of each block the scale, for Q4_1 the minimum, then q, its halves side by side"""
    if kind is Type.Q4_1:
        q, scales, minima = quantize_with_minimum(weight, BLOCK, covariance=covariance)
        heads = [scales, minima]
    else:  # 8 is zero, and 0 the weight farthest from it
        blocks = weight.unflatten(1, (-1, BLOCK))
        farthest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True)).squeeze(-1)
        scales = (farthest / -8).half().float()
        scales = torch.where(scales.abs() < SMALLEST, SMALLEST, scales)
        q = round_to_grid(weight, scales, -8 * scales, covariance)
        heads = [scales]
    low, high = q.unflatten(1, (-1, 2, BLOCK // 2)).unbind(2)  # [N, blocks, BLOCK / 2]
    parts = [head[..., None].half().view(torch.uint8) for head in heads]
    return torch.cat([*parts, low | high << 4], dim=-1).flatten(1).numpy()


def sections(head_dim: int) -> Sequence[int]:
    """M-RoPE's split of the D/2 rotations into time, height, width: any split does, they get one number."""
    third = head_dim // 6
    return (head_dim // 2 - 2 * third, third, third, 0)
