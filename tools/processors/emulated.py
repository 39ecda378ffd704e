"""Whole answers, and the core's tests, on processors that are not here, by an emulator of programs: `make
test-arm64`, and `make test-older-x86` for x86-64 without AVX. Sessions saved here are gone on with there.

It takes qemu-user 10 or newer (that of Debian 12, 7.2, ends in ONNX Runtime for arm64 with a segmentation
fault; its backports have a newer one), and debootstrap for arm64's Python.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import bundles

MACHINES = {  # emulator, processor
    "arm64": ("qemu-aarch64", "cortex-a72"),
    "x86-no-avx": ("qemu-x86_64", "Nehalem"),
    "x86-avx2": ("qemu-x86_64", "Haswell"),
}
MIRROR = "http://deb.debian.org/debian"


def root() -> Path:
    """Debian's Python for arm64; nothing of it is run on the way."""
    root = bundles.FOLDER / "arm64"
    if not (root / "usr/bin/python3.11").exists():
        options = ["--arch=arm64", "--foreign", "--variant=minbase", "--include=python3,libstdc++6"]
        subprocess.run(["debootstrap", *options, "bookworm", root, MIRROR], check=True)
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


def site() -> Path:
    site = bundles.FOLDER / "arm64-site"
    if not site.exists():
        tags = [f"--platform=manylinux{tag}_aarch64" for tag in ("_2_28", "_2_27", "_2_17", "2014")]
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), "--only-binary=:all:"]
        command += [*tags, "--python-version=3.11", "--implementation=cp"]
        subprocess.run([*command, "numpy", "onnxruntime", "tokenizers", *bundles.TOOLS], check=True)
    return site


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--answers-only", action="store_true")
    options = parser.parse_args()
    emulator, cpu = MACHINES[options.machine]
    if shutil.which(emulator) is None:
        print(f"{emulator} is not here: apt-get install qemu-user debootstrap")
        return 1
    bundles.make()
    python: bundles.Command = [emulator, "-cpu", cpu]
    packages = None
    if options.machine == "arm64":
        place, packages = root(), site()
        python += ["-L", place, place / "usr/bin/python3.11"]
    else:
        python += [sys.executable]
    good = bundles.answers_alike(python, options.machine, packages)
    good &= options.answers_only or bundles.passes_tests(python, packages)
    print(f"{options.machine}: {'holds' if good else 'does not hold'}")
    return not good


if __name__ == "__main__":
    sys.exit(main())
