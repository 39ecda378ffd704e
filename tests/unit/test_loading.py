"""Load a model from a folder, and import the package without its extras."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.scripted_backend import ScriptedBackend, info

import hamburger_edge
from hamburger_edge.bundle import files
from hamburger_edge.bundle.manifest import GraphSpec
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import BundleError, InputError, MissingExtraError
from hamburger_edge.loading import find_bundle
from hamburger_edge.runtimes.onnx import onnx_backend, sessions
from hamburger_edge.support.background import Background


@pytest.fixture
def runtimes(monkeypatch: pytest.MonkeyPatch, tokenizer_path: Path) -> dict[str, Any]:
    """Stand-ins for the three runtimes that note how they were called."""
    called: dict[str, Any] = {}

    def fake(name: str, function: str) -> None:
        def opener(path: Path, *, threads: int = 1) -> Any:
            backend = ScriptedBackend(info(vocab_size=321))
            called.update(name=name, path=path, threads=threads, backend=backend)
            tokenizer = Background(lambda: Tokenizer(called.get("tokenizer", tokenizer_path)))
            return backend, tokenizer, ChatTemplate()

        module = types.ModuleType(name)
        setattr(module, function, opener)
        monkeypatch.setitem(sys.modules, f"hamburger_edge.runtimes.{name}.{name}_backend", module)

    fake("torch", "open_checkpoint")
    fake("onnx", "open_bundle")
    fake("llamacpp", "open_bundle")
    return called


@pytest.mark.parametrize(
    ("files", "backend", "opened"),
    [
        (["hamburger.json"], "auto", "torch"),
        (["manifest.json", "base.gguf"], "auto", "llamacpp"),
        (["manifest.json", "base.gguf", "base.onnx"], "auto", "onnx"),
        (["manifest.json", "base.gguf", "base.onnx"], "llamacpp", "llamacpp"),
    ],
)
def test_load_chooses_the_runtime_by_the_folder(
    tmp_path: Path, runtimes: dict[str, Any], files: list[str], backend: str, opened: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with hamburger_edge.load(str(tmp_path), backend=backend, threads=2) as model:
        assert model.generate("hi", max_tokens=2).tokens
    assert (runtimes["name"], runtimes["path"], runtimes["threads"]) == (opened, tmp_path, 2)


def test_load_accepts_built_in_checkpoints(
    tmp_path: Path, runtimes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hamburger_edge.load("tiny", "torch").close()
    assert (runtimes["name"], runtimes["path"].name) == ("torch", "tiny")
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    hamburger_edge.load("tiny").close()  # one name, one thing: the bundle
    assert (runtimes["name"], runtimes["path"].parent) == ("onnx", tmp_path / "home" / "bundles")
    (tmp_path / "tiny").mkdir()  # a folder of that name comes first
    with pytest.raises(BundleError, match=r"neither .* nor"):
        hamburger_edge.load("tiny")


def test_load_refuses_other_folders(tmp_path: Path, runtimes: dict[str, Any]) -> None:
    with pytest.raises(BundleError, match="hamburger-edge export"):
        hamburger_edge.load(tmp_path / "missing")
    with pytest.raises(BundleError, match=r"neither .* nor"):
        hamburger_edge.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(BundleError, match="a file, not a folder"):
        hamburger_edge.load(tmp_path / "manifest.json")
    with pytest.raises(
        BundleError, match=r"no built-in model of that name \(.*tiny.*\): did you mean tiny\?"
    ):
        hamburger_edge.load("tinny")
    with pytest.raises(InputError, match=r"'torch'.*onnx or llamacpp"):
        hamburger_edge.load(tmp_path, backend="torch")
    with pytest.raises(InputError, match=r"unknown option 'provider' .*known: threads"):
        hamburger_edge.load(tmp_path, provider="cpu")
    runtimes["tokenizer"] = tmp_path / "missing.json"
    with pytest.raises(BundleError, match="tokenizer"):
        hamburger_edge.load(tmp_path)
    assert runtimes["backend"].closed  # nothing stays open behind an error


@pytest.mark.parametrize(
    ("module", "file", "wanted"),
    [("onnxruntime", "manifest.json", "."), ("torch", "hamburger.json", "'.[export]'")],
)
def test_missing_package_error_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, file: str, wanted: str
) -> None:
    (tmp_path / file).write_text("{}")
    for name in [name for name in sys.modules if name.startswith("hamburger_edge.runtimes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape(f"{module} is not installed")) as error:
        hamburger_edge.load(tmp_path)
    assert f"pip install {wanted} " in str(error.value)


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder with the bundle of `tiny`."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HAMBURGER_EDGE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield find_bundle("tiny").parents[1]


def test_loading_a_cached_bundle_scans_each_graph_once_and_hashes_no_file(
    warm_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for the bundle once read the graphs, too."""
    scan, scanned = files.external_files, []
    monkeypatch.setattr(files, "sha256", lambda path: pytest.fail(f"{path} was hashed"))

    def counted(path: Path) -> set[str]:
        scanned.append(path.name)
        return scan(path)

    monkeypatch.setattr(files, "external_files", counted)
    hamburger_edge.load("tiny", threads=1).close()
    assert sorted(scanned) == ["base.onnx", "embedder.onnx", "micro_decoder.onnx"]


def test_tokenizer_is_read_while_the_base_is_opened(
    warm_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start once read one after the other."""
    begun, graphs = threading.Event(), list[str]()

    def open_graph(folder: Path, graph: GraphSpec, *arguments: Any, **options: Any) -> Any:
        graphs.append(graph.name)
        assert begun.wait(60), "the tokenizer waits for the graphs"
        return sessions.open_graph(folder, graph, *arguments, **options)

    def read(path: Path) -> Tokenizer:
        begun.set()
        return Tokenizer(path)

    monkeypatch.setattr(onnx_backend, "open_graph", open_graph)
    monkeypatch.setattr(onnx_backend, "Tokenizer", read)
    hamburger_edge.load("tiny", threads=1).close()
    assert graphs[0] == "base"


ANSWER = """
import sys
from hamburger_edge.cli.main import main
assert main(["run", "tiny", "hi", "--max-tokens", "2", "--threads", "1"]) == 0
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_answer_imports_only_what_it_needs(warm_cache: Path) -> None:
    """A first answer once imported a mail parser, for the version, and the assembly of bundles."""
    answer = subprocess.run([sys.executable, "-c", ANSWER], check=True, capture_output=True, text=True)
    modules = set(answer.stderr.split())
    unused = {"asyncio", "concurrent", "email", "importlib.metadata", "logging", "subprocess", "tomllib"}
    parts = {f"hamburger_edge.{part}" for part in ("benchmarks", "evaluation", "export", "serve", "tuning")}
    assert "hamburger_edge.runtimes.onnx.onnx_backend" in modules
    assert modules & (unused | parts) == set()
