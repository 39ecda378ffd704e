"""A damaged bundle raises a BundleError of one line; `inspect` needs no runtime."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from helpers.toys.gguf_bundles import gguf_bundle
from helpers.toys.manifests import read_manifest
from helpers.toys.manifests import write_manifest as write
from helpers.toys.toy_bundles import CHANGES

import hamburger_edge
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


def test_saved_manifest_reads_back_equal(folder: Path) -> None:
    manifest = load_manifest(folder)
    check_files(folder, manifest, hashes=True)
    edited = dataclasses.replace(manifest, producer="[1,   2]")  # a string, not a list to print on one line
    edited.save(folder)
    assert dataclasses.replace(load_manifest(folder), sha256=manifest.sha256) == edited
    assert next(iter(read_manifest(folder))) == "format"


def test_chat_bundles_know_what_long_texts_cost(bundles: Callable[..., Path]) -> None:
    chat = load_manifest(bundles(precision="int8", **CHANGES)).draft_costs
    assert chat.behind(2000).row > 2 * chat.behind(64).row
    assert chat.behind(2000).micro < chat.micro
    unknown = bundles(precision="fp32", **CHANGES)
    assert read_manifest(unknown)["draft_costs"] == {"row": 0.2, "micro": 0.25}


def test_manifest_names_its_copied_fields_only_if_there_are_any(folder: Path) -> None:
    assert "copied_fields" not in read_manifest(folder)
    dataclasses.replace(load_manifest(folder), copied_fields=("slots.album", "year")).save(folder)
    assert read_manifest(folder)["copied_fields"] == ["slots.album", "year"]
    assert "copies      from its prompts: slots.album, year" in show(describe(folder))
    with hamburger_edge.load(folder, threads=1) as model:
        assert model.info.copied_fields == ("slots.album", "year")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", 2, ["format version 2", "reads version 3", "export the model again"]),
        ("format", True, ["format version"]),
        ("kind", "something else", ["not a bundle's manifest"]),
        ("flavor", "fast", ["flavor"]),
        ("flavor", "gguf", ["flavor 'gguf' with 3 graphs"]),
        ("flavor", "portable", ["portable graphs with a cache_slots of 0"]),
        ("cache_slots", 64, ["fused graphs with a cache_slots of 64"]),
        ("model.vocab_size", 1 << 40, ["vocab_size"]),
        ("model.hidden_size", 0, ["hidden_size"]),
        ("model.num_layers", 10**9, ["num_layers"]),
        ("model.max_group_tokens", 1000, ["max_group_tokens"]),
        ("model.context_length", 1 << 60, ["context_length"]),
        ("model.micro_layers", 9, ["micro_decoder has no input 'past_key."]),
        ("model.taps", [2, 1], ["taps"]),
        ("model.merge_residual", "first", ["merge_residual", "'mean', 'last'"]),
        ("model.draft_vocab", [1, 1], ["draft_vocab"]),
        ("model.draft_vocab", [-1], ["draft_vocab"]),
        ("chat_template", {"foo": 1}, ["chat template", "foo"]),
        ("draft_costs.row", 0, ["draft_costs must be above 0"]),
        ("draft_costs.micro", 11, ["draft_costs", "micro=11"]),
        ("draft_costs", {"row": 0.1, "micro": 0.1, "row_slots": -1}, ["draft_costs", "row_slots=-1"]),
        ("kv.layers", 99, ["kv.layers"]),
        ("kv.head_size", 1 << 30, ["kv.head_size must be"]),
        ("kv.head_size", 8, ["base.past_key.0 is", "heads of 8"]),
        ("kv.kv_heads", 3, ["base.past_key.0 is", "3 heads"]),
        ("kv.dtype", "float16", ["base.past_key.0 is float32", "kv has 2 heads of 16, float16 there"]),
        ("kv.dtype", "int64", ["kv.dtype 'int64' is unknown"]),
        ("precision.base", "q4_1", ["precision.base 'q4_1' is not one of fp32, fp16, int8, int4"]),
        ("precision.block_size", 63, ["precision.block_size"]),
        ("precision.grid", 2**70, ["precision.grid"]),
        ("graphs", [], ["neither graphs nor GGUF"]),
        ("graphs.0.name", "extra", ["graphs must be embedder, base, micro_decoder"]),
        ("graphs.0.file", "tokenizer.json", ["no .onnx file"]),
        ("graphs.0.file", "nowhere.onnx", ["nowhere.onnx"]),
        ("graphs.0.inputs.0.dtype", "object", ["dtype"]),
        ("graphs.0.inputs.0.shape", ["9" * 30], ["absurd"]),
        ("graphs.0.inputs.0.shape", [1], ["shape"]),
        ("files.0.path", "../outside", ["leaves the bundle"]),
        ("files.0.path", "/etc/passwd", ["leaves the bundle"]),
        ("files.0.path", "C:\\windows", ["leaves the bundle"]),
        ("files.0.path", "", ["leaves the bundle"]),
        ("files.0.path", "\ud800", ["no file's name"]),
        ("files.0.path", "manifest.json", ["manifest"]),
        ("files.0.bytes", -1, ["bytes"]),
    ],
)
def test_impossible_value_is_refused(
    path: str, value: Any, words: list[str], folder: Path, data: dict[str, Any]
) -> None:
    refused(folder, at(data, path, value), *words)


def test_every_bound_tensor_is_required_and_caches_share_one_dtype(
    folder: Path, data: dict[str, Any]
) -> None:
    for graph in data["graphs"]:
        for tensor in (*graph["inputs"], *graph["outputs"]):
            name, dtype = tensor["name"], tensor["dtype"]
            if name == "positions":
                continue
            tensor["name"] = "other"
            refused(folder, data, f"{graph['name']} has no", repr(name))
            tensor["name"] = name
            if name.startswith(("past_", "present_")):
                tensor["dtype"] = "float16"
                refused(folder, data, f"{graph['name']}.{name} is float16", "float32 there")
                tensor["dtype"] = dtype


def test_end_token_beyond_vocabulary_is_refused(folder: Path, data: dict[str, Any]) -> None:
    size = data["model"]["vocab_size"]
    write(folder, at(data, "model.eos_ids", [size - 1]))
    assert load_manifest(folder).model.eos_ids == (size - 1,)
    refused(folder, at(data, "model.eos_ids", [size]), "eos_ids")


def test_unreadable_manifest_is_refused(folder: Path, data: dict[str, Any], tmp_path: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    del data["kv"]
    for content, message in (
        (b"{", "not valid JSON"),
        (b"[]", "expected a table"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (text.replace('"taps"', '"taps": [0], "taps"', 1).encode(), "key 'taps' stands there twice"),
        (text.replace('"cache_slots": 0', '"cache_slots": NaN', 1).encode(), "NaN is no number of JSON's"),
        (json.dumps(data).encode(), "kv"),
    ):
        path.write_bytes(content)
        with pytest.raises(BundleError, match=message):
            load_manifest(folder)
    path.unlink()
    with pytest.raises(BundleError, match="not a bundle"):
        load_manifest(folder)
    with pytest.raises(BundleError, match="no such bundle"):
        load_manifest(tmp_path / "nothing")


def test_manifest_with_another_hash_is_refused(folder: Path, data: dict[str, Any]) -> None:
    """The manifest stores a hash of its content."""
    for path, value in (("model.eos_ids", []), ("base.license", "mine")):
        (folder / "manifest.json").write_text(json.dumps(at(data, path, value)))
        with pytest.raises(BundleError, match="was changed since it was written"):
            load_manifest(folder)


def test_manifest_without_merge_residual_uses_the_mean(folder: Path, data: dict[str, Any]) -> None:
    """Its fingerprint stays the same, so its saved sessions resume."""
    before = load_manifest(folder)
    assert before.model.merge_residual == data["model"].pop("merge_residual") == "mean"
    write(folder, data)
    assert dataclasses.replace(load_manifest(folder), sha256=before.sha256) == before
    assert load_manifest(folder).fingerprint == before.fingerprint


def test_answer_prefix_of_an_older_bundle_is_ignored(folder: Path, data: dict[str, Any]) -> None:
    before = load_manifest(folder)
    write(folder, {**data, "answer_prefix": [5, 6]})
    assert dataclasses.replace(load_manifest(folder), sha256=before.sha256) == before
    assert load_manifest(folder).fingerprint == before.fingerprint


def test_fingerprint_changes_only_with_content_that_affects_answers(
    folder: Path, data: dict[str, Any]
) -> None:
    before = load_manifest(folder).fingerprint
    write(folder, at(data, "producer", "another program"))
    assert load_manifest(folder).fingerprint == before
    index = {file["path"]: number for number, file in enumerate(data["files"])}
    for path, value in (
        ("chat_template", None),
        ("model.draft_vocab", data["model"]["draft_vocab"][::-1]),
        (f"files.{index['tokenizer.json']}.sha256", "0" * 64),
        (f"files.{index['weights.bin']}.sha256", "0" * 64),
        ("precision.block_size", 64),
    ):
        write(folder, at(data, path, value))
        assert load_manifest(folder).fingerprint != before


def test_unlisted_weights_file_is_refused(folder: Path, data: dict[str, Any]) -> None:
    """The hash of a file outside the list would also be missing from the fingerprint."""
    assert external_files(folder / "base.onnx") == {"weights.bin"}
    shutil.copy(folder / "weights.bin", folder / "weights.two")
    graph = folder / "base.onnx"
    graph.write_bytes(graph.read_bytes().replace(b"weights.bin", b"weights.two"))
    files = [vars(entry) for entry in file_entries(folder)]
    write(folder, {**data, "files": files})
    check_files(folder, load_manifest(folder), hashes=True)  # a listed file may have any name
    files = [file for file in files if file["path"] != "weights.two"]
    refused(folder, {**data, "files": files}, "base.onnx: takes weights from 'weights.two'")


def test_external_files_include_constants_branches_and_functions(tmp_path: Path) -> None:
    def tensor(name: str) -> onnx.TensorProto:
        external = onnx.TensorProto(name=name, data_type=1, dims=[1], data_location=1)
        external.external_data.add(key="offset", value="0")
        external.external_data.add(key="location", value=f"{name}.bin")
        return external

    helper = onnx.helper
    branch = helper.make_graph([], "branch", [], [], initializer=[tensor("branch")])
    constant = helper.make_node("Constant", [], ["c"], value=tensor("constant"))
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)]
    sparse = onnx.SparseTensorProto(values=tensor("values"), indices=tensor("indices"), dims=[1])
    graph = helper.make_graph(nodes, "g", [], [], initializer=[tensor("main")], sparse_initializer=[sparse])
    function = helper.make_function("f", "f", [], ["c"], [constant], [helper.make_opsetid("", 23)])
    model = helper.make_model(graph, functions=[function])
    (tmp_path / "g.onnx").write_bytes(model.SerializeToString())
    names = {"branch", "constant", "values", "indices", "main"}
    assert external_files(tmp_path / "g.onnx") == {f"{name}.bin" for name in names}


def test_file_that_is_not_an_onnx_graph_is_refused(folder: Path) -> None:
    graph = folder / "base.onnx"
    for content in (b"", b"\x3b", b"\xff" * 50, graph.read_bytes()[:-3], b"\x3a\xff\xff\xff\xff\x0f"):
        graph.write_bytes(content)
        with pytest.raises(BundleError, match=r"base\.onnx: not an ONNX graph"):
            external_files(graph)


def test_missing_truncated_or_changed_file_is_refused(folder: Path) -> None:
    manifest = load_manifest(folder)
    weights = folder / "weights.bin"
    content = weights.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    for damaged, message in ((content[:-1], "truncated"), (content + b"x", "truncated"), (flipped, "sha256")):
        weights.write_bytes(damaged)
        with pytest.raises(BundleError, match=rf"weights\.bin.*{message}"):
            check_files(folder, manifest, hashes=True)
    check_files(folder, manifest)  # the size is right, and hashes are not read
    weights.unlink()
    with pytest.raises(BundleError, match=r"weights\.bin.*missing"):
        check_files(folder, manifest)


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights on Windows")
def test_link_out_of_the_bundle_and_unreadable_name_are_refused(
    folder: Path, data: dict[str, Any], tmp_path: Path
) -> None:
    weights = folder / "weights.bin"
    outside = weights.rename(tmp_path / "outside.bin")
    for target, message in ((outside, "leaves the bundle"), (weights, "cannot be read")):
        weights.unlink(missing_ok=True)
        weights.symlink_to(target)
        refused(folder, data, "weights.bin", message)
    data["files"][-1]["path"] = 300 * "a"
    refused(folder, data, "aaa: cannot be read (File name too long)")


def test_inspection_without_onnx_omits_operators_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = describe(folder, cache_slots=20)
    assert facts["memory"]["kv"] == 20 * facts["memory"]["kv_per_slot"]
    whole_context = describe(folder)["memory"]["kv"]  # the default of 4096 slots exceeds the context
    assert whole_context == load_manifest(folder).model.context_length * facts["memory"]["kv_per_slot"]
    assert facts["operators"]["base"]["GroupQueryAttention"] == 3
    assert facts["operators"]["embedder"]["If"] == 1
    text = show(facts)
    assert "choosing from 100 tokens" in text
    assert "weights.bin" in text
    monkeypatch.setitem(sys.modules, "onnx", None)
    without_onnx = describe(folder, cache_slots=20)
    assert without_onnx == {**facts, "operators": None}
    *common, line = show(without_onnx).splitlines()
    assert line == "operators: listed where the extra [export] is installed"
    assert text.splitlines()[: len(common)] == common


def test_inspection_escapes_control_characters_in_names(folder: Path, data: dict[str, Any]) -> None:
    write(folder, at(data, "base.name", "evil\x1b[2J\nname"))
    assert "evil\\x1b[2J\\nname" in show(describe(folder))


def test_inspection_counts_files_of_one_runtime() -> None:
    both, _ = gguf_bundle("fp32", position_rule="slot")
    manifest = load_manifest(both)
    assert manifest.gguf is not None
    assert manifest.gguf.precision.base == "f32"
    files = tuple(file for file in manifest.files if not file.path.endswith(".gguf"))
    graphs_alone = dataclasses.replace(manifest, gguf=None, files=files)
    assert manifest.gguf_fingerprint != manifest.fingerprint == graphs_alone.fingerprint
    memory = describe(both)["memory"]
    loaded = [*both.glob("*.onnx"), both / "weights.bin"]
    assert memory["weights"] == sum(path.stat().st_size for path in loaded)
    assert memory["kv_per_slot"] == manifest.kv.bytes_per_slot
    alone, _ = gguf_bundle("q8_0", draft_vocab_size=0)
    facts = json.loads(json.dumps(describe(alone)))
    assert facts["operators"] == {}
    assert facts["fingerprint"] == load_manifest(alone).gguf_fingerprint
    assert facts["memory"]["weights"] == sum(path.stat().st_size for path in alone.glob("*.gguf"))
    kv = facts["kv"]  # llama.cpp's cache has 16 bits, independent of the graphs
    assert facts["memory"]["kv_per_slot"] == 2 * kv["layers"] * kv["kv_heads"] * kv["head_size"] * 2
    text = show(facts)
    assert "choosing from the whole vocabulary" in text
    assert "bytes a slot, float16)" in text
    assert "micro_decoder.gguf" in text
