"""Our safetensors files, whose matrices may be stored as 8-bit rows.

<name>          int8 [rows, columns]
<name>.scale    float [rows]; value = int8 * scale
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.checkpoints.arrays import read_arrays
from hamburger_edge.support.files import library_writes

RowPrecision = Literal["int8", "fp16", "fp32"]


def save_rows(path: Path, tensors: Mapping[str, Tensor], rows: RowPrecision) -> None:
    """Save matrices in the type `rows`, other floats (norms, biases) in float32, integers unchanged."""
    from safetensors.torch import save_file

    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{path}: tensor {name} holds NaN or infinity and is not saved: training diverged"
            )
        if not tensor.is_floating_point():
            stored[name] = tensor.contiguous()
        elif tensor.ndim != 2 or rows == "fp32":
            stored[name] = tensor.float().contiguous()
        elif rows == "fp16":
            stored[name] = tensor.half()
            if not torch.isfinite(stored[name]).all():
                raise CheckpointError(f"{path}: tensor {name} does not fit 16 bits: save with rows='fp32'")
        else:
            scale = tensor.float().abs().amax(1).clamp(min=1e-12) / 127
            stored[name] = (tensor.float() / scale[:, None]).round().to(torch.int8)
            stored[f"{name}.scale"] = scale
    with library_writes(path):
        save_file(stored, path, metadata={"format": "pt"})
    path.chmod(0o666 & ~_umask())  # safetensors makes files private to the user


def _umask() -> int:
    """Return the umask, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def load_rows(path: Path, *, half: bool = False) -> dict[str, Tensor]:
    """Return `read_arrays` as tensors."""
    return {name: torch.from_numpy(array) for name, array in read_arrays(path, half=half).items()}
