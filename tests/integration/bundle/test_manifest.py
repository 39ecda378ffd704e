"""Every byte of a manifest is distrusted: what is impossible is one line of BundleError."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from manifests import read_manifest
from manifests import write_manifest as write
from toy_bundles import PORTABLE

from hamburger_edge.bundle.external_data import external_files
from hamburger_edge.bundle.files import check_files, file_entries
from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


@pytest.fixture
def data(folder: Path) -> dict[str, Any]:
    return read_manifest(folder)


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
    told = dataclasses.replace(manifest, producer="[1,   2]")  # a text, and no list to be put on one line
    told.save(folder)
    assert load_manifest(folder).producer == "[1,   2]"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", 1, ["format version 1", "reads version 2", "export the model again"]),
        ("format", True, ["format version"]),
        ("kind", "something else", ["not a bundle's manifest"]),
        ("flavor", "fast", ["flavor"]),
        ("model.vocab_size", 1 << 40, ["vocab_size"]),
        ("model.hidden_size", 0, ["hidden_size"]),
        ("model.num_layers", 10**9, ["num_layers"]),
        ("model.max_group_tokens", 1000, ["max_group_tokens"]),
        ("model.context_length", 1 << 60, ["context_length"]),
        ("model.taps", [2, 1], ["taps"]),
        ("graphs", [], ["neither graphs nor GGUF"]),
        ("chat_template", {"foo": 1}, ["chat template", "foo"]),
        ("model.draft_vocab", [1, 1], ["draft_vocab"]),
        ("model.draft_vocab", [-1], ["draft_vocab"]),
        ("kv.head_size", 1 << 30, ["head_size"]),
        ("kv.dtype", "float7", ["dtype"]),
        ("kv.layers", 99, ["kv.layers"]),
        ("kv.dtype", "float16", ["base.past_key.0 is float32", "kv has 2 heads of 16, float16 there"]),
        ("kv.head_size", 8, ["base.past_key.0 is", "heads of 8"]),
        ("kv.kv_heads", 3, ["base.past_key.0 is", "3 heads"]),
        ("precision.base", "int3", ["precision.base"]),
        ("precision.block_size", 63, ["precision.block_size must be 0 or a power of two, 16..4096, got 63"]),
        ("precision.grid", 2**70, ["precision.grid must be 0 or a power of two"]),
        ("precision.base", "q4_1", ["precision.base 'q4_1' is not one of fp32, fp16, int8, int4"]),
        ("kv.dtype", "int64", ["kv.dtype 'int64' is unknown"]),
        ("flavor", "gguf", ["flavor 'gguf' with 3 graphs"]),
        ("graphs.0.file", "tokenizer.json", ["no .onnx file"]),
        ("graphs.0.file", "nowhere.onnx", ["nowhere.onnx"]),
        ("graphs.0.inputs.0.dtype", "object", ["dtype"]),
        ("graphs.0.inputs.0.shape", ["9" * 30], ["absurd"]),
        ("graphs.0.inputs.0.shape", [1], ["shape"]),
        ("graphs.0.name", "extra", ["graphs must be embedder, base, micro_decoder"]),
        ("model.micro_layers", 9, ["micro_decoder has no input 'past_key."]),
        ("graphs.0.inputs.0.name", "ids", ["embedder has no input 'tokens'"]),
        ("graphs.0.outputs.0.name", "rows", ["embedder has no output 'embeddings'"]),
        ("graphs.1.inputs.0.name", "x", ["base has no input 'embeddings'"]),
        ("graphs.1.outputs.1.name", "x", ["base has no output 'p_stop'"]),
        ("graphs.2.outputs.0.name", "x", ["micro_decoder has no output 'logits'"]),
        ("graphs.2.outputs.2.name", "x", ["micro_decoder has no output 'present_key.0'"]),
        ("cache_slots", 64, ["fused graphs with a cache_slots of 64"]),
        ("files.0.path", "../outside", ["leaves the bundle"]),
        ("files.0.path", "/etc/passwd", ["leaves the bundle"]),
        ("files.0.path", "C:\\windows", ["leaves the bundle"]),
        ("files.0.path", "", ["leaves the bundle"]),
        ("files.0.path", "\ud800", ["no file's name"]),
        ("files.0.path", "manifest.json", ["manifest"]),
        ("files.0.bytes", -1, ["bytes"]),
    ],
)
def test_impossible_values_are_refused(
    path: str, value: Any, words: list[str], folder: Path, data: dict[str, Any]
) -> None:
    refused(folder, at(data, path, value), *words)


def test_the_first_token_beyond_the_vocabulary_ends_nothing(folder: Path, data: dict[str, Any]) -> None:
    size = data["model"]["vocab_size"]
    write(folder, at(data, "model.eos_ids", [size - 1]))
    assert load_manifest(folder).model.eos_ids == (size - 1,)
    refused(folder, at(data, "model.eos_ids", [size]), "eos_ids")


def test_portable_graphs_have_a_cache_of_their_own(bundles: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundles(**PORTABLE), tmp_path / "copy"))
    refused(folder, at(read_manifest(folder), "cache_slots", 0), "portable graphs with a cache_slots of 0")


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


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("model.draft_vocab", lambda ids: ids[::-1]),  # every micro step says the wrong token
        ("chat_template.before_user", lambda text: text + " "),
        ("model.eos_ids", lambda ids: []),
        ("base.license", lambda text: "mine"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(
    path: str, change: Any, folder: Path, data: dict[str, Any]
) -> None:
    """No hash of a file tells: the manifest has one of its own."""
    old: Any = data
    for step in path.split("."):
        old = old[step]
    changed = at(data, path, change(old))
    (folder / "manifest.json").write_text(json.dumps(changed))
    with pytest.raises(BundleError, match="was changed since it was written"):
        load_manifest(folder)
    write(folder, changed)
    check_files(folder, load_manifest(folder), hashes=True)


def test_a_key_that_stands_there_twice_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    for before, twice in (('{\n "format"', '{"format": 2, "format"'), ('"taps"', '"taps": [0], "taps"')):
        path.write_text(text.replace(before, twice, 1))
        with pytest.raises(BundleError, match=r"key '\w+' stands there twice"):
            load_manifest(folder)
    path.write_text(text.replace('"cache_slots": 0', '"cache_slots": NaN', 1))
    with pytest.raises(BundleError, match="NaN is no number of JSON's"):
        load_manifest(folder)


def test_weights_that_no_list_names_are_refused(folder: Path, data: dict[str, Any]) -> None:
    """A graph may name any file beside it; its hash would be in no list, nor in the fingerprint."""
    assert external_files(folder / "base.onnx") == {"weights.bin"}
    shutil.copy(folder / "weights.bin", folder / "weights.two")
    graph = folder / "base.onnx"
    graph.write_bytes(graph.read_bytes().replace(b"weights.bin", b"weights.two"))
    write(folder, {**data, "files": [vars(entry) for entry in file_entries(folder)]})
    check_files(folder, load_manifest(folder), hashes=True)  # listed, whatever its name
    files = [vars(entry) for entry in file_entries(folder) if entry.path != "weights.two"]
    write(folder, {**data, "files": files})
    with pytest.raises(BundleError, match=r"base.onnx: takes weights from 'weights.two', which the manifest"):
        check_files(folder, load_manifest(folder))


def test_external_files_of_constants_branches_and_functions_count(tmp_path: Path) -> None:
    def tensor(name: str) -> onnx.TensorProto:
        made = onnx.TensorProto(name=name, data_type=1, dims=[1], data_location=1)
        made.external_data.add(key="offset", value="0")
        made.external_data.add(key="location", value=f"{name}.bin")
        return made

    helper = onnx.helper
    branch = helper.make_graph([], "branch", [], [], initializer=[tensor("branch")])
    constant = helper.make_node("Constant", [], ["c"], value=tensor("constant"))
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch), constant]
    sparse = onnx.SparseTensorProto(values=tensor("values"), indices=tensor("indices"), dims=[1])
    graph = helper.make_graph(nodes, "g", [], [], initializer=[tensor("main")], sparse_initializer=[sparse])
    function = helper.make_function("f", "f", [], ["c"], [constant], [helper.make_opsetid("", 23)])
    model = helper.make_model(graph, functions=[function])
    (tmp_path / "g.onnx").write_bytes(model.SerializeToString())
    names = {"branch", "constant", "values", "indices", "main"}
    assert external_files(tmp_path / "g.onnx") == {f"{name}.bin" for name in names}


def test_what_is_no_graph_is_refused_by_whoever_looks(folder: Path) -> None:
    graph = folder / "base.onnx"
    data = graph.read_bytes()
    random = np.random.default_rng(0)
    for content in (b"", b"\xff" * 50, data[:-3], random.bytes(500), b"\x3a\xff\xff\xff\xff\x0f"):
        graph.write_bytes(content)
        with pytest.raises(BundleError, match=r"base\.onnx: not an ONNX graph"):
            external_files(graph)


def test_missing_keys_are_named(folder: Path, data: dict[str, Any]) -> None:
    for key in ("flavor", "model", "precision", "kv", "graphs", "files"):
        less = {name: value for name, value in data.items() if name != key}
        refused(folder, less, key)


def test_a_manifest_from_before_merge_residual_means_the_mean(folder: Path, data: dict[str, Any]) -> None:
    """It keeps its fingerprint too: sessions saved with such a bundle go on."""
    before = load_manifest(folder)
    assert before.model.merge_residual == data["model"].pop("merge_residual") == "mean"
    write(folder, data)
    assert dataclasses.replace(load_manifest(folder), sha256=before.sha256) == before
    assert load_manifest(folder).fingerprint == before.fingerprint
    refused(folder, at(data, "model.merge_residual", "first"), "merge_residual", "'mean', 'last'")


def test_files_that_are_missing_cut_or_changed(folder: Path) -> None:
    manifest = load_manifest(folder)
    weights = folder / "weights.bin"
    content = weights.read_bytes()
    for other in (content[:-1], content + b"x"):
        weights.write_bytes(other)
        with pytest.raises(BundleError, match=r"weights\.bin.*truncated or changed"):
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


def test_fingerprint_follows_whatever_decides_the_text_only(folder: Path, data: dict[str, Any]) -> None:
    before = load_manifest(folder).fingerprint
    write(folder, at(data, "producer", "another program"))
    assert load_manifest(folder).fingerprint == before
    write(folder, at(data, "chat_template", None))
    assert load_manifest(folder).fingerprint != before
    write(folder, at(data, "model.draft_vocab", data["model"]["draft_vocab"][::-1]))
    assert load_manifest(folder).fingerprint != before
    index = next(i for i, file in enumerate(data["files"]) if file["path"] == "tokenizer.json")
    write(folder, at(data, f"files.{index}.sha256", hashlib.sha256(b"other").hexdigest()))
    assert load_manifest(folder).fingerprint != before
    index = next(i for i, file in enumerate(data["files"]) if file["path"] == "weights.bin")
    write(folder, at(data, f"files.{index}.sha256", hashlib.sha256(b"other").hexdigest()))
    assert load_manifest(folder).fingerprint != before
    write(folder, at(data, "precision.block_size", 64))
    assert load_manifest(folder).fingerprint != before
