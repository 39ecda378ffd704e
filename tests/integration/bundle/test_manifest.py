"""Every byte of a manifest is distrusted: what is impossible is one line of BundleError."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


@pytest.fixture
def data(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def write(folder: Path, data: Any) -> None:
    (folder / "manifest.json").write_text(json.dumps(data))


def refused(folder: Path, data: Any, *words: str) -> None:
    write(folder, data)
    with pytest.raises(BundleError) as caught:
        check_files(folder, load_manifest(folder))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def at(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one value changed; numbers in the path index lists."""
    changed = copy.deepcopy(data)
    *parents, last = (int(step) if step.isdigit() else step for step in path.split("."))
    target: Any = changed
    for step in parents:
        target = target[step]
    target[last] = value
    return changed


def test_a_manifest_survives_saving(folder: Path) -> None:
    manifest = load_manifest(folder)
    check_files(folder, manifest, hashes=True)
    manifest.save(folder)
    assert load_manifest(folder) == manifest
    assert next(iter(json.loads((folder / "manifest.json").read_text()))) == "format"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", 2, ["format version 2", "update"]),
        ("format", True, ["format version"]),
        ("kind", "something else", ["not a bundle's manifest"]),
        ("flavor", "fast", ["flavor"]),
        ("model.vocab_size", "97", ["vocab_size"]),
        ("model.vocab_size", 1 << 40, ["vocab_size"]),
        ("model.hidden_size", 0, ["hidden_size"]),
        ("model.hidden_size", -5, ["hidden_size"]),
        ("model.num_layers", 10**9, ["num_layers"]),
        ("model.max_steps", 1000, ["max_steps"]),
        ("model.context_length", 1 << 60, ["context_length"]),
        ("model.taps", [2, 1], ["taps"]),
        ("model.taps", [99], ["taps"]),
        ("model.position_rule", "none", ["position_rule"]),
        ("graphs", [], ["neither graphs nor GGUF"]),
        ("chat_template", {"foo": 1}, ["chat template", "foo"]),
        ("model.eos_ids", [10**6], ["eos_ids"]),
        ("model.shortlist", [1, 1], ["shortlist"]),
        ("model.shortlist", [], ["shortlist"]),
        ("model.shortlist", [-1], ["shortlist"]),
        ("kv.head_size", 1 << 30, ["head_size"]),
        ("kv.dtype", "float7", ["dtype"]),
        ("kv.layers", 99, ["kv.layers"]),
        ("kv.dtype", "float16", ["base.past_key.0 is float32", "kv has 2 heads of 16, float16 there"]),
        ("kv.dtype", "int8", ["base.past_key.0 is float32"]),
        ("kv.head_size", 8, ["base.past_key.0 is", "heads of 8"]),
        ("kv.kv_heads", 3, ["base.past_key.0 is", "3 heads"]),
        ("precision.base", "int3", ["precision.base"]),
        ("precision.block_size", -1, ["block_size"]),
        ("cache_length", 1 << 40, ["cache_length"]),
        ("chat_template", 5, ["chat_template"]),
        ("tokenizer", "elsewhere.json", ["elsewhere.json"]),
        ("graphs.0.file", "nowhere.onnx", ["nowhere.onnx"]),
        ("graphs.0.inputs.0.dtype", "object", ["dtype"]),
        ("graphs.0.inputs.0.shape", ["9" * 30], ["absurd"]),
        ("graphs.0.inputs.0.shape", ["9" * 5000], ["absurd"]),
        ("graphs.0.inputs.0.shape", [1], ["shape"]),
        ("graphs.0.name", "extra", ["graphs must be embedder, base, micro_decoder"]),
        ("model.micro_layers", 9, ["micro_decoder has no input 'past_key."]),
        ("graphs.0.inputs.0.name", "ids", ["embedder has no input 'tokens'"]),
        ("graphs.0.outputs.0.name", "rows", ["embedder has no output 'embeddings'"]),
        ("graphs.1.inputs.0.name", "x", ["base has no input 'embeddings'"]),
        ("graphs.1.outputs.1.name", "x", ["base has no output 'p_stop'"]),
        ("graphs.2.outputs.0.name", "x", ["micro_decoder has no output 'logits'"]),
        ("graphs.2.outputs.2.name", "x", ["micro_decoder has no output 'present_key.0'"]),
        ("cache_length", 64, ["fused graphs with a cache_length of 64"]),
        ("files.0.path", "../outside", ["leaves the bundle"]),
        ("files.0.path", "/etc/passwd", ["leaves the bundle"]),
        ("files.0.path", "a/../../b", ["leaves the bundle"]),
        ("files.0.path", "C:\\windows", ["leaves the bundle"]),
        ("files.0.path", "", ["leaves the bundle"]),
        ("files.0.path", "\ud800", ["no file's name"]),
        ("files.0.path", "manifest.json", ["manifest"]),
        ("files.0.bytes", -1, ["bytes"]),
        ("files.0.sha256", "short", ["sha256"]),
        ("surprise", 1, ["surprise"]),
    ],
)
def test_impossible_values_are_refused(
    path: str, value: Any, words: list[str], folder: Path, data: dict[str, Any]
) -> None:
    refused(folder, at(data, path, value), *words)


