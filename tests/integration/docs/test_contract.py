"""docs/spec/loop.md, taken at its word: what a loop written from it says, its tables against the code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from contract_loop import Loop, Structured
from places import ROOT

import hamburger_edge
from hamburger_edge.bundle.reading import load_manifest

MODES = ("merge", "hybrid")
DOCUMENT = (ROOT / "docs" / "spec" / "loop.md").read_text(encoding="utf-8")


KINDS = {
    "token": {"draft_vocab_size": 100},
    "slot": {"position_rule": "slot", "seed": 1, "stop_rule": "after"},
    "portable": {"flavor": "portable", "draft_vocab_size": 100},
}


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, bundles: Callable[..., Path]) -> Path:
    return bundles(**KINDS[request.param])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that comes with the package, whose micro decoder often agrees with its base."""
    from hamburger_edge import export_checkpoint as export

    return export("tiny", tmp_path_factory.mktemp("trained") / "bundle", precision="fp32", verify=False)


def test_the_loop_written_from_the_document_says_what_the_program_says(folder: Path) -> None:
    loop, lengths = Loop(folder), set()
    with hamburger_edge.load(folder, threads=1, cache_slots=loop.cache_slots) as model:
        for prompt in ("hello", "the cat sat on the mat"):
            tokens = model.encode(prompt)
            for confidence in (0.0, 0.3, 0.4, 0.5, 0.6, 1.0):
                expected = model.generate(
                    tokens, max_tokens=70, mode="merge", confidence=confidence, reuse_prefix=False
                )
                assert loop.forget().answer(tokens, 70, confidence) == expected.groups
                lengths |= set(map(len, expected.groups))
        assert {1, 2, 4} <= lengths
        assert loop.forget().answer(tokens, 70, 1.0, chunk=3) == expected.groups
        full = model.generate(tokens, max_tokens=5000, mode="merge", confidence=0.4, reuse_prefix=False)
        assert full.finish_reason == "context"
        assert loop.forget().answer(tokens, 5000, 0.4) == full.groups


@pytest.mark.parametrize("stop_rule", ["before", "after"])
@pytest.mark.parametrize("rule", ["token", "slot"])
def test_what_is_read_again_is_what_the_program_reads_again(
    stop_rule: str, rule: str, bundles: Callable[..., Path]
) -> None:
    folder = bundles(draft_vocab_size=100, stop_rule=stop_rule, position_rule=rule, stop_bias=-2.5)
    loop, reread, sizes = Loop(folder), 0, set()
    with hamburger_edge.load(folder, threads=1, cache_slots=loop.cache_slots) as model:
        for prompt in ("hello", "the cat sat on the mat"):
            tokens = model.encode(prompt)
            for confidence in (0.0, 0.5, 0.6, 0.7, 0.8, 1.0):
                how = {"mode": "hybrid", "confidence": confidence, "reuse_prefix": False}
                expected = model.generate(tokens, max_tokens=70, **how)
                assert loop.forget().reread(tokens, 70, confidence) == expected.groups
                sizes.add(expected.stats.slots - expected.stats.prompt_tokens < 60)
                reread += expected.stats.reread_tokens
    assert sizes == {True, False}  # merged, and not
    assert reread > 100


def test_a_token_that_is_not_the_highest_ends_the_group_there_too(folder: Path) -> None:
    loop = Loop(folder)
    with hamburger_edge.load(folder, threads=1) as model:
        tokens = model.encode("the cat sat on the mat")
        free = model.generate(tokens, max_tokens=70, mode="merge", confidence=0.3, reuse_prefix=False)
        loop.banned = sorted({group[1] for group in free.groups if len(group) > 1})
        banned = tuple(loop.banned)
        expected = model.generate(
            tokens, max_tokens=70, mode="merge", confidence=0.3, reuse_prefix=False, suppress_tokens=banned
        )
        assert loop.answer(tokens, 70, 0.3) == expected.groups
        assert expected.groups != free.groups
        assert len(expected.groups) > len(free.groups)


def test_a_conversation_feeds_each_answers_last_group_with_the_next_turn(folder: Path) -> None:
    with hamburger_edge.load(folder, threads=1) as model:
        chat, loop = model.chat(max_tokens=21, mode="merge", confidence=0.3), Loop(folder)
        for message in ("hello", "again", "and again"):
            turn = chat._turn(message)
            said = [list(chunk.tokens) for chunk in chat.send(message)]
            assert loop.answer(turn, 21, 0.3) == said


def test_a_trained_model_in_every_mode(trained: Path) -> None:
    with hamburger_edge.load(trained, threads=1) as model:
        loop, lengths, forwards, tokens, reread = Loop(trained), set(), 0, 0, 0
        for question in ("Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"):
            prompt = model.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
            for confidence in (0.5, 0.8):
                expected = model.generate(
                    prompt, mode="merge", confidence=confidence, max_tokens=60, reuse_prefix=False
                )
                assert loop.forget().answer(prompt, 60, confidence) == expected.groups
                lengths |= set(map(len, expected.groups))
                doubtful = model.generate(
                    prompt, confidence=confidence, mode="hybrid", max_tokens=60, reuse_prefix=False
                )
                assert loop.forget().reread(prompt, 60, confidence) == doubtful.groups
                reread += doubtful.stats.reread_tokens
            plain = model.generate(prompt, confidence=1, max_tokens=60)
            verified = loop.forget().answer(prompt, 60, 0.5, verify=True)
            assert [token for group in verified for token in group] == plain.tokens
            forwards, tokens = forwards + len(verified), tokens + len(plain.tokens)
        assert lengths == {1, 2, 3, 4}
        assert forwards < 0.8 * tokens
        assert reread > 0


