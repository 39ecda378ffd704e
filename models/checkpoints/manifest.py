"""`hamburger.json`, the manifest of a checkpoint folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.support.strict import from_mapping, read_json

MANIFEST, FORMAT = "hamburger.json", 1
GRAFT, DELTA, BASE = "graft.safetensors", "base_delta.safetensors", "base.safetensors"
PARTS = "assembly"  # folder with the files that make a bundle without PyTorch
LIGHTNING = ".ckpt"  # suffix of the paper authors' checkpoints, which are files
# of older versions: the draft index stores how answers begin, and a model that merges nothing has no graft
_FORMER_FIELDS = {"answer_prefix", "merges"}


@dataclass(frozen=True)
class BaseReference:
    """The source of the base's weights."""

    kind: Literal["embedded", "fetch", "path"]
    name: str | None = None  # fetch: its name for `hamburger-edge fetch`
    sha256: str | None = None  # fetch: of its weights file; path: of its weights
    path: str | None = None  # path: relative to the checkpoint, or absolute
    layers: tuple[int, ...] = ()  # fetch, path: the layers that are kept, numbered anew; (): all
    cut_vocabulary: bool = False  # fetch, path: only the tokens of the checkpoint's tokenizer are kept


@dataclass(frozen=True)
class CheckpointManifest:
    format: int
    config: HamburgerConfig
    base: BaseReference
    tokenizer: str | None = None  # a file in the folder; None: the base's
    chat_template: dict[str, Any] | None = None  # opaque here: `ChatTemplate.to_json()`
    provenance: dict[str, Any] = field(default_factory=dict)  # free text and numbers
    license: dict[str, Any] = field(default_factory=dict)  # "graft" and "base"
    recommended: dict[str, Any] | None = None  # opaque here: the `loop.backend.Recommended` of its bundles
    certainty: dict[str, Any] | None = None  # opaque here: the `loop.certainty.Certainty` of its bundles
    recommended_precision: Literal["int4", "int8", "fp16", "fp32"] | None = None  # of exports that name none
    edits_prompt: bool = False  # its answers are its prompts put right, and are held to that
    copied_fields: tuple[str, ...] = ()  # of JSON answers or calls: their strings are spans of the prompt
    tools: tuple[dict[str, Any], ...] = ()  # functions that its answers call; opaque here: catalogue's JSON

    def to_json(self) -> dict[str, Any]:
        """Return the file's content."""
        base = {key: value for key, value in asdict(self.base).items() if value not in (None, (), False)}
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self) | {"base": base}))
        optional = ("recommended", "certainty", "recommended_precision")
        for name in (*optional, "edits_prompt", "copied_fields", "tools"):
            if not plain[name]:
                del plain[name]
        return plain


def is_lightning(source: str | Path) -> bool:
    return Path(source).suffix == LIGHTNING


def read_manifest(path: Path) -> CheckpointManifest:
    data = read_json(path)
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: format {data.get('format')!r}, this version reads {FORMAT}: upgrade hamburger-edge"
        )
    only_drafts = isinstance(data, dict) and data.get("merges") is False  # the graft of an older version
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name not in _FORMER_FIELDS}
    manifest: CheckpointManifest = from_mapping(CheckpointManifest, data, str(path))
    if only_drafts:
        plain = HamburgerConfig.plain(manifest.config.base, manifest.config.eos_ids)
        manifest = replace(manifest, config=plain)
    needed = {"fetch": manifest.base.name, "path": manifest.base.path}.get(manifest.base.kind, "")
    if needed is None:
        raise CheckpointError(f"{path}: base of kind {manifest.base.kind!r} has no name or path")
    if manifest.base.kind == "embedded" and manifest.base.layers:
        raise CheckpointError(f"{path}: an embedded base holds only its own layers: delete base.layers")
    if manifest.base.cut_vocabulary and (manifest.base.kind == "embedded" or manifest.tokenizer is None):
        raise CheckpointError(
            f"{path}: base.cut_vocabulary needs a base elsewhere and a tokenizer here: "
            "delete base.cut_vocabulary"
        )
    if manifest.tokenizer is not None and Path(manifest.tokenizer).name != manifest.tokenizer:
        raise CheckpointError(f"{path}: tokenizer {manifest.tokenizer!r} is not a plain file name")
    return manifest
