"""The built-in models as bundles, exported once and kept in the cache folder."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.support.terminal import ProgressBar


def built_in_bundle(name: str, precision: str | None = None, flavor: str = "fused") -> Path:
    """Of this version and these weights; exported where there is none yet."""
    from hamburger_edge import __version__
    from hamburger_edge.exporting import export_checkpoint
    from hamburger_edge.models.checkpoints.built_in import NAMES
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint, resolve
    from hamburger_edge.support.cache import cache_folder

    def weights_digest(folder: Path) -> str:
        kinds = (".json", ".jsonl", ".safetensors")
        files = [path for path in sorted(folder.iterdir()) if path.suffix in kinds]
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    if name not in NAMES:
        raise InputError(
            f"{name!r} is not built in ({', '.join(NAMES)} are): for a checkpoint of your own  "
            f"hamburger-edge export {name} -o bundle"
        )
    precision = precision or ("int8" if name == "tiny" else "int4")  # narrow layers suffer most from int4
    kind = precision if flavor == "fused" else f"{flavor}-{precision}"
    bundle = cache_folder() / "bundles" / f"{name}-{kind}"
    stamp = bundle.with_name(f"{bundle.name}.stamp")  # which checkpoint and version the bundle was made by
    identity = f"{__version__} {weights_digest(resolve(name))}"
    readable = _readable(bundle)
    if _stamped(stamp) != identity or not readable:
        print(f"exporting {name} ({kind}) to {bundle}")
        with ProgressBar() as progress:
            checkpoint = load_checkpoint(name, progress=progress)
            if not readable:  # damaged; what is in this folder is ours
                shutil.rmtree(bundle, ignore_errors=True)
            export_checkpoint(
                checkpoint, bundle, precision=precision, flavor=flavor, force=True, progress=progress
            )
        stamp.write_text(identity, encoding="utf-8")
    return bundle


def _readable(bundle: Path) -> bool:
    """Whole, and of a format that this program reads."""
    try:
        check_files(bundle, load_manifest(bundle))
    except BundleError:
        return False
    return True


def _stamped(stamp: Path) -> str | None:
    try:
        return stamp.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