def test_what_all_answers_begin_with(trained: Path, tmp_path: Path) -> None:
    """Of two questions the opening holds for one."""
    folder = Path(shutil.copytree(trained, tmp_path / "answer_prefix"))
    with hamburger_edge.load(trained, threads=1) as model:
        answer_prefix = model.encode("The capital of Norway")
        assert len(answer_prefix) > 2
    replace(load_manifest(folder), answer_prefix=tuple(answer_prefix)).save(folder)
    with hamburger_edge.load(folder, threads=1) as model:
        loop, begun = Loop(folder), 0
        for question in ("What is the capital of Norway?", "Count from 3 to 12."):
            prompt = model.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
            for confidence in (0.5, 0.9, 1.0):
                for most in (2, len(answer_prefix), 60):
                    asked = {"confidence": confidence, "max_tokens": most, "reuse_prefix": False}
                    expected = {mode: model.generate(prompt, mode=mode, **asked).groups for mode in MODES}
                    assert loop.forget().answer(prompt, most, confidence) == expected["merge"]
                    assert loop.forget().reread(prompt, most, confidence) == expected["hybrid"]
                    begun += expected["hybrid"][0] == answer_prefix[:most]
            plain = model.generate(prompt, confidence=1, max_tokens=60, reuse_prefix=False).tokens
            verified = loop.forget().answer(prompt, 60, 0.5, verify=True)
            assert [token for group in verified for token in group] == plain
            assert (verified[0] == answer_prefix) == (plain[: len(answer_prefix)] == answer_prefix)
    assert begun == 6  # at two confidences, with room for a part of it, for it, and for more


def test_structured_answers_written_from_the_document(folder: Path) -> None:
    loop, lengths = Structured(folder), set()
    with hamburger_edge.load(folder, threads=1) as model:
        tokens, tokenizer = model.encode("the cat sat on the mat"), model.tokenizer.to_json()
        for regex in ("the cat [a-z ]{0,60} sat on the mat[0-9]{2}.", "[0-9a-f]{9} the mat", "[^x]{30}x*"):
            for confidence in (0.0, 0.4, 1.0):
                expected = model.generate(
                    tokens,
                    max_tokens=50,
                    mode="merge",
                    confidence=confidence,
                    reuse_prefix=False,
                    regex=regex,
                )
                loop.start(regex, tokenizer).forget()
                assert loop.structured(tokens, 50, confidence) == expected.groups
                lengths |= set(map(len, expected.groups))
    assert {1, 2} <= lengths


def documented(graph: str) -> list[list[str]]:
    """in or out, name, dtype, shape, when: the rows of a graph's table."""
    section = DOCUMENT.split(f"\n### {graph}\n")[1].split("\n### ")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return [row for row in rows if row[0] in ("in", "out")]


@pytest.mark.parametrize("flavor", ["fused", "portable"])
@pytest.mark.parametrize("rule", ["token", "slot"])
@pytest.mark.parametrize("graph", ["embedder", "base", "micro_decoder"])
def test_the_documents_tables_are_the_graphs_declarations(graph: str, rule: str, flavor: str) -> None:
    from toy_models import toy_config

    from hamburger_edge.export.graphs.signatures import graph_ios

    sizes = {"vocab": 1009, "d": 64, "F": 5, "K": 3, "D": 16, "micro_vocab": 507, "micro_entries": 11}
    base = {"vocab_size": 1009, "hidden_size": 64, "num_layers": 6, "num_heads": 6, "num_kv_heads": 3}
    graft = {"taps": (0, 1, 2, 3), "max_group_tokens": 6, "draft_vocab_size": 507}
    config = toy_config(**base, head_dim=16, **graft, position_rule=rule)
    names = {str(size): name for name, size in sizes.items()} | {"77": "context"}
    kv = "float32" if flavor == "portable" else "int8"
    io = graph_ios(config, cache_slots=77 if flavor == "portable" else 0, kv=kv)[graph]
    declared = [
        [
            way,
            re.sub(r"\.0$", ".N", spec.name),
            spec.dtype.replace("int8", "dtype"),
            f"[{', '.join(names.get(n, n) for n in spec.shape)}]",
        ]
        for way, specs in (("in", io.inputs), ("out", io.outputs))
        for spec in specs
        if not re.search(r"\.[1-9]", spec.name)  # one layer stands for all
    ]
    applies = {
        "always",
        flavor,
        *(["portable, or rule token"] if flavor == "portable" or rule == "token" else []),
    }
    assert declared == [row[:4] for row in documented(graph) if row[4] in applies]
    assert {row[4] for row in documented(graph)} <= {"always", "fused", "portable", "portable, or rule token"}
