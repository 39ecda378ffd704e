"""Damaged files against every reader, each in a process of its own: `make fuzz N=1000 SEED=0`.

A case is right if it ends with a HamburgerError of one line and at most 500 characters, or as if nothing had
been damaged. It is a finding if it crashes, raises anything else, takes too long or over twice the memory, or
says something else where a hash could have known. Hypothesis keeps findings, and tries them first next time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.isolated import Ended, fault, isolated
from helpers.places import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

import hamburger_edge
from hamburger_edge.bundle.manifest import FILE_NAME, content_hash
from hamburger_edge.evaluation.checks import read_prompts
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.training.training_recipe import read_recipe
from hamburger_edge.runtimes.llamacpp import library as llama_library
from hamburger_edge.runtimes.onnx import sessions as onnx_sessions
from hamburger_edge.support.files import sha256
from hamburger_edge.support.folders import made_once

PRELOADED = llama_library, onnx_sessions  # once, and not in every process that is forked

CASES = int(os.environ.get("CASES", "70"))
SECONDS = 10  # of a processor, for each
QUESTION = "What is 7 plus 8?"


@dataclass(frozen=True)
class Target:
    name: str
    folder: str  # of the honest files
    files: tuple[str, ...]  # that may be damaged there
    use: Callable[[Path], str]  # what is said with them; raises a HamburgerError
    seal: Callable[[Path], None] | None = None  # hashes made right again, as by one who means harm
    hashed: bool = False  # without that, every change is noticed, or changes nothing


def make(folder: Path) -> None:
    """The honest files; takes a minute, once."""
    export = hamburger_edge.export_checkpoint
    zoo = Path(hamburger_edge.__file__).parents[1] / "models" / "zoo" / "tiny"
    shutil.copytree(zoo, folder / "checkpoint")
    export("tiny", folder / "bundle", precision="int8", verify=False)
    export("tiny", folder / "gguf", formats=["gguf"], precision="int8", verify=False)
    shutil.copytree(folder / "bundle", folder / "session")
    with hamburger_edge.load(folder / "session") as model:
        chat = model.chat(confidence=0.5, max_tokens=8)
        list(chat.send(QUESTION))
        chat.save(folder / "session" / "talk")
    (folder / "text").mkdir()
    shutil.copy(zoo.with_name("smollm2-135m") / "recipe.toml", folder / "text")
    lines = '{"prompt": "What is 1 plus 1?", "kind": "sum", "check": {"type": "number", "value": 2}}\n' * 4
    (folder / "text" / "prompts.jsonl").write_text(lines)


def _say(folder: Path, backend: str = "onnx") -> str:
    with hamburger_edge.load(folder, backend, verify=True) as model:
        return model.generate(QUESTION, confidence=0.5, max_tokens=8).text


def _say_in_llama_cpp(folder: Path) -> str:
    return _say(folder, "llamacpp")


def _go_on(folder: Path) -> str:
    with hamburger_edge.load(folder, "onnx") as model:
        chat = model.resume(folder / "talk")
        return "".join(chunk.text for chunk in chat.send("And 3 more?"))


def _reading(read: Callable[[Path], object], file: str = "") -> Callable[[Path], str]:
    def use(folder: Path) -> str:
        read(folder / file)
        return ""

    return use


def _seal_session(folder: Path) -> None:
    talk = folder / "talk"
    content = talk.read_bytes()[:-32]
    talk.write_bytes(content + hashlib.sha256(content).digest())


def _seal_bundle(folder: Path) -> None:
    path = folder / FILE_NAME
    try:
        manifest = json.loads(path.read_bytes())
        for entry in manifest["files"]:
            file = folder / entry["path"]
            entry["bytes"], entry["sha256"] = file.stat().st_size, sha256(file)
        manifest["sha256"] = content_hash(manifest)
    except Exception:  # the manifest itself is what was damaged: nothing to make right
        return
    path.write_text(json.dumps(manifest))


GRAPHS = ("base.onnx", "embedder.onnx", "micro_decoder.onnx", "weights.bin")
GGUFS = ("base.gguf", "micro_decoder.gguf", "graft.gguf")
CHECKPOINT = ("hamburger.json", "base.safetensors", "graft.safetensors", "tokenizer.json")
TARGETS = (
    Target("bundle", "bundle", (FILE_NAME, *GRAPHS, "tokenizer.json"), _say, _seal_bundle, hashed=True),
    Target("gguf", "gguf", (FILE_NAME, *GGUFS), _say_in_llama_cpp, _seal_bundle, hashed=True),
    Target("session", "session", ("talk",), _go_on, _seal_session, hashed=True),
    Target("checkpoint", "checkpoint", CHECKPOINT, _reading(load_checkpoint)),
    Target("recipe", "text", ("recipe.toml",), _reading(read_recipe, "recipe.toml")),
    Target("prompts", "text", ("prompts.jsonl",), _reading(read_prompts, "prompts.jsonl")),
)

# -- changes: places are shares of a file's length, or of the values in a JSON text -----------------------

GONE = "(removed)"
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, -(2**64), 0.5, 1e308, "", "x", "../../etc/passwd", "\x00"),
    *("\x1b[2J", "\ud800", "a" * 5000, [], {}, [[]], [0] * 3000, {"a": {"b": {"c": 1}}}, "NaN", "int4"),
)


class Splice(NamedTuple):
    share: float
    length: int
    new: bytes

    def apply(self, data: bytes) -> bytes:
        at = int(self.share * len(data))
        return data[:at] + self.new + data[at + self.length :]


class Edit(NamedTuple):
    share: float
    value: Any

    def apply(self, data: bytes) -> bytes:
        try:
            tree = json.loads(data)
        except ValueError:  # an earlier change to its bytes
            return data
        if nodes := list(_nodes(tree)):
            parent, key = nodes[int(self.share * len(nodes))]
            parent[key] = self.value
            if self.value == GONE:
                del parent[key]
        return json.dumps(tree).encode()


SHARES = st.floats(0, 1, exclude_max=True)
NEW = st.one_of(st.just(b""), st.binary(min_size=1, max_size=8), st.sampled_from([bytes(16), b"\xff" * 8]))
SPLICES = st.builds(Splice, SHARES, st.sampled_from([0, 1, 8, 100, 2000, 1 << 40]), NEW)
EDITS = st.builds(Edit, SHARES, st.sampled_from([*ODD, GONE, GONE, GONE]))


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key or index) of every value; of long lists the beginning, or they would be all of it."""
    keys: list[Any] = []
    if isinstance(tree, dict):
        keys = list(tree)
    elif isinstance(tree, list):
        keys = list(range(min(len(tree), 8)))
    for key in keys:
        yield tree, key
        yield from _nodes(tree[key])


