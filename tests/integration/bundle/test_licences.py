"""`inspect --licences` prints the licences of the model and of the packages that run it."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import Distribution, version
from pathlib import Path
from typing import Any

import pytest
from helpers.toys.gguf_bundles import gguf_bundle
from helpers.toys.manifests import read_manifest
from helpers.toys.manifests import write_manifest as write

import hamburger_edge.cli.main as cli
from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.licences import licences, licences_text

TERMS = {"LICENSE": "Terms of the base.\n", "NOTICE": "Made from the base.\n"}


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    """A bundle with its base's terms."""
    folder = Path(shutil.copytree(bundle, tmp_path / "copy"))
    for name, text in TERMS.items():
        (folder / name).write_text(text, encoding="utf-8")
    data = read_manifest(folder)
    listed = [{"path": e.path, "bytes": e.bytes, "sha256": e.sha256} for e in file_entries(folder)]
    base = {**data["base"], "name": "a base", "license": "BSD-3-Clause"}
    write(folder, {**data, "base": base, "files": listed})
    return folder


def test_licences_of_base_graft_and_packages_are_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(folder), "--licences", "--json"]) == 0
    entries: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["licences"]
    base, graft, *packages = entries
    assert (base["part"], base["name"], base["licence"]) == ("base", "a base", "BSD-3-Clause")
    assert base["texts"] == TERMS
    assert (graft["part"], graft["texts"]) == ("graft", {})
    assert [package["name"] for package in packages][:4] == [
        "hamburger-edge",
        "numpy",
        "tokenizers",
        "onnxruntime",
    ]
    for package in packages:
        assert package["version"] == version(package["name"])
        assert package["licence"]
        assert package["texts"]
    by_name = {package["name"]: package for package in packages}
    assert "onnxruntime/ThirdPartyNotices.txt" in by_name["onnxruntime"]["texts"]
    assert "NumPy Developers" in by_name["numpy"]["texts"]["LICENSE.txt"]
    assert "Apache License" in by_name["tokenizers"]["texts"]["LICENSE"]  # its package has no file of it


def test_texts_that_are_equal_are_printed_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(folder), "--licences"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("base     a base")
    assert printed.count("Terms of the base.") == 1
    sections = dict(section.split("\n", 1) for section in printed.split("\n==== ")[1:])
    texts = [text.strip() for title, text in sections.items() if title.startswith("tokenizers")]
    assert any(text.startswith("The text of hamburger-edge") for text in texts)  # both: the Apache License
    assert "Made from the base." in printed


def test_package_that_is_missing_or_has_no_text_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, _ = gguf_bundle("q8_0", draft_vocab_size=0)
    assert "onnxruntime" not in {licence.name for licence in licences(alone)}
    assert "llama-cpp-python" in {licence.name for licence in licences(alone)}
    monkeypatch.setattr(Distribution, "discover", classmethod(lambda *_, **__: iter(())))
    lines = licences_text(folder).splitlines()
    assert "package  onnxruntime     not installed here" in lines
