"""docs/spec/loop.md, taken at its word: its loop in numpy, its tables against the code.

The class Loop uses nothing of this program. What it says must be what the program says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import llguidance
import numpy as np
import onnxruntime as ort
import pytest
from places import ROOT

import hamburger_edge

DOCUMENT = (ROOT / "docs" / "spec" / "loop.md").read_text(encoding="utf-8")


class Cache:
    def __init__(self, graph: dict, entries: int, portable: bool) -> None:
        self.used, self.portable = 0, portable
        self.past = {
            spec["name"]: np.zeros([int(n) if n.isdigit() else entries for n in spec["shape"]], spec["dtype"])
            for spec in graph["inputs"]
            if spec["name"].startswith("past_")
        }

    def run(self, session: ort.InferenceSession, appended: int, **inputs: np.ndarray) -> dict:
        total = self.used + appended
        lengths = {"last_slot": np.int32([total - 1]), "total_slots": np.int32([total])}
        if self.portable:
            lengths = {"used": np.int64([self.used])}
        names = [output.name for output in session.get_outputs()]
        out = dict(zip(names, session.run(names, {**inputs, **lengths, **self.past}), strict=True))
        for name, past in self.past.items():
            if self.portable:
                past[:, :, self.used : total] = out[name.replace("past", "new")]
            else:
                self.past[name] = out[name.replace("past", "present")]
        self.used = total
        return out


class Loop:
    def __init__(self, folder: Path, capacity: int = 300) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        self.model, self.portable = manifest["model"], manifest["flavor"] == "portable"
        self.graphs = {graph["name"]: graph for graph in manifest["graphs"]}
        self.sessions = {
            name: ort.InferenceSession(folder / graph["file"]) for name, graph in self.graphs.items()
        }
        self.capacity = manifest["cache_length"] if self.portable else capacity
        self.cache = Cache(self.graphs["base"], self.capacity, self.portable)
        self.text, self.pending = 0, []
        self.banned: list[int] = []

    def forget(self) -> Loop:
        self.cache.used, self.text, self.pending = 0, 0, []
        return self

    def macro(self, groups: list[list[int]], rows: list[int]) -> dict:
        embedder, positions = self.sessions["embedder"], []
        runs = [np.int64(list(run)) for _, run in groupby(groups, len)]
        embeddings = np.concatenate([embedder.run(None, {"tokens": run})[0] for run in runs])
        for index, group in enumerate(groups):
            self.text += len(group)
            by_token = self.model["position_rule"] == "token"
            positions.append(self.text - 1 if by_token else self.cache.used + index)
        inputs = {"embeddings": embeddings[None], "rows": np.int64(rows), "positions": np.int64([positions])}
        if not any(spec["name"] == "positions" for spec in self.graphs["base"]["inputs"]):
            del inputs["positions"]
        return self.cache.run(self.sessions["base"], len(groups), **inputs)

    def choose(self, logits: np.ndarray, tokens: list[int] | None = None) -> int:
        """`tokens`: what each index stands for"""
        logits = logits.copy()
        logits[self.banned if tokens is None else np.isin(tokens, self.banned)] = -np.inf
        best = int(logits.argmax())
        return best if tokens is None else tokens[best]

    def draft(self, read: dict, row: int, size: int, confidence: float) -> list[int]:
        model, shortlist = self.model, self.model["shortlist"]
        before = model["stop_rule"] == "before"
        group, stop = [self.choose(read["logits"][row])], float(read["p_stop"][row])
        trying = 1 - stop >= (confidence if before else 2 / 3 * confidence)
        while trying and len(group) < size and group[-1] not in model["eos_ids"]:
            given = np.zeros((0, model["hidden_size"]), np.float32)
            if len(group) == 1:
                given = read["features"][row]
                entries = len(model["taps"]) + 1 + model["max_steps"]
                cache = Cache(self.graphs["micro_decoder"], entries, self.portable)
            micro = cache.run(
                self.sessions["micro_decoder"], len(given) + 1, features=given, token=np.int64(group[-1:])
            )
            highest, stop = int(micro["logits"].argmax()), float(micro["p_stop"][0])
            trying = 1 - stop >= confidence
            token = self.choose(micro["logits"], shortlist)
            if (not before and not trying) or token != (highest if shortlist is None else shortlist[highest]):
                break
            group.append(token)
        return group

    def reread(self, read: dict, answer: list[list[int]], confidence: float) -> dict:
        """`answer`: its slots in the cache, which hold it to its end; what was read again replaces them."""
        weights = np.exp(read["logits"][0] - read["logits"][0].max())
        first = next((i for i, group in enumerate(answer) if len(group) > 1), None)
        if weights.max() / weights.sum() >= confidence or first is None:
            return read
        tokens = [token for group in answer[first:] for token in group]
        positions = self.text if self.model["position_rule"] == "token" else self.cache.used
        room = min(self.capacity - self.cache.used, self.model["context_length"] - positions)
        if len(answer) - first + room < len(tokens):
            return read
        self.cache.used, self.text = self.cache.used - len(answer) + first, self.text - len(tokens)
        answer[first:] = [[token] for token in tokens]
        return self.macro(answer[first:], [len(tokens) - 1])

    def answer(
        self,
        prompt: list[int],
        max_tokens: int,
        confidence: float,
        verify: bool = False,
        chunk: int = 256,
        reread: bool = False,
    ) -> list[list[int]]:
        groups, said, row = [*([self.pending] if self.pending else []), *([token] for token in prompt)], [], 0
        held: list[list[int]] = []  # the answer's slots
        for start in range(0, len(groups), chunk):
            part = groups[start : start + chunk]
            read = self.macro(part, [len(part) - 1])
        while True:
            size = 1 if confidence >= 1 else min(self.model["max_steps"], max_tokens - sum(map(len, said)))
            group = self.draft(read, row, size, confidence)
            self.pending = group
            if verify:
                before, text = self.cache.used, self.text
                read, kept = self.macro([[token] for token in group], list(range(len(group)))), 1
                while kept < len(group) and read["logits"][kept - 1].argmax() == group[kept]:
                    kept += 1
                group, self.pending, row = group[:kept], [], kept - 1
                self.cache.used, self.text = before + kept, text + kept
            said.append(group)
            if group[-1] in self.model["eos_ids"] or sum(map(len, said)) == max_tokens:
                return said
            by_token = self.model["position_rule"] == "token"
            position = self.text + len(group) - 1 if by_token else self.cache.used
            if not verify:
                if self.cache.used == self.capacity or position >= self.model["context_length"]:
                    return said
                read = self.macro([group], [0])
                self.pending = []
                held.append(group)
                read = self.reread(read, held, confidence) if reread else read


KINDS = {
    "token": {"shortlist_size": 100},
    "slot": {"position_rule": "slot", "seed": 1, "stop_rule": "after"},
    "portable": {"flavor": "portable", "shortlist_size": 100},
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
    with hamburger_edge.load(folder, threads=1, context=loop.capacity) as model:
        for prompt in ("hello", "the cat sat on the mat"):
            tokens = model.encode(prompt)
            for confidence in (0.0, 0.3, 0.4, 0.5, 0.6, 1.0):
                expected = model.generate(tokens, max_tokens=70, confidence=confidence, reuse_prefix=False)
                assert loop.forget().answer(tokens, 70, confidence) == expected.groups
                lengths |= set(map(len, expected.groups))
                doubtful = model.generate(
                    tokens, max_tokens=70, mode="reread", confidence=confidence, reuse_prefix=False
                )
                assert loop.forget().answer(tokens, 70, confidence, reread=True) == doubtful.groups
        assert {1, 2, 4} <= lengths
        assert loop.forget().answer(tokens, 70, 1.0, chunk=3) == expected.groups
        full = model.generate(tokens, max_tokens=5000, confidence=0.4, reuse_prefix=False)
        assert full.finish_reason == "context"
        assert loop.forget().answer(tokens, 5000, 0.4) == full.groups


def test_a_token_that_is_not_the_highest_ends_the_group_there_too(folder: Path) -> None:
    loop = Loop(folder)
    with hamburger_edge.load(folder, threads=1) as model:
        tokens = model.encode("the cat sat on the mat")
        free = model.generate(tokens, max_tokens=70, confidence=0.3, reuse_prefix=False)
        loop.banned = sorted({group[1] for group in free.groups if len(group) > 1})
        banned = tuple(loop.banned)
        expected = model.generate(tokens, max_tokens=70, confidence=0.3, reuse_prefix=False, banned=banned)
        assert loop.answer(tokens, 70, 0.3) == expected.groups
        assert expected.groups != free.groups
        assert len(expected.groups) > len(free.groups)


def test_a_conversation_feeds_each_answers_last_group_with_the_next_turn(folder: Path) -> None:
    with hamburger_edge.load(folder, threads=1) as model:
        chat, loop = model.chat(max_tokens=21, confidence=0.3), Loop(folder)
        for message in ("hello", "again", "and again"):
            turn = chat._turn(message)
            said = [list(record.tokens) for record in chat.send(message)]
            assert loop.answer(turn, 21, 0.3) == said


def test_a_trained_model_in_trust_and_verify_mode(trained: Path) -> None:
    with hamburger_edge.load(trained, threads=1) as model:
        loop, lengths, forwards, tokens = Loop(trained), set(), 0, 0
        for question in ("Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"):
            prompt = model.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
            for confidence in (0.5, 0.8):
                expected = model.generate(prompt, confidence=confidence, max_tokens=60, reuse_prefix=False)
                assert loop.forget().answer(prompt, 60, confidence) == expected.groups
                lengths |= set(map(len, expected.groups))
            plain = model.generate(prompt, confidence=1, max_tokens=60)
            verified = loop.forget().answer(prompt, 60, 0.5, verify=True)
            assert [token for group in verified for token in group] == plain.tokens
            forwards, tokens = forwards + len(verified), tokens + len(plain.tokens)
        assert lengths == {1, 2, 3, 4}
        assert forwards < 0.8 * tokens


class Structured(Loop):
    """With a grammar, in trust mode."""

    def start(self, regex: str, tokenizer_json: str) -> Structured:
        tokenizer = llguidance.LLTokenizer(
            tokenizer_json, n_vocab=self.model["vocab_size"], eos_token=self.model["eos_ids"]
        )
        self.grammar = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_regex(regex))
        self.run: list[int] = []
        return self

    def forced(self) -> int | None:
        self.run = self.run or self.grammar.compute_ff_tokens()
        return self.run[0] if self.run else None

    def consume(self, token: int) -> None:
        self.run = self.run[1:] if self.run and self.run[0] == token else []
        self.grammar.consume_token(token)

    def allowed(self) -> np.ndarray:
        bits = np.unpackbits(np.frombuffer(self.grammar.compute_bitmask(), np.uint8), bitorder="little")
        return bits[: self.model["vocab_size"]].astype(bool)

    def draft(self, read: dict, row: int, size: int, confidence: float) -> list[int]:
        """Every token of it is consumed."""
        model, before = self.model, self.model["stop_rule"] == "before"
        shortlist = np.array(model["shortlist"] or range(model["vocab_size"]))
        group = [int(np.where(self.allowed(), read["logits"][row], -np.inf).argmax())]
        self.consume(group[0])
        trying = 1 - float(read["p_stop"][row]) >= (confidence if before else 2 / 3 * confidence)
        while (
            trying
            and len(group) < size
            and group[-1] not in model["eos_ids"]
            and not self.grammar.is_stopped()
        ):
            if self.forced() is not None or not self.allowed()[shortlist].any():
                break
            given = np.zeros((0, model["hidden_size"]), np.float32)
            if len(group) == 1:
                given = read["features"][row]
                entries = len(model["taps"]) + 1 + model["max_steps"]
                cache = Cache(self.graphs["micro_decoder"], entries, self.portable)
            micro = cache.run(
                self.sessions["micro_decoder"], len(given) + 1, features=given, token=np.int64(group[-1:])
            )
            highest = int(shortlist[micro["logits"].argmax()])
            trying = 1 - float(micro["p_stop"][0]) >= confidence
            if (not before and not trying) or not self.allowed()[highest]:
                break
            self.consume(highest)
            group.append(highest)
        return group

    def structured(self, prompt: list[int], max_tokens: int, confidence: float) -> list[list[int]]:
        unread, said = [[token] for token in prompt], []
        while True:
            if (token := self.forced()) is not None:
                group = [token]
                self.consume(token)
            else:
                read = self.macro(unread, [len(unread) - 1])
                left = max_tokens - sum(map(len, said))
                size = 1 if confidence >= 1 else min(self.model["max_steps"], left)
                unread, group = [], self.draft(read, 0, size, confidence)
            unread.append(group)
            said.append(group)
            if group[-1] in self.model["eos_ids"] or self.grammar.is_stopped():
                return said
            if sum(map(len, said)) == max_tokens:
                return said


def test_structured_answers_written_from_the_document(folder: Path) -> None:
    loop, lengths = Structured(folder), set()
    with hamburger_edge.load(folder, threads=1) as model:
        tokens, tokenizer = model.encode("the cat sat on the mat"), model.tokenizer.to_json()
        for regex in ("the cat [a-z ]{0,60} sat on the mat[0-9]{2}.", "[0-9a-f]{9} the mat", "[^x]{30}x*"):
            for confidence in (0.0, 0.4, 1.0):
                expected = model.generate(
                    tokens, max_tokens=50, confidence=confidence, reuse_prefix=False, regex=regex
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
    graft = {"taps": (0, 1, 2, 3), "max_steps": 6, "shortlist_size": 507}
    config = toy_config(**base, head_dim=16, **graft, position_rule=rule)
    names = {str(size): name for name, size in sizes.items()} | {"77": "context"}
    kv = "float32" if flavor == "portable" else "int8"
    io = graph_ios(config, context=77 if flavor == "portable" else 0, kv=kv)[graph]
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
