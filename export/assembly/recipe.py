"""Where every byte of a bundle's weights.bin comes from: `recipe.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hamburger_edge.errors import CheckpointError
from hamburger_edge.export.quantization.int8_columns import WeightOrigin
from hamburger_edge.support.strict import from_mapping, read_json

RECIPE, STORED = "recipe.json", "stored.bin"
WEIGHTS = "weights.bin"  # of the bundle
FORMAT = 2


@dataclass(frozen=True)
class Tile:
    width: int  # columns
    values: int  # offset in weights.bin
    scales: int | None  # None: they are inside the graph


@dataclass(frozen=True)
class Product:
    """The columns of some weights, side by side, and the tiles that they are cut into."""

    origins: tuple[WeightOrigin, ...]
    tiles: tuple[Tile, ...]
    in_rows: bool = False  # tiles [n, K] instead of [K, n]


@dataclass(frozen=True)
class TokenTable:
    """Token embeddings, rows of 8 bits."""

    origin: WeightOrigin
    values: int
    scales: int


@dataclass(frozen=True)
class Plain:
    """A float32 array: a weight, or rows of a rotary table (base_cos, base_sin)."""

    name: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Stored:
    """Bytes that the recipe has no other source for, one part of stored.bin after another."""

    offset: int
    bytes: int


@dataclass(frozen=True)
class AssemblyRecipe:
    format: int
    bytes: int  # of weights.bin
    products: tuple[Product, ...]
    tables: tuple[TokenTable, ...]
    plain: tuple[Plain, ...]
    stored: tuple[Stored, ...]
    folds: dict[str, str]  # of norms: `Folds`

    def save(self, folder: Path) -> None:
        text = json.dumps(asdict(self), separators=(",", ":"))
        (folder / RECIPE).write_text(text + "\n", encoding="utf-8")


def read_recipe(folder: Path) -> AssemblyRecipe:
    data = read_json(folder / RECIPE)
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder / RECIPE}: format {data.get('format')!r}, this version reads {FORMAT}: make it again "
            "with  hamburger-edge export --assembly"
        )
    recipe: AssemblyRecipe = from_mapping(AssemblyRecipe, data, str(folder / RECIPE))
    return recipe
