"""Write the folder `assembly` of a checkpoint after an export: all that assembling needs but the weights."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.export.assembly.recipe import (
    FORMAT,
    STORED,
    WEIGHTS,
    AssemblyRecipe,
    Plain,
    Product,
    Stored,
    Tile,
    TokenTable,
)
from hamburger_edge.export.graphs.weight_file import WeightFile, bytes_of
from hamburger_edge.export.quantization.column_forms import ColumnForm, TableForm, TiedForm
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.checkpoints.manifest import PARTS
from hamburger_edge.support.folders import publish


def recipe_of(
    forms: Iterable[nn.Module], model: Hamburger, folds: Folds, weights: WeightFile
) -> AssemblyRecipe:
    """Find the sources of all spans of a finished weights file, by their bytes."""
    lengths: dict[int, int] = {}  # offset -> bytes of tensors with a source

    def place(tensor: Tensor) -> int | None:
        data = bytes_of(tensor)
        offset = weights.find(data)
        if offset is not None:
            lengths[offset] = max(lengths.get(offset, 0), len(data))
        return offset

    products, tables, plain = [], [], []
    known: set[Tile] = set()  # of a head that another one begins with
    for form in forms:
        if isinstance(form, ColumnForm):
            places = [(len(scales), place(values), place(scales)) for values, scales in form.stored]
            tiles = tuple(Tile(n, values, scales) for n, values, scales in places if values is not None)
            if len(tiles) == form.count and not known.issuperset(tiles):
                known.update(tiles)
                products.append(Product(form.origins, tiles, form.in_rows))
                if isinstance(form, TiedForm):
                    for whole, _ in form.wholes:
                        place(whole)
        elif isinstance(form, TableForm):
            offsets = place(form.values), place(form.scales)
            if offsets[0] is not None and offsets[1] is not None:
                tables.append(TokenTable(form.origins[0], offsets[0], offsets[1]))
    for name, tensor in _arrays(model, folds):
        if (offset := place(tensor)) is not None:
            plain.append(Plain(name, offset, tensor.numel() * 4))
    stored = tuple(
        Stored(offset, length) for offset, length in sorted(weights.spans) if lengths.get(offset, 0) < length
    )
    return AssemblyRecipe(
        FORMAT, weights.size, tuple(products), tuple(tables), tuple(plain), stored, folds.to_json()
    )


def _arrays(model: Hamburger, folds: Folds) -> Iterator[tuple[str, Tensor]]:
    """Yield arrays that a graph may store in float32: vectors, small matrices, rotary tables."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        table = name.endswith(("_cos", "_sin"))
        if tensor.dtype == torch.float32 and (tensor.ndim == 1 or table or tensor.numel() < 1 << 16):
            yield name, torch.from_numpy(folds.apply(name, tensor.detach().numpy()))


def write_parts(bundle: Path, manifest: Manifest, recipe: AssemblyRecipe, checkpoint: Path) -> Path:
    """Replace the folder `assembly` of a checkpoint as a whole. `bundle` lacks only its manifest."""
    folder = checkpoint / PARTS
    partial = folder.with_name(f".{PARTS}.{secrets.token_hex(4)}.partial")
    try:
        partial.mkdir()
        for graph in manifest.graphs:
            shutil.copyfile(bundle / graph.file, partial / graph.file)
        recipe.save(partial)
        if recipe.stored:
            with open(bundle / WEIGHTS, "rb") as weights, open(partial / STORED, "wb") as kept:
                for span in recipe.stored:
                    weights.seek(span.offset)
                    kept.write(weights.read(span.bytes))
        manifest.save(partial)
        publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder
