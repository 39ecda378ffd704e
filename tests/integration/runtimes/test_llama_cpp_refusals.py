"""Damaged bundles and missing packages are refused before llama.cpp reads them."""

from __future__ import annotations

import hashlib
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.toys.gguf_bundles import gguf_bundle
from helpers.toys.manifests import read_manifest, write_manifest

from hamburger_edge import load
from hamburger_edge.bundle.manifest import GGUFEntry
from hamburger_edge.errors import (
    BundleError,
    MissingExtraError,
    RuntimeFailureError,
    RuntimeUnavailableError,
)
from hamburger_edge.runtimes.llamacpp import library as llama_library
from hamburger_edge.runtimes.llamacpp.gguf_file import GGUF
from hamburger_edge.runtimes.llamacpp.llamacpp_backend import open_bundle

pytest.importorskip("llama_cpp")


def test_missing_package_version_or_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    library = llama_library.library()
    with pytest.raises(RuntimeUnavailableError, match=r"no function llama_fly.*use 0\.3\.36"):
        library.function("llama_fly", None)
    assert library._optional(("llama_fly", "_Z9llama_flyv"), None) is None  # a symbol may be missing
    assert library.has_layer_inputs
    monkeypatch.setattr(sys.modules["llama_cpp"], "__version__", "0.2.1")
    with pytest.raises(RuntimeUnavailableError, match=r"0\.2\.1 is not supported.*use 0\.3\.36.*pip install"):
        llama_library.Library(False)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingExtraError, match=r"llama_cpp is not installed.*'\.\[llamacpp\]'"):
        llama_library.Library(False)


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    folder, _ = gguf_bundle(position_rule="slot")
    return Path(shutil.copytree(folder, tmp_path / "bundle"))


def rewrite(folder: Path) -> None:
    """Bring sizes and hashes of files in the manifest up to date."""
    manifest = read_manifest(folder)
    for entry in manifest["files"]:
        data = (folder / entry["path"]).read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for part in ("base", "micro_decoder", "graft"):
        entry = manifest["gguf"][part]
        data = (folder / entry["file"]).read_bytes()[: entry["header_bytes"]]
        entry["header_sha256"] = hashlib.sha256(data).hexdigest()
    write_manifest(folder, manifest)


def test_corrupted_header_is_refused_before_llama_cpp(spoiled: Path) -> None:
    for file in ("base.gguf", "micro_decoder.gguf", "graft.gguf"):
        path = spoiled / file
        data = path.read_bytes()
        for offset in (0, 20, 600):
            path.write_bytes(data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :])
            with pytest.raises(BundleError, match=f"{file}: its header differs from the manifest's"):
                open_bundle(spoiled)
        path.write_bytes(data)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BundleError, match="truncated or changed"):
        open_bundle(spoiled)


@pytest.mark.parametrize(("offset", "value"), [(0, 0), (4, 9), (8, 255), (16, 255), (24, 255), (60, 250)])
def test_invalid_header_is_refused_despite_its_right_hash(offset: int, value: int, spoiled: Path) -> None:
    path = spoiled / "micro_decoder.gguf"
    data = path.read_bytes()
    path.write_bytes(data[:offset] + bytes([value]) + data[offset + 1 :])
    rewrite(spoiled)
    with pytest.raises(BundleError, match=r"micro_decoder\.gguf: "):
        open_bundle(spoiled, threads=1)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        ("model.taps", [0, 2], "hamburger.taps is .* the manifest implies"),
        ("model.position_rule", "token", "architecture llama cannot have positions by token"),
        ("model.max_group_tokens", 3, "hamburger.max_group_tokens is 4"),
        ("model.micro_layers", 3, "llama.block_count is 2, but the manifest implies 3"),
        ("model.hidden_size", 96, "embedding_length is 64"),
        ("model.stop_rule", "after", "hamburger.stop_rule is 'before'"),
        ("model.merge_residual", "last", "hamburger.merge_residual is 'mean'"),
        ("model.draft_vocab", [1, 2, 3], r"token_embd.weight is of shape \[100, 64\], expected \[3, 64\]"),
        ("kv.kv_heads", 4, "head_count_kv is 2"),
        ("gguf", None, "names neither graphs nor GGUF files"),
        ("gguf.base.file", "elsewhere.gguf", "not in the list of files"),
        ("gguf.base.header_bytes", 0, "header_bytes is out of range"),
        ("gguf.architecture", "gpt2", "expected one of 'llama', 'paddleocr'"),
    ],
)
def test_manifest_that_contradicts_the_files_is_refused(
    keys: str, value: Any, message: str, spoiled: Path
) -> None:
    manifest = read_manifest(spoiled)
    *path, last = keys.split(".")
    table = manifest
    for key in path:
        table = table[key]
    table[last] = value
    write_manifest(spoiled, manifest)
    with pytest.raises(BundleError, match=message):
        open_bundle(spoiled, threads=1)


def test_files_of_two_exports_are_refused(spoiled: Path) -> None:
    other, _ = gguf_bundle(position_rule="slot", rope_theta=20000.0)
    shutil.copy(other / "micro_decoder.gguf", spoiled)
    rewrite(spoiled)
    with pytest.raises(BundleError, match=r"micro_decoder\.gguf: hamburger\.export is .*one export"):
        open_bundle(spoiled, threads=1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(8, struct.pack("<Q", 2) + b"32"), (9, struct.pack("<IQI", 4, 1, 32)), (6, struct.pack("<f", 32.0))],
    ids=["a string", "a list", "a fraction"],
)
def test_alignment_that_is_no_integer_is_refused(kind: int, value: bytes, tmp_path: Path) -> None:
    key = b"general.alignment"
    header = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<I", kind) + value
    path = tmp_path / "base.gguf"
    path.write_bytes(header)
    with pytest.raises(BundleError, match=r"base\.gguf: not a GGUF file of this program \(alignment"):
        GGUF(path, GGUFEntry(path.name, len(header), hashlib.sha256(header).hexdigest()))


def test_bundle_of_the_other_format_is_refused(spoiled: Path, bundle: Path) -> None:
    (spoiled / "stray.onnx").write_bytes(b"")  # a graph that the manifest does not name
    with pytest.raises(BundleError, match="holds no graphs: export it again with  --format onnx"):
        load(spoiled)
    with pytest.raises(BundleError, match="holds no GGUF files: export it again with  --format gguf"):
        load(bundle, "llamacpp")


def test_failed_computation_error_names_a_remedy(spoiled: Path) -> None:
    with load(spoiled, "llamacpp", threads=1) as model:
        context = model.backend.base.context  # type: ignore[attr-defined]
        with pytest.raises(RuntimeFailureError, match=r"compute 0 rows \(code -1, .*smaller cache_slots, or"):
            context.decode(0, [])  # llama.cpp refuses a batch of nothing


def test_load_failure_of_llama_cpp_is_a_bundle_error(spoiled: Path) -> None:
    """The header is valid, but the model lacks a tensor."""
    path = spoiled / "micro_decoder.gguf"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_uq.weight"))
    rewrite(spoiled)
    with pytest.raises(BundleError, match=r"llama\.cpp cannot load it \(.*ffn_up"):
        open_bundle(spoiled, threads=1)