@pytest.mark.parametrize("name", ["past_value.1", "present_key.0"])
def test_every_cache_of_the_micro_decoder_is_as_kv_says(
    name: str, folder: Path, data: dict[str, Any]
) -> None:
    (graph,) = (graph for graph in data["graphs"] if graph["name"] == "micro_decoder")
    (tensor,) = (tensor for tensor in graph["inputs"] + graph["outputs"] if tensor["name"] == name)
    tensor["dtype"] = "float16"
    refused(folder, data, f"micro_decoder.{name} is float16", "float32 there")


def test_things_that_are_no_manifest(folder: Path, tmp_path: Path) -> None:
    path = folder / "manifest.json"
    for text in ("", "{", "[]", "null", "3", "[" * 100_000, '{"format": 1', "\x00"):
        path.write_text(text)
        with pytest.raises(BundleError):
            load_manifest(folder)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BundleError):
        load_manifest(folder)
    path.unlink()
    with pytest.raises(BundleError, match="not a bundle"):
        load_manifest(folder)
    with pytest.raises(BundleError, match="no such bundle"):
        load_manifest(tmp_path / "nothing")


def test_missing_keys_are_named(folder: Path, data: dict[str, Any]) -> None:
    for key in ("flavor", "model", "precision", "kv", "graphs", "files"):
        less = {name: value for name, value in data.items() if name != key}
        refused(folder, less, key)


def test_a_manifest_from_before_merge_residual_means_the_mean(folder: Path, data: dict[str, Any]) -> None:
    """It keeps its fingerprint too: sessions saved with such a bundle go on."""
    before = load_manifest(folder)
    assert before.model.merge_residual == data["model"].pop("merge_residual") == "mean"
    write(folder, data)
    assert load_manifest(folder) == before
    assert load_manifest(folder).fingerprint == before.fingerprint
    refused(folder, at(data, "model.merge_residual", "first"), "merge_residual", "'mean', 'last'")


def test_files_that_are_missing_cut_or_changed(folder: Path) -> None:
    manifest = load_manifest(folder)
    weights = folder / "weights.bin"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(BundleError, match=r"weights\.bin.*truncated"):
        check_files(folder, manifest)
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    check_files(folder, manifest)
    with pytest.raises(BundleError, match=r"weights\.bin.*sha256"):
        check_files(folder, manifest, hashes=True)
    weights.unlink()
    with pytest.raises(BundleError, match=r"weights\.bin.*missing"):
        check_files(folder, manifest)


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights on Windows")
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    (folder / "weights.bin").rename(outside)
    (folder / "weights.bin").symlink_to(outside)
    with pytest.raises(BundleError, match="leaves the bundle"):
        check_files(folder, load_manifest(folder), hashes=True)


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights on Windows")
def test_a_file_that_cannot_be_looked_at_is_named(folder: Path, data: dict[str, Any]) -> None:
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to("weights.bin")
    with pytest.raises(BundleError, match=r"weights\.bin: cannot be read"):
        check_files(folder, load_manifest(folder))
    index = next(i for i, file in enumerate(data["files"]) if file["path"] == "weights.bin")
    write(folder, at(data, f"files.{index}.path", 300 * "a"))
    with pytest.raises(BundleError, match=r"aaa: cannot be read \(File name too long\)"):
        check_files(folder, load_manifest(folder))


def test_names_in_a_bundle_do_nothing_to_a_terminal(folder: Path, data: dict[str, Any]) -> None:
    write(folder, at(data, "base.name", "evil\x1b[2J\nname"))
    assert "evil\\x1b[2J\\nname" in show(describe(folder))


def test_fingerprint_follows_weights_and_precision_only(folder: Path, data: dict[str, Any]) -> None:
    before = load_manifest(folder).fingerprint
    write(folder, at(data, "chat_template", None))
    assert load_manifest(folder).fingerprint == before
    index = next(i for i, file in enumerate(data["files"]) if file["path"] == "weights.bin")
    write(folder, at(data, f"files.{index}.sha256", hashlib.sha256(b"other").hexdigest()))
    assert load_manifest(folder).fingerprint != before
    write(folder, at(data, "precision.block_size", 64))
    assert load_manifest(folder).fingerprint != before
