"""GGUF files have the model's figures, read back by the gguf package and by llama.cpp."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from helpers.toys import toy_tokenizers
from helpers.toys.exports import export
from helpers.toys.gguf_bundles import gguf_bundle
from helpers.toys.toy_bundles import toy_checkpoint
from helpers.toys.toy_models import toy_config

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError, HamburgerWarning
from hamburger_edge.export.gguf.tensors import GGUFBuilder
from hamburger_edge.export.gguf.vocabulary import add_vocabulary
from hamburger_edge.export.gguf.writer import check_supported
from hamburger_edge.export.parity.gate import verify
from hamburger_edge.models.architecture.config import RopeScaling
from hamburger_edge.models.architecture.llama import WholeSequence
from hamburger_edge.runtimes.llamacpp import library as llama_library

SCALING = RopeScaling(8.0, 1.0, 4.0, 64)


@pytest.mark.parametrize(
    ("precision", "changes"),
    [
        ("f32", {"position_rule": "token", "tied_head": False, "merge_residual": "last"}),
        ("f32", {"position_rule": "slot", "qkv_bias": True, "stop_rule": "after", "rope_scaling": SCALING}),
        ("q8_0", {"position_rule": "token", "context_length": 600}),
    ],
    ids=["token", "slot", "q8_0"],
)
def test_the_parity_gate_runs_llama_cpp(
    precision: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp")
    folder, checkpoint = gguf_bundle(precision, **changes)
    monkeypatch.setattr("hamburger_edge.export.parity.gate.load_checkpoint", lambda name, half: checkpoint)
    report = verify(folder)
    assert report.precision == precision
    if precision == "f32":
        assert report.identical == report.prompts
        assert max(graph.relative_error for graph in report.graphs) < 1e-5
    else:
        assert report.logit_error > 0


@pytest.mark.parametrize(
    ("precision", "matrix", "head"),
    [("fp16", "F16", "F16"), ("int8", "Q8_0", "Q8_0"), ("q4_0", "Q4_0", "Q8_0"), ("int4", "Q4_1", "Q8_0")],
)
def test_types_of_each_precision(precision: str, matrix: str, head: str) -> None:
    """Names of graphs' precisions mean the nearest type."""
    folder, _ = gguf_bundle(precision, position_rule="slot", intermediate_size=72)
    kinds = {
        tensor.name: tensor.tensor_type.name
        for file in ("base.gguf", "graft.gguf")
        for tensor in gguf.GGUFReader(folder / file).tensors
    }
    assert kinds["blk.0.attn_q.weight"] == matrix
    assert kinds["token_embd.weight"] == head
    assert kinds["blk.0.attn_norm.weight"] == kinds["output_norm.weight"] == "F32"
    assert kinds["blk.0.ffn_down.weight"] == "F16"  # rows of 72 cannot be cut into blocks of 32
    assert kinds["embedder.key.weight"] == "F16"


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
def test_what_llama_cpp_cannot_run_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"{reason}.*--format onnx"):
        check_supported(toy_config(**changes))


def test_plain_llama_cpp_runs_the_base_as_an_ordinary_model() -> None:
    """Tokens in, logits out; the tokenizer and the template are in the file."""
    llama_cpp = pytest.importorskip("llama_cpp")
    folder, checkpoint = gguf_bundle(position_rule="slot", rope_scaling=SCALING)
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
    description = {**json.loads(tokenizer.read_text()), "pre_tokenizer": {"type": "Whitespace"}}
    tokenizer.write_text(json.dumps(description))
    size = Tokenizer(tokenizer).vocab_size
    with pytest.warns(HamburgerWarning, match="may tokenize differently"):
        add_vocabulary(GGUFBuilder(tmp_path / "x.gguf", "llama", "base", "x"), tokenizer, size, ())


def test_files_can_be_written_where_they_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr(llama_library, "_library", lambda: llama_library.Library(False))
    with pytest.warns(HamburgerWarning, match=r"not compared: .*pip install '\.\[llamacpp\]'"):
        export(toy_checkpoint(tmp_path / "c"), tmp_path / "b", formats=["gguf"], precision="f32")
    assert (tmp_path / "b" / "base.gguf").exists()
