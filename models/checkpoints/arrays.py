"""Our own safetensors files as numpy arrays: matrices of 8-bit rows become float32 again (see `rows.py`). No
PyTorch, and no package safetensors:

    length of the header, 8 bytes | header: JSON of name -> dtype, shape, data_offsets | data
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import CheckpointError
from hamburger_edge.support.files import open_regular

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I8": "i1"}
_LONGEST_HEADER = 100 << 20

Array = npt.NDArray[Any]


def read_arrays(path: Path, *, half: bool = False) -> dict[str, Array]:
    """Everything in float32; integers without a scale as they are. With `half`, float16 matrices of layers
    stay so."""
    arrays = read_stored(path, half=half)
    for name in [name for name, array in arrays.items() if array.dtype == np.int8]:
        scale = arrays.pop(f"{name}.scale", None)  # of each row [N] of a matrix [N, K]
        if scale is None:
            raise CheckpointError(
                f"{path}: missing tensor {name}.scale of an 8-bit matrix: get the file again"
            )
        if scale.shape != arrays[name].shape[:1]:
            raise CheckpointError(
                f"{path}: tensor {name}.scale has shape {list(scale.shape)}, "
                f"expected {list(arrays[name].shape[:1])}"
            )
        arrays[name] = arrays[name].astype(np.float32) * scale[:, None]
    return arrays


def read_stored(path: Path, *, half: bool = False) -> dict[str, Array]:
    """Tensors as they are stored, but floating ones in float32."""
    try:
        with open_regular(path) as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(memory[:8], "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        header, data = json.loads(memory[8 : 8 + length]), memoryview(memory)[8 + length :]
        return {
            name: _array(data, facts, keep_half=half and name.endswith("_proj.weight"))
            for name, facts in header.items()
            if name != "__metadata__"
        }
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file: the folder is incomplete, get it again") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: truncated or not a safetensors file ({error}): get it again"
        ) from error


def _array(data: memoryview, facts: dict[str, Any], *, keep_half: bool) -> Array:
    begin, end = facts["data_offsets"]
    stored = np.dtype(_TYPES[facts["dtype"]])
    shape = tuple(facts["shape"])
    if end - begin != math.prod(shape) * stored.itemsize or not 0 <= begin <= end <= len(data):
        raise ValueError("a tensor lies outside of it")
    array = np.frombuffer(data, stored, math.prod(shape), begin).reshape(shape)
    if facts["dtype"] == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    as_stored = array.dtype.kind != "f" or (keep_half and facts["dtype"] == "F16")
    return array.copy() if as_stored else array.astype(np.float32)
