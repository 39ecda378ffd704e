"""GGUF files say what the model says, read back by the gguf package and by llama.cpp itself."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_tokenizers
from exports import export
from gguf_bundles import gguf_bundle
from toy_bundles import toy_checkpoint
from toy_models import toy_config

from hamburger_edge import load
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError, HamburgerWarning, InputError
from hamburger_edge.export import pipeline as bundle_module
from hamburger_edge.export.gguf.tensors import GGUFBuilder, make_gguf_plan
from hamburger_edge.export.gguf.vocabulary import add_vocabulary
from hamburger_edge.export.gguf.writer import check_supported
from hamburger_edge.export.parity.gate import check_parity, verify
from hamburger_edge.models.architecture.config import RopeScaling
from hamburger_edge.models.bases.gguf import load_gguf
from hamburger_edge.runtimes.llamacpp import library as llama_library

gguf = pytest.importorskip("gguf")


def read(path: Path):  # type: ignore[no-untyped-def]
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    return keys, {tensor.name: tensor for tensor in reader.tensors}


def values(tensor) -> np.ndarray:  # type: ignore[no-untyped-def]
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


@pytest.mark.parametrize("rule", ["slot", "token"])
def test_keys_say_what_the_model_is(rule: str) -> None:
    folder, checkpoint = gguf_bundle(position_rule=rule)
    config = checkpoint.model.config
    keys, _ = read(folder / "base.gguf")
    architecture = {"slot": "llama", "token": "paddleocr"}[rule]
    assert keys["general.architecture"] == architecture
    assert keys["hamburger.position_rule"] == rule
    assert keys["hamburger.taps"] == list(config.taps)
    assert keys["hamburger.max_group_tokens"] == config.max_group_tokens
    assert keys["hamburger.draft_vocab"] == checkpoint.model.draft_vocab.tolist()
    assert keys[f"{architecture}.block_count"] == config.base.num_layers
    if rule == "token":
        assert sum(keys["paddleocr.rope.dimension_sections"]) == config.base.head_dim // 2
    exports = {read(folder / file)[0]["hamburger.export"] for file in ("micro_decoder.gguf", "graft.gguf")}
    assert exports == {keys["hamburger.export"]}


def test_a_base_by_slot_is_read_back_as_it_was() -> None:
    folder, checkpoint = gguf_bundle(position_rule="slot", tied_head=False, qkv_bias=True)
    base = load_gguf(folder / "base.gguf")
    state = checkpoint.model.base.state_dict()
    assert base.state.keys() == state.keys()
    assert all(torch.equal(base.state[name], state[name]) for name in state)


def test_the_micro_decoder_is_a_small_model_with_the_draft_vocab_as_vocabulary() -> None:
    folder, checkpoint = gguf_bundle(position_rule="token", tied_head=False)
    model = checkpoint.model
    keys, tensors = read(folder / "micro_decoder.gguf")
    assert keys["general.architecture"] == "llama"
    assert keys["llama.vocab_size"] == len(model.draft_vocab)
    assert "output.weight" not in tensors
    head = model.base.head_weight[model.draft_vocab].detach().numpy()
    assert np.array_equal(values(tensors["token_embd.weight"]), head)


def test_the_graft_is_stored_under_our_names() -> None:
    folder, checkpoint = gguf_bundle(stop_rule="after")
    keys, tensors = read(folder / "graft.gguf")
    state = checkpoint.model.state_dict()
    wanted = {name for name in state if name.startswith(("embedder.", "stop_"))}
    assert tensors.keys() == wanted
    for name in wanted:
        assert np.array_equal(values(tensors[name]), state[name].numpy())
    assert keys["hamburger.merger_heads"] == checkpoint.model.config.merger_heads


@pytest.mark.parametrize(
    ("precision", "matrix", "head", "graft"),
    [
        ("f16", "F16", "F16", "F16"),
        ("q8_0", "Q8_0", "Q8_0", "F16"),
        ("q4_0", "Q4_0", "Q8_0", "F16"),
        ("q4_1", "Q4_1", "Q8_0", "F16"),
    ],
)
def test_types_of_each_precision(precision: str, matrix: str, head: str, graft: str) -> None:
    folder, checkpoint = gguf_bundle(precision, position_rule="slot", intermediate_size=72)
    _, tensors = read(folder / "base.gguf")
    kinds = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    assert kinds["blk.0.attn_q.weight"] == matrix
    assert kinds["token_embd.weight"] == head
    assert kinds["blk.0.attn_norm.weight"] == kinds["output_norm.weight"] == "F32"
    assert kinds["blk.0.ffn_down.weight"] == "F16"  # rows of 72 cannot be cut into blocks of 32
    _, tensors = read(folder / "graft.gguf")
    assert tensors["embedder.key.weight"].tensor_type.name == graft
    table = checkpoint.model.base.embed_tokens.weight.detach().numpy()
    _, tensors = read(folder / "base.gguf")
    assert np.abs(values(tensors["token_embd.weight"]) - table).max() < 0.02 * np.abs(table).max()


def test_onnx_names_of_precisions_mean_the_nearest_type() -> None:
    assert [make_gguf_plan(name).base for name in ("fp32", "fp16", "int8", "int4")] == [
        "f32",
        "f16",
        "q8_0",
        "q4_1",
    ]
    with pytest.raises(InputError, match=r"must be one of f32, .* got 'q3'"):
        make_gguf_plan("q3")


SCALING = RopeScaling(8.0, 1.0, 4.0, 64)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"micro_final_norm": False}, "no final norm"),
        ({"qk_norm": True}, "normalises queries and keys"),
        ({"output_norms": True}, "normalises what its layers add"),
        ({"activation": "gelu_tanh"}, "has the activation gelu_tanh"),
        ({"window": 8, "windowed_layers": (1,)}, "has windows of 8 slots"),
        ({"unrotated_layers": (0,)}, "has layers without rotation"),
        ({"residual_scale": 0.5}, "scales embeddings, residuals, attention or logits"),
        ({"position_rule": "token", "rope_scaling": SCALING}, "no Llama 3 rope scaling"),
    ],
)
def test_what_llama_cpp_cannot_run_is_refused_before_anything_is_written(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"{reason}.*--format onnx"):
        check_supported(toy_config(**changes))
    with pytest.raises(ConfigError, match=reason):
        export(toy_checkpoint(tmp_path / "c", **changes), tmp_path / "b", formats=["gguf"], precision="f32")
    assert not (tmp_path / "b").exists()
    assert not list(tmp_path.glob(".b*"))


@pytest.mark.parametrize("rule", ["slot", "token"])
def test_plain_llama_cpp_runs_the_base_as_an_ordinary_model(rule: str) -> None:
    """Tokens in, logits out; the tokenizer and the template are in the file."""
    llama_cpp = pytest.importorskip("llama_cpp")
    changes = {"rope_scaling": SCALING} if rule == "slot" else {}
    folder, checkpoint = gguf_bundle(position_rule=rule, **changes)
    llama = llama_cpp.Llama(
        str(folder / "base.gguf"), n_ctx=256, n_threads=1, verbose=False, logits_all=True, flash_attn=False
    )
    text = "the cat sat on the mat, héllo 🙂\n  12 x"
    ours = Tokenizer(checkpoint.tokenizer).encode(text)
    assert llama.tokenize(text.encode(), add_bos=False, special=False) == ours
    assert llama.detokenize(ours).decode() == text
    for token in ours:  # one by one: some builds crash in products of several rows
        llama.eval([token])
    model = checkpoint.model
    with torch.inference_mode():
        from hamburger_edge.models.architecture.llama import WholeSequence

        rows = model.base.embed_tokens(torch.tensor([ours]))
        attend = WholeSequence(model.config.base, model.base_rotary(torch.arange(len(ours))[None]))
        wanted = model.base.logits(model.base(rows, attend)[0, :, -1]).numpy()
    assert np.abs(llama.scores[: len(ours)] - wanted).max() < 0.01 * wanted.std()
    answer = llama.create_chat_completion([{"role": "user", "content": "hello"}], max_tokens=4)
    assert answer["usage"]["completion_tokens"] >= 1
    llama.close()


def test_a_byte_fallback_vocabulary_cuts_text_the_same(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    tokenizer = toy_tokenizers.byte_fallback(tmp_path)
    size = Tokenizer(tokenizer).vocab_size
    part = GGUFBuilder(tmp_path / "vocabulary.gguf", "llama", "base", "x")
    part.keys(context_length=8, embedding_length=8, block_count=1, feed_forward_length=8)
    part.keys(attention__head_count=1, attention__layer_norm_rms_epsilon=1e-5)
    add_vocabulary(part, tokenizer, size, (2,))
    part.write()
    llama = llama_cpp.Llama(str(tmp_path / "vocabulary.gguf"), vocab_only=True, verbose=False)
    for text in ("the cat sat", "at the", "héllo 🙂\n"):
        ids = llama.tokenize(text.encode(), add_bos=False, special=False)
        assert ids == Tokenizer(tokenizer).encode(text)
    llama.close()


def test_an_unknown_way_to_cut_text_is_a_warning(tmp_path: Path) -> None:
    tokenizer = toy_tokenizers.byte_level(tmp_path)
    description = json.loads(tokenizer.read_text())
    description["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "invert": False},
            description["pre_tokenizer"],
        ],
    }
    description["model"]["ignore_merges"] = False
    tokenizer.write_text(json.dumps(description))
    size = Tokenizer(tokenizer).vocab_size
    with pytest.warns(HamburgerWarning, match="may tokenize differently"):
        add_vocabulary(GGUFBuilder(tmp_path / "x.gguf", "llama", "base", "x"), tokenizer, size, ())


def test_one_bundle_for_both_runtimes() -> None:
    pytest.importorskip("llama_cpp")
    both, checkpoint = gguf_bundle("fp32", position_rule="slot")
    manifest = load_manifest(both)
    assert manifest.gguf is not None
    assert manifest.gguf.precision.base == "f32"
    files = tuple(file for file in manifest.files if not file.path.endswith(".gguf"))
    graphs_alone = dataclasses.replace(manifest, gguf=None, files=files)
    assert manifest.fingerprint == graphs_alone.fingerprint  # sessions of the graphs stay valid
    assert manifest.gguf_fingerprint != manifest.fingerprint
    texts = []
    for backend in ("onnx", "llamacpp"):
        options = {"kv_cache_dtype": "f32"} if backend == "llamacpp" else {}
        with load(both, backend, threads=1, **options) as model:
            texts.append(model.generate("the cat", max_tokens=12, confidence=0.3).text)
    assert texts[0] == texts[1]
    with pytest.raises(InputError, match=r"compared as run by onnx or llamacpp"):
        check_parity(both, manifest, checkpoint, backend="torch")


@pytest.mark.parametrize("precision", ["f32", "q8_0"])
def test_the_parity_gate_runs_llama_cpp(precision: str) -> None:
    pytest.importorskip("llama_cpp")
    folder, checkpoint = gguf_bundle(precision, position_rule="token", context_length=600)
    report = check_parity(folder, load_manifest(folder), checkpoint, backend="llamacpp")
    assert report.precision == precision
    if precision == "f32":
        assert report.identical == report.prompts
        assert max(graph.relative_error for graph in report.graphs) < 1e-5
    else:
        assert report.logit_error > 0


def test_verify_chooses_the_runtime_that_a_bundle_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, checkpoint = gguf_bundle()
    asked = []
    monkeypatch.setattr("hamburger_edge.export.parity.gate.load_checkpoint", lambda name, half: checkpoint)
    monkeypatch.setattr(
        "hamburger_edge.export.parity.gate.check_parity", lambda *_, backend, progress: asked.append(backend)
    )
    verify(folder)
    assert asked == ["llamacpp"]


def test_files_can_be_written_where_they_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr(llama_library, "_library", lambda: llama_library.Library(False))
    with pytest.warns(HamburgerWarning, match=r"not compared: .*pip install '\.\[llamacpp\]'"):
        export(toy_checkpoint(tmp_path / "c"), tmp_path / "b", formats=["gguf"], precision="f32")
    assert (tmp_path / "b" / "base.gguf").exists()


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Callable[..., None]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle_module, "write_gguf", fail)
    with pytest.raises(Exception, match="No space left"):
        export(toy_checkpoint(tmp_path / "c"), tmp_path / "b", formats=["gguf"], precision="f32")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
