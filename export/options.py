"""The options of an export: every option with its default, and every check, in one place.

Importing this is light: nothing that exporting needs comes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from hamburger_edge.bundle.manifest import KV_TYPES, PRECISIONS, gguf_precision
from hamburger_edge.errors import ConfigError, InputError, one_line
from hamburger_edge.support.strict import read_toml
from hamburger_edge.support.values import among, flag, safe_repr, whole_in

FORMATS = ("onnx", "gguf")
FLAVORS = ("fused", "portable")
PREFERENCES = ("accuracy", "speed")
# What `precision` may be of an export; "int4-fast" is coarser than "int4", and faster (fused graphs only).
PRESETS = ("int4", "int4-fast", "int8", "fp16", "fp32")
CACHE_LENGTH, SHORTEST_CACHE = 2048, 64  # slots of a portable cache; the parity gate needs some room
BLOCK_SIZES = (16, 32, 64, 128, 256)
CHOICES = {
    "flavor": FLAVORS,
    "keep_head": PRECISIONS,
    "prefer": PREFERENCES,
    "kv_cache_dtype": tuple(KV_TYPES),
}


@dataclass(frozen=True)
class ExportOptions:
    """How a checkpoint becomes a bundle. What contradicts itself is an InputError that says the way out."""

    # what is written: "onnx" (graphs), "gguf" (files for llama.cpp), or both
    formats: tuple[str, ...] = ("onnx",)
    # the graphs' operators: ONNX Runtime's own ("fused"), or standard ones only ("portable"), which
    # accelerators know, with a coarser int4 and a cache of float32
    flavor: Literal["fused", "portable"] = "fused"
    # of all weights, but for what a precision leaves at more bits: a name of graphs, or one of GGUF files
    precision: str = "int4"
    # of the GGUF files, where both are written; None: what comes nearest to `precision`
    gguf_precision: str | None = None
    # weights of graphs that share a scale; None: 64, and what each precision is best with (a base that comes
    # in Q4_1 keeps its own blocks of 32 in fused graphs at int4: slower, far nearer to float32)
    block_size: int | None = None
    # precision of all embeddings and heads; None: that of the weights, at int4 int8 (and in fused graphs int4
    # for the head's rows of rare tokens)
    keep_head: str | None = None
    # of fused graphs at int4: near to float32, or coarser and faster
    prefer: Literal["accuracy", "speed"] = "accuracy"
    # type of a fused graph's KV cache: "int8", "fp32", or "fp16", which CUDA needs; None: int8 where weights
    # have no more bits and there is a tokenizer to calibrate with, else fp32
    kv_cache_dtype: str | None = None
    # slots of a portable bundle's KV cache, fixed when it is exported; None: 2048, or the model's context
    # (fused graphs and llama.cpp have as many as `cache_slots` says when they are loaded)
    cache_slots: int | None = None
    # positions that the bundle is for, whose rotations it stores (33 MB of 131,072); None: as many as the
    # base was trained for, or as a portable bundle's cache can come to
    context_length: int | None = None
    # run the parity gate: a bundle that disagrees with PyTorch is not kept
    verify: bool = True
    # also write the checkpoint's folder `assembly`, with which this bundle is made without PyTorch
    assembly: bool = False
    # replace a bundle that is there
    force: bool = False

    def __post_init__(self) -> None:
        given = (self.formats,) if isinstance(self.formats, str) else self.formats
        several = isinstance(given, list | tuple | set | frozenset)
        formats = tuple(given) if several else ()
        object.__setattr__(self, "formats", formats)
        if not formats or not all(among(name, FORMATS) for name in formats):
            named = (", ".join(map(_plain, formats)) or "none") if several else safe_repr(given)
            raise InputError(f"formats must be 'onnx', 'gguf' or both, got {named}")
        flag("verify", self.verify)
        flag("force", self.force)
        flag("assembly", self.assembly)
        if self.assembly and (self.formats, self.precision, self.flavor) != (("onnx",), "int8", "fused"):
            raise InputError("assembly is for fused graphs at int8: use --precision int8")
        if self.has_gguf:
            gguf_precision(self.precision if self.gguf_precision is None else self.gguf_precision)
        if self.has_graphs:
            _check_choice("precision", self.precision, PRECISIONS)
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) is not None:
                _check_choice(name, value, choices)
        self._check_blocks()
        self._check_fit()

    def _check_blocks(self) -> None:
        size = self.block_size
        if size is not None and (not isinstance(size, int) or size not in BLOCK_SIZES):
            raise InputError(f"block_size must be 16, 32, 64, 128 or 256, got {safe_repr(size)}")
        if self.prefer == "speed" and self.has_graphs:
            if self.precision != "int4":
                raise InputError(f"prefer 'speed' is for precision int4, not {self.precision}")
            if size is not None:
                raise InputError("prefer 'speed' has blocks of its own: leave block_size out")

    def _check_fit(self) -> None:
        """Options of graphs, of one flavor of them, or of GGUF files, where there are none."""
        portable = self.flavor == "portable"
        if self.flavor != "fused" and self.prefer != "accuracy":
            raise InputError(f"prefer 'speed' is for fused graphs: leave it out, or flavor {self.flavor!r}")
        if self.cache_slots is not None and not (portable and self.has_graphs):
            raise InputError(
                "cache_slots is for portable graphs: others take any when they are loaded (cache_slots)"
            )
        if self.gguf_precision is not None and not self.has_gguf:
            raise InputError("gguf_precision is for GGUF files: add  --format gguf")
        of_graphs = (self.block_size, self.keep_head, self.flavor, self.prefer)
        if not self.has_graphs and of_graphs != (None, None, "fused", "accuracy"):
            raise InputError("block_size, keep_head, flavor and prefer are for graphs: add  --format onnx")
        if self.kv_cache_dtype in ("fp16", "int8") and (portable or not self.has_graphs):
            raise InputError(
                f"kv_cache_dtype {self.kv_cache_dtype!r} is for fused graphs: leave it out (llama.cpp's is "
                "an option of run)"
            )

    @property
    def has_graphs(self) -> bool:
        return "onnx" in self.formats

    @property
    def has_gguf(self) -> bool:
        return "gguf" in self.formats


def options_of(given: Mapping[str, Any], recipe: str | Path | None = None) -> ExportOptions:
    """What is given, over the fields of `ExportOptions` that a recipe file (TOML) sets."""
    asked = {**(_recipe(Path(recipe)) if recipe is not None else {}), **given}
    if "precision" in given:
        _check_choice("precision", given["precision"], PRESETS)
        if given["precision"] == "int4-fast":
            asked |= {"precision": "int4", "prefer": "speed"}
    return ExportOptions(**asked)


def cache_slots_of(positions: int, cache_slots: int | None) -> int:
    """Return the slots of a portable cache for a model of this many positions."""
    if cache_slots is None:
        return min(CACHE_LENGTH, positions)
    return whole_in("cache_slots", cache_slots, min(SHORTEST_CACHE, positions), positions)


def _recipe(path: Path) -> dict[str, Any]:
    data = read_toml(path)
    known = [field.name for field in fields(ExportOptions)]
    if unknown := sorted(set(data) - set(known)):
        raise ConfigError(f"{path}: unknown key {safe_repr(unknown[0])} (known: {', '.join(known)})")
    return data


def _plain(value: object) -> str:
    return one_line(value, 80) if isinstance(value, str) else safe_repr(value)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if not among(value, choices):
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {safe_repr(value)}")
