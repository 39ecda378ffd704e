"""Every peer reads our weights and says what we say at confidence 1, token for token, in float32.

Small bases, random and trained; each peer that is not installed is skipped with its pip command.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.places import environment

pytest.importorskip("torch")
pytest.importorskip("onnx")

from hamburger_edge.benchmarks.contender import Facts, Source
from hamburger_edge.benchmarks.peers import peer_files as peers_weights
from hamburger_edge.benchmarks.peers.programs import PEERS
from hamburger_edge.benchmarks.speed import our_speed as bench_ours
from hamburger_edge.benchmarks.speed.process import Process
from hamburger_edge.benchmarks.weight_bytes import onnx_weight_bytes
from hamburger_edge.errors import HamburgerError, InputError, RuntimeUnavailableError
from hamburger_edge.loading import load
from hamburger_edge.models.checkpoints.built_in import resolve

pytestmark = pytest.mark.slow

TOKENS = 24
EXACT = [name for name, program in PEERS.items() if not program.options.get("precision")]
QUESTIONS = ("Count from 3 to 12.", "List four animals.")
PeerOf = Callable[[str, Source], tuple[Any, Facts]]


@pytest.fixture(scope="module")
def ours(source: Source) -> list[tuple[list[int], tuple[int, ...]]]:
    """Prompts, and our answers one token a step, up to their end."""
    answers = []
    with load(source.bundle, threads=1) as model:
        contender = bench_ours.Ours(source, backend="onnx", model=model)
        for question in QUESTIONS:
            prompt = model.tokenizer.encode_parts(model.template.first_turn(question))
            turn = contender.turn(prompt, TOKENS, "plain")
            ended = [at for at, token in enumerate(turn.tokens) if token in model.info.eos_ids]
            answers.append((prompt, turn.tokens[: (ended[0] + 1) if ended else TOKENS]))
    return answers


@pytest.mark.parametrize("name", EXACT)
def test_peer_generates_our_tokens(name: str, source: Source, ours: Any, peer_of: PeerOf) -> None:
    peer, facts = peer_of(name, source)
    assert facts.precision in ("fp32", "f32")
    for prompt, answer in ours:
        turn = peer.turn(prompt, TOKENS, "")
        assert len(turn.tokens) == TOKENS
        # genai may not say an end token before its time: up to there all are alike
        until = len(answer) - name.startswith("onnxruntime-genai")
        assert turn.tokens[:until] == answer[:until]
        assert turn.ttft_s > 0
        assert turn.decode_s > 0
        if PEERS[name].continues:
            lengths = (1, 5, TOKENS)
            peer.begin(prompt, TOKENS, "")
            tokens, seconds, kv = zip(*(peer.advance(length) for length in lengths), strict=True)
            assert tokens == lengths
            assert 0 <= seconds[0] < seconds[1] < seconds[2]
            assert kv == tuple((len(prompt) + each - 1) * facts.kv_bytes_per_slot for each in lengths)
            assert peer.turn(prompt, TOKENS, "").tokens == turn.tokens  # nothing is left of it
    assert peer.weight_bytes().macro > 1_000_000  # of tiny's 1.1M parameters in four bytes each


def test_lookup_needs_fewer_forwards_for_repeated_text(source: Source, peer_of: PeerOf) -> None:
    (plain, _), (lookup, _) = peer_of("llama.cpp", source), peer_of("llama.cpp-lookup", source)
    prompt = [5, 9, 40, 41, 42] * 4
    one, many = plain.turn(prompt, 40), lookup.turn(prompt, 40)
    assert one.tokens == many.tokens
    assert one.steps == 40 > many.steps
    lookup.draft = lambda text: [1, 2]  # never right: still the same text, one token a forward
    wrong = lookup.turn(prompt, 40)
    assert (wrong.tokens, wrong.steps) == (one.tokens, 40)


@pytest.mark.parametrize("name", [name for name in PEERS if name not in EXACT])
def test_peer_is_measured_at_its_precisions(name: str, source: Source, peer_of: PeerOf) -> None:
    precision = PEERS[name].options["precision"]
    with pytest.raises(InputError, match="float32 only"):
        peer_of(name, source)
    stored = "int8" if precision.startswith(("int4", "q4")) else "int4"
    peer, facts = peer_of(name, dataclasses.replace(source, precision=stored))
    assert facts.precision == precision
    assert len(peer.turn([5, 9, 40, 41], 8, "").tokens) == 8


def test_precision_of_the_bundle_is_measured_once(source: Source) -> None:
    pytest.importorskip("llama_cpp")
    from hamburger_edge.benchmarks.peers.llama_cpp import Llama

    with pytest.raises(InputError, match="another row"):
        Llama(dataclasses.replace(source, precision="int4"), precision="q4_1")


@pytest.mark.parametrize("family", ["qwen2", "untied-llama3-scaling", "gemma3"])
def test_hugging_face_folder_is_read_back_as_the_same_base(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from helpers.toys.toy_bundles import GEMMA, toy_checkpoint

    from hamburger_edge.models.architecture.config import RopeScaling
    from hamburger_edge.models.checkpoints import checkpoint as checkpoints

    changes: dict[str, dict[str, Any]] = {
        "qwen2": {"family": "qwen2", "qkv_bias": True},
        "untied-llama3-scaling": {"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 64), "tied_head": False},
        "gemma3": {**GEMMA, "hidden_size": 64, "embedding_scale": 8.0},
    }
    made = toy_checkpoint(tmp_path / "toy", **changes[family])
    monkeypatch.setattr(checkpoints, "load_checkpoint", lambda *_: made)
    folder = tmp_path / "hf"
    folder.mkdir()
    peers_weights.write_hugging_face(tmp_path, folder)
    base = checkpoints.load_base(folder)
    assert base.config == made.model.config.base
    assert base.eos_ids == made.model.config.eos_ids
    state = made.model.base.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in base.state.items())


def test_tuned_gemma_keeps_the_keys_of_its_gguf_file(tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType
    from helpers.toys.gguf_files import write_gguf
    from helpers.toys.toy_bundles import GEMMA, toy_checkpoint

    from hamburger_edge.benchmarks.peers import base_gguf
    from hamburger_edge.models.bases.loading import load_base

    gemma = {**GEMMA, "family": "gemma3", "hidden_size": 64, "intermediate_size": 64, "embedding_scale": 8.0}
    tuned = toy_checkpoint(tmp_path / "toy", **gemma)
    config, state = tuned.model.config.base, tuned.model.base.state_dict()
    before = {name: tensor * 0 for name, tensor in state.items()}
    original = write_gguf(tmp_path / "model.gguf", config, before, GGMLQuantizationType.Q8_0)
    tuned.manifest["base"] = {"kind": "path", "path": str(original)}
    base_gguf.write_over(base_gguf.own_gguf(tuned), tuned.model, tmp_path / "tuned.gguf")
    old, new = load_base(original), load_base(tmp_path / "tuned.gguf")
    assert new.config == old.config
    assert (new.eos_ids, new.tokenizer) == (old.eos_ids, old.tokenizer)
    assert all((new.state[name] == state[name]).all() for name in new.state)
    tuned.manifest["base"] = {"kind": "path", "path": str(tmp_path / "toy")}
    with pytest.raises(InputError, match="needs the GGUF file"):
        base_gguf.own_gguf(tuned)


def test_converted_files_are_kept_and_not_built_without_time(source: Source, tmp_path: Path) -> None:
    hurried = dataclasses.replace(source, forms=tmp_path, build=False)
    with pytest.raises(InputError, match=r"not built yet: run once without  --quick"):
        peers_weights.hugging_face(hurried)
    made = peers_weights.hugging_face(dataclasses.replace(hurried, build=True))
    before = (made / "model.safetensors").stat().st_mtime_ns
    assert peers_weights.hugging_face(hurried) == made
    assert (made / "model.safetensors").stat().st_mtime_ns == before


def test_grafts_on_one_base_share_converted_files(tmp_path: Path) -> None:
    import shutil

    tiny = resolve("tiny")
    for name in ("a", "b"):
        shutil.copytree(tiny, tmp_path / name / "checkpoint")
    manifest = tmp_path / "b" / "checkpoint" / "hamburger.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"provenance": {"other": "graft"}}))
    a, b = (peers_weights.folder_of(tmp_path / name / "checkpoint") for name in ("a", "b"))
    assert a == b
    weights = tmp_path / "b" / "checkpoint" / "base.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert peers_weights.folder_of(weights.parent) != a


def test_weight_bytes_are_those_read_per_step(source: Source) -> None:
    """tiny in float32: embeddings are gathered once in the embedder, and read whole as the head."""
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

    read = bench_ours.weight_bytes(source.bundle, "onnx")
    model = load_checkpoint("tiny").model
    base = 4 * sum(p.numel() for p in model.base.parameters())
    assert base <= read.macro < 1.1 * base  # the stop head, and tables of angles
    draft_head = 768 * 128
    micro = 4 * (sum(p.numel() for p in model.micro.parameters()) + draft_head)
    assert micro <= read.micro < 1.3 * micro
    merger = 4 * sum(p.numel() for n, p in model.embedder.named_parameters() if "embed_tokens" not in n)
    assert 0.95 * merger <= read.embed <= 1.05 * merger


def test_embedding_tables_are_not_counted_as_read(tmp_path: Path) -> None:
    """A table that is reshaped first is still only gathered from; one that is also multiplied is read."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    sizes = {"table": (10, 4), "head": (10, 4), "linear": (4, 4)}
    weights = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in sizes.items()]
    shape = numpy_helper.from_array(np.array([10, 4], np.int64), "shape")
    nodes = [
        helper.make_node("Reshape", ["table", "shape"], ["rows"]),
        helper.make_node("Gather", ["rows", "token"], ["a"]),
        helper.make_node("MatMul", ["a", "linear"], ["b"]),
        helper.make_node("Gather", ["head", "token"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["e"]),
        helper.make_node("Transpose", ["head"], ["turned"]),
        helper.make_node("MatMul", ["e", "turned"], ["logits"]),
    ]
    token = helper.make_tensor_value_info("token", TensorProto.INT64, [1])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "toy", [token], [logits], [*weights, shape])
    save(helper.make_model(graph), tmp_path / "toy.onnx")
    assert onnx_weight_bytes(tmp_path / "toy.onnx") == 4 * (10 * 4 + 4 * 4)


def test_contender_runs_in_a_separate_process(monkeypatch: pytest.MonkeyPatch, source: Source) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    process = Process("helpers.bench_contender:Contender", source, {})
    try:
        assert process.load().precision == "fp32"
        before, peak = process.usage()
        assert before > 0
        assert process.turn([1, 2], 5, "").tokens == (0, 1, 2, 3, 4)
        process.ask("hold", 64 << 20)
        _, later = process.usage()
        assert peak is not None
        assert later is not None
        assert later - peak > 60  # MB
        with pytest.raises(HamburgerError, match=r"^ValueError: first line$"):
            process.ask("fail")
        assert process.turn([1], 2, "").tokens == (0, 1)  # it goes on
        with pytest.raises(RuntimeUnavailableError, match=r"its process ended \(SIGKILL\) in die"):
            process.ask("die", int(signal.SIGKILL))
    finally:
        process.close()
    process.close()