@pytest.fixture(scope="module")
def honest() -> Path:
    return made_once(ROOT / "runs" / "fuzz", make)


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def target(request: pytest.FixtureRequest, honest: Path) -> tuple[Target, Ended]:
    """With what is said with the honest files."""
    target: Target = request.param
    whole = isolated(lambda: target.use(honest / target.folder), 30 * SECONDS)
    assert whole.how == "said", whole.text
    return target, whole


@settings(max_examples=CASES // len(TARGETS))
@given(data=st.data())
def test_damaged_files(target: tuple[Target, Ended], honest: Path, data: st.DataObject) -> None:
    damaged, whole = target
    name = data.draw(st.sampled_from(damaged.files), label="file")
    structured = name.endswith((".json", ".jsonl"))
    kinds = st.one_of(EDITS, EDITS, SPLICES) if structured else SPLICES
    changes = data.draw(st.lists(kinds, min_size=1, max_size=4), label="changes")
    sealed = damaged.seal is not None and data.draw(st.booleans(), label="sealed")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(shutil.copytree(honest / damaged.folder, Path(place) / "files"))
        for change in changes:
            (folder / name).write_bytes(change.apply((folder / name).read_bytes()))
        if damaged.seal is not None and sealed:
            damaged.seal(folder)
        got = isolated(lambda: damaged.use(folder), SECONDS)
    assert fault(got, whole, hashed=damaged.hashed and not sealed) is None
