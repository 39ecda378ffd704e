"""Bring a base model into the cache folder: downloaded, verified, unpacked, and complete or absent.

<home>/bases/<name>/        one folder a base; `fetched.json` lists its files, sizes and sha256
<home>/bases/.<name>.partial/   a fetch at work, or what a killed one left for the next to go on from
<home>/bases/.<name>.lock       held while fetching, so that a second process waits
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hamburger_edge.errors import FetchError
from hamburger_edge.models.bases import hub, wheels
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import locked, sha256
from hamburger_edge.support.folders import publish
from hamburger_edge.support.progress import Progress, unheard

RECORD, RECORD_FORMAT = "fetched.json", 1  # a new format makes old folders be fetched again


def known_bases() -> str:
    """What may be asked for, for messages."""
    return f"{', '.join(wheels.BASES)}, {hub.PATTERN}"


def is_fetched(name: str) -> bool:
    """Whether a base of this name is one to `fetch`, not a path."""
    return name in wheels.BASES or name.startswith(hub.PREFIX)


def base_folder(name: str) -> Path:
    """Where `fetch(name)` puts a base, whether or not it is there yet."""
    if name.startswith(hub.PREFIX):
        wanted = hub.parse(name)
        moving = cache_folder() / "bases" / wanted.folder_name(pinned=False)
        # fetched as the newest, and still what this name pins
        if wanted.revision and read_record(moving).get("commit") == wanted.revision:
            return moving
        return cache_folder() / "bases" / wanted.folder_name()
    if name not in wheels.BASES:
        raise FetchError(f"unknown base {name!r}: known are {known_bases()}")
    return cache_folder() / "bases" / name


def fetch(name: str, *, progress: Progress | None = None, verify: bool = False) -> Path:
    """The folder of a base, downloaded where needed; `verify` reads every file again and compares sha256.

    Instant when it is already there. A folder whose files changed is fetched anew, from the commit that it
    came from.
    """
    report = progress or unheard
    folder = base_folder(name)
    if is_complete(folder, verify=verify, progress=report):
        return folder
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


def pinned_name(name: str, folder: Path) -> str:
    """A name under which these very files are fetched again: a base of the hub's with its commit."""
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
    """What identifies a fetched base: the recorded sha256 of its weights, or of its shards'."""
    files = read_record(folder)["files"]
    digests = [files[name]["sha256"] for name in sorted(files) if name.endswith((".gguf", ".safetensors"))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_record(folder: Path) -> dict[str, Any]:
    """What `fetch` wrote about a folder; nothing where there is none of this format."""
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
