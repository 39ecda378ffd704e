"""Load a model from a folder, and import the package without its extras."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from helpers.scripted_backend import ScriptedBackend, info

import hamburger_edge
from hamburger_edge.bundle import files
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import BundleError, InputError, MissingExtraError


@pytest.fixture
def runtimes(monkeypatch: pytest.MonkeyPatch, tokenizer_path: Path) -> dict[str, Any]:
    """Stand-ins for the three runtimes that note how they were called."""
    called: dict[str, Any] = {}

    def fake(name: str, function: str) -> None:
        def opener(path: Path, *, threads: int = 1) -> Any:
            backend = ScriptedBackend(info(vocab_size=321))
            called.update(name=name, path=path, threads=threads, backend=backend)
            return backend, called.get("tokenizer", tokenizer_path), ChatTemplate()

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


def test_loading_a_cached_bundle_scans_each_graph_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for the bundle once read the graphs, too."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    hamburger_edge.load("tiny", threads=1).close()
    scan, scanned = files.external_files, []

    def counted(path: Path) -> set[str]:
        scanned.append(path.name)
        return scan(path)

    monkeypatch.setattr(files, "external_files", counted)
    hamburger_edge.load("tiny", threads=1).close()
    assert sorted(scanned) == ["base.onnx", "embedder.onnx", "micro_decoder.onnx"]
