"""Reading weights without PyTorch: safetensors files, and changes to a base."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.checkpoints.arrays import read_arrays, read_stored
from hamburger_edge.models.checkpoints.delta import change

RANDOM = np.random.default_rng(0)


def test_every_type_of_a_safetensors_file_is_read(tmp_path: Path) -> None:
    tensors = {
        "float": torch.randn(3, 4),
        "half": torch.randn(5).half(),
        "brain": torch.randn(2, 2).bfloat16(),
        "ids": torch.arange(6),
        "rows": torch.randint(-127, 127, (3, 5), dtype=torch.int8),
        "rows.scale": torch.rand(3),
    }
    save_file(tensors, tmp_path / "some.safetensors")
    stored = read_stored(tmp_path / "some.safetensors")
    for name, tensor in tensors.items():
        wanted = tensor.float() if tensor.is_floating_point() else tensor
        np.testing.assert_array_equal(stored[name], wanted.numpy(), strict=True)
    arrays = read_arrays(tmp_path / "some.safetensors")
    assert "rows.scale" not in arrays
    np.testing.assert_array_equal(arrays["brain"], tensors["brain"].float().numpy(), strict=True)
    wanted = tensors["rows"].float() * tensors["rows.scale"][:, None]
    np.testing.assert_array_equal(arrays["rows"], wanted.numpy())


@pytest.mark.parametrize("size", [0, 5, 40, 200])
def test_truncated_file_is_named(size: int, tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    save_file({"a": torch.zeros(40)}, path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"some\.safetensors: truncated"):
        read_arrays(path)


def test_low_rank_change_is_independent_of_summation_order() -> None:
    """Processors' libraries add products in different orders."""
    weight = RANDOM.standard_normal((70, 50)).astype(np.float32)
    left = RANDOM.standard_normal((70, 32)).astype(np.float32)
    right = RANDOM.standard_normal((32, 50)).astype(np.float32)
    changed = []
    for order in (np.arange(32), np.arange(32)[::-1], RANDOM.permutation(32)):
        changed.append(weight.copy())
        change(changed[-1], "w", {"w.lora_a": right[order], "w.lora_b": left[:, order]})
    np.testing.assert_array_equal(changed[0], changed[1])
    np.testing.assert_array_equal(changed[0], changed[2])
    np.testing.assert_allclose(changed[0], weight + left @ right, atol=1e-4)
