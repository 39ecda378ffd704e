"""The weights of a checkpoint by name, float32 in numpy: its base's, changed and folded, and its graft's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import CheckpointError
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.export.quantization.int8_columns import WeightOrigin
from hamburger_edge.models.architecture.rotary import rotary_arrays
from hamburger_edge.models.bases.formats.gguf_file import GGUFFile
from hamburger_edge.models.bases.formats.renaming import hugging_face_names, norm_offset, rename
from hamburger_edge.models.bases.layers import kept_weights
from hamburger_edge.models.bases.sources.fetch import fetch, weights_sha256
from hamburger_edge.models.bases.vocabulary import TABLES, kept_rows
from hamburger_edge.models.checkpoints.arrays import read_arrays, read_stored
from hamburger_edge.models.checkpoints.delta import change, check_delta
from hamburger_edge.models.checkpoints.manifest import BASE, DELTA, GRAFT, MANIFEST, CheckpointManifest
from hamburger_edge.support.progress import Progress
from hamburger_edge.support.strict import read_json

Floats = npt.NDArray[np.float32]
Read = Callable[[str], Floats]


def base_of(checkpoint: Path, manifest: CheckpointManifest, progress: Progress) -> Path | None:
    """The folder or file of the base, fetched where needed; None: it is in the checkpoint."""
    reference = manifest.base
    if reference.kind == "embedded":
        return None
    if reference.kind == "path":
        return checkpoint / str(reference.path)
    where = fetch(str(reference.name), progress=progress)
    if reference.sha256 not in (None, weights_sha256(where)):
        raise CheckpointError(
            f"{where}: not the weights that {checkpoint} was trained on: delete that folder to fetch anew"
        )
    return where


class Weights:
    """Reads are independent of each other: threads may share one of these."""

    def __init__(
        self, checkpoint: Path, manifest: CheckpointManifest, base: Path | None, folds: Folds
    ) -> None:
        self.config, self.folds = manifest.config, folds
        where = checkpoint / BASE if base is None else base
        self.shapes, self.read = _base_weights(where, manifest.config.base.family)
        if layers := manifest.base.layers:
            self.shapes, self.read = _kept(self.shapes, self.read, layers, checkpoint / MANIFEST)
        if manifest.base.cut_vocabulary:
            tokenizer = checkpoint / str(manifest.tokenizer)
            rows = kept_rows(read_json(tokenizer), tokenizer, base and tokenizer_beside(base))
            self.shapes, self.read = _cut(self.shapes, self.read, rows)
        self.delta: dict[str, Floats] = {}
        if (checkpoint / DELTA).exists():
            self.delta = read_arrays(checkpoint / DELTA)
            check_delta(self.delta, self.shapes, checkpoint / DELTA)
        self.graft = read_arrays(checkpoint / GRAFT) if manifest.config.has_graft else {}
        self.draft_vocab = self.graft.pop("draft_vocab", None)

    def __getitem__(self, name: str) -> Floats:
        part, _, rest = name.partition(".")
        if part != "base":
            if name not in self.graft:
                raise CheckpointError(f"the graft has no tensor {name}: make its assembly again")
            return self.graft[name]
        if rest not in self.shapes:
            raise CheckpointError(f"the base has no tensor {rest}: make the assembly again")
        weight = self.read(rest)
        change(weight, rest, self.delta)
        return self.folds.apply(name, weight)

    def rows(self, origin: WeightOrigin) -> Floats:
        weight = self[origin.weight]
        if origin.rows == "all" or self.draft_vocab is None:
            return weight
        if origin.rows == "draft_vocab":
            return weight[self.draft_vocab]
        others = np.ones(len(weight), bool)
        others[self.draft_vocab] = False
        return weight[others]

    def plain(self, name: str, size: int) -> Floats:
        """An array of so many bytes."""
        kind, _, table = name.rpartition("_")
        if table in ("cos", "sin"):  # of positions, for the base and the micro decoder alike
            positions = size // (self.config.base.head_dim * 2)
            cos, sin = rotary_arrays(self.config.base, positions, int(kind.endswith("_window")))
            return cos if table == "cos" else sin
        return self[name]


def _base_weights(where: Path, family: str) -> tuple[dict[str, tuple[int, ...]], Read]:
    """Shapes by our names, and how to read each."""
    if where.is_dir() and (files := sorted(where.glob("*.safetensors"))):
        state: dict[str, Any] = {}
        for file in files:
            for theirs, array in read_stored(file).items():
                if (ours := rename(theirs, hugging_face_names(family))) is not None:
                    state[ours] = array + np.float32(norm_offset(family, ours))
        return _in_memory(state)
    if where.suffix == ".safetensors":
        return _in_memory(read_arrays(where))
    path = where if where.is_file() else next(iter(sorted(where.glob("*.gguf"))), where / "model.gguf")
    gguf = GGUFFile(path)
    names = gguf.our_names()
    shapes = {ours: gguf.tensors[theirs].shape for ours, theirs in names.items()}
    return shapes, lambda name: gguf.weight(name, names[name])


def _kept(
    shapes: dict[str, tuple[int, ...]], read: Read, layers: tuple[int, ...], source: Path
) -> tuple[dict[str, tuple[int, ...]], Read]:
    """Return shapes and reader of the base without its other layers."""
    names = kept_weights(shapes, layers, source)
    return {name: shapes[names[name]] for name in names}, lambda name: read(names[name])


def _cut(
    shapes: dict[str, tuple[int, ...]], read: Read, rows: npt.NDArray[np.int64]
) -> tuple[dict[str, tuple[int, ...]], Read]:
    """Return shapes and reader of the base with these rows of its tables."""
    cut = {name: (len(rows), *shape[1:]) if name in TABLES else shape for name, shape in shapes.items()}
    return cut, lambda name: read(name)[rows] if name in TABLES else read(name)


def tokenizer_beside(base: Path) -> Path:
    return (base if base.is_dir() else base.parent) / "tokenizer.json"


def _in_memory(state: dict[str, Floats]) -> tuple[dict[str, tuple[int, ...]], Read]:
    return {name: array.shape for name, array in state.items()}, lambda name: state[name].copy()
