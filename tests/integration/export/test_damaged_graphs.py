"""A bundle whose graphs or weights are damaged is one line that says so, whatever is damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from toy_bundles import CHANGES

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, HamburgerError
from hamburger_edge.runtimes.onnx.onnx_backend import open_bundle


def damage(bundle: Path, copy: Path, change: Callable[[Path], None], *, honest: bool = True) -> Path:
    """A copy of a bundle with one thing wrong; `honest` sizes and hashes let it past the file checks."""
    shutil.copytree(bundle, copy)
    change(copy)
    if honest:
        manifest = load_manifest(copy)
        replace(manifest, files=tuple(file_entries(copy))).save(copy)
    return copy


def edit(name: str, change: Callable[[onnx.ModelProto], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        model = onnx.load(folder / name, load_external_data=False)
        change(model)
        (folder / name).write_bytes(model.SerializeToString())

    return apply


def point_outside(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../outside.bin"


def point_beyond(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                entry.value = str(1 << 40)


def rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "other"


def widen_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 12345


DAMAGE = {
    "graph is noise": lambda folder: (folder / "base.onnx").write_bytes(os.urandom(5000)),
    "graph is empty": lambda folder: (folder / "micro_decoder.onnx").write_bytes(b""),
    "graph is cut": lambda folder: os.truncate(folder / "base.onnx", 3000),
    "weights are cut": lambda folder: os.truncate(folder / "weights.bin", 100),
    "weights elsewhere": edit("base.onnx", point_outside),
    "weights beyond the end": edit("base.onnx", point_beyond),
    "another input": edit("base.onnx", rename_input),
    "another shape": edit("base.onnx", widen_input),
    "graphs swapped": lambda folder: shutil.copy(folder / "embedder.onnx", folder / "base.onnx"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_graphs_are_typed_errors(kind: str, bundles: Callable[..., Path], tmp_path: Path) -> None:
    bundle = bundles(**CHANGES)
    (tmp_path / "outside.bin").write_bytes((bundle / "weights.bin").read_bytes())
    broken = damage(bundle, tmp_path / "copy", DAMAGE[kind])
    with pytest.raises(HamburgerError) as caught:
        open_bundle(broken)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, BundleError)


def test_a_changed_graph_is_noticed_by_its_size(bundles: Callable[..., Path], tmp_path: Path) -> None:
    broken = damage(bundles(**CHANGES), tmp_path / "copy", edit("base.onnx", rename_input), honest=False)
    with pytest.raises(BundleError, match="truncated or changed"):
        open_bundle(broken)
