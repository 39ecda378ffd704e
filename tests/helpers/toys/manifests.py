"""Changed manifests of bundles, written with a correct sha256."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.manifest import content_hash


def read_manifest(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text())


def write_manifest(folder: Path, data: Any) -> None:
    sealed = {**data, "sha256": content_hash(data)} if isinstance(data, dict) else data
    (folder / "manifest.json").write_text(json.dumps(sealed))
