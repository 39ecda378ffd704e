"""What `inspect` tells of a bundle, without any runtime."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_bundles import gguf_bundle

from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def test_inspection_needs_no_runtime(folder: Path, bundles: Callable[..., Path]) -> None:
    facts = describe(folder, cache_slots=20)
    assert facts["memory"]["kv"] == 20 * facts["memory"]["kv_per_slot"]
    longest = describe(folder)["memory"]["kv"]  # 4096 slots, but the model has fewer positions
    assert longest == load_manifest(folder).model.context_length * facts["memory"]["kv_per_slot"]
    assert facts["operators"]["base"]["GroupQueryAttention"] == 3
    assert facts["operators"]["embedder"]["If"] == 1
    text = show(facts)
    assert "position" in text
    assert "weights.bin" in text
    (folder / "base.onnx").write_bytes(os.urandom((folder / "base.onnx").stat().st_size))
    with pytest.raises(BundleError, match=r"base\.onnx"):
        describe(folder)


def test_inspection_without_onnx_tells_all_but_operators(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = describe(folder)
    monkeypatch.setitem(sys.modules, "onnx", None)
    facts = describe(folder)
    assert facts == {**complete, "operators": None}
    *common, line = show(facts).splitlines()
    assert line == "operators: listed where the extra [export] is installed"
    assert show(complete).splitlines()[: len(common)] == common


@pytest.mark.parametrize("draft_vocab_size", [0, 100])
def test_inspection_of_gguf_files_alone(draft_vocab_size: int) -> None:
    folder, _ = gguf_bundle("q8_0", draft_vocab_size=draft_vocab_size)
    facts = json.loads(json.dumps(describe(folder)))
    assert facts["operators"] == {}
    assert facts["fingerprint"] == load_manifest(folder).gguf_fingerprint
    assert "micro_decoder.gguf" in show(facts)
    kv, memory = facts["kv"], facts["memory"]  # llama.cpp's cache has 16 bits, whatever graphs would have
    assert memory["kv_per_slot"] == 2 * kv["layers"] * kv["kv_heads"] * kv["head_size"] * 2
    assert "bytes a slot, float16)" in show(facts)
    assert memory["weights"] == sum(path.stat().st_size for path in folder.glob("*.gguf"))


def test_inspection_counts_the_files_that_one_runtime_loads() -> None:
    folder, _ = gguf_bundle("fp32", position_rule="slot")
    facts = describe(folder)
    loaded = [*folder.glob("*.onnx"), folder / "weights.bin"]
    assert facts["memory"]["weights"] == sum(path.stat().st_size for path in loaded)
    assert facts["memory"]["kv_per_slot"] == load_manifest(folder).kv.bytes_per_slot
