"""The options of an export: every option with its default, and every check, in one place.

Importing this is light: nothing that exporting needs comes along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hamburger_edge.bundle.manifest import KV_TYPES, gguf_precision
from hamburger_edge.errors import InputError, one_line
from hamburger_edge.support.values import among, flag, safe_repr, whole_in

FORMATS = ("onnx", "gguf")
FLAVORS = ("fused", "portable")
GRAPHS: Final = "graphs"  # of the parity gate, its first part alone
FAST = "int4-fast"  # int4 in coarser blocks, whose steps are faster
PRECISIONS = ("int4", FAST, "int8", "fp16", "fp32")  # of graphs
CACHE_LENGTH, SHORTEST_CACHE = 2048, 64  # slots of a portable cache; the parity gate needs some room
CHOICES = {"flavor": FLAVORS, "kv_cache_dtype": tuple(KV_TYPES)}


@dataclass(frozen=True)
class ExportOptions:
    """How a checkpoint becomes a bundle. Options that contradict each other raise an InputError."""

    # files to write: "onnx" (graphs), "gguf" (files for llama.cpp), or both
    formats: tuple[str, ...] = ("onnx",)
    # operators of the graphs: ONNX Runtime's own ("fused"), or standard ones only ("portable"), which
    # accelerators support, with a coarser int4 and a cache of float32
    flavor: Literal["fused", "portable"] = "fused"
    # of all weights, except those that a precision leaves at more bits: one of PRECISIONS for graphs, also a
    # type of GGUF files where only these are written. A base that comes in Q4_1 keeps its own blocks of 32 in
    # fused graphs at int4: slower, far nearer to float32
    precision: str = "int4"
    # of the GGUF files; None: the type nearest to `precision`
    gguf_precision: str | None = None
    # type of a fused graph's KV cache: "int8", "fp32", or "fp16", which CUDA needs; None: int8 if weights
    # have no more bits and there is a tokenizer to calibrate with, else fp32
    kv_cache_dtype: str | None = None
    # slots of a portable bundle's KV cache, fixed when it is exported; None: 2048, or the model's context
    # (fused graphs and llama.cpp take any number when they are loaded)
    cache_slots: int | None = None
    # positions of the bundle, whose rotations it stores (33 MB of 131,072); None: as many as the base was
    # trained for, or as a portable bundle's cache can hold
    context_length: int | None = None
    # run the parity gate: a bundle that disagrees with PyTorch is not kept; "graphs": of ONNX graphs only its
    # first part, which takes seconds
    verify: bool | Literal["graphs"] = True
    # also write the checkpoint's folder `assembly`, from which this bundle is assembled without PyTorch
    assembly: bool = False
    # replace an existing bundle
    force: bool = False

    def __post_init__(self) -> None:
        given = (self.formats,) if isinstance(self.formats, str) else self.formats
        several = isinstance(given, list | tuple | set | frozenset)
        formats = tuple(given) if several else ()
        object.__setattr__(self, "formats", formats)
        if not formats or not all(among(name, FORMATS) for name in formats):
            named = (", ".join(map(_plain, formats)) or "none") if several else safe_repr(given)
            raise InputError(f"formats must be 'onnx', 'gguf' or both, got {named}")
        if not (isinstance(self.verify, str) and self.verify == GRAPHS):
            flag("verify", self.verify)
        for name in ("force", "assembly"):
            flag(name, getattr(self, name))
        if self.assembly and (self.formats, self.precision, self.flavor) != (("onnx",), "int8", "fused"):
            raise InputError("assembly is for fused graphs at int8: use --precision int8")
        if self.has_graphs:
            _check_choice("precision", self.precision, PRECISIONS)
        if self.has_gguf:
            gguf_precision(self.gguf_type)
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) is not None:
                _check_choice(name, value, choices)
        self._check_fit()

    def _check_fit(self) -> None:
        """Check options of graphs, of one flavor of them, or of GGUF files, if there are none."""
        portable = self.flavor == "portable"
        if self.cache_slots is not None and not (portable and self.has_graphs):
            raise InputError(
                "cache_slots is for portable graphs: others take any when they are loaded (cache_slots)"
            )
        if self.gguf_precision is not None and not self.has_gguf:
            raise InputError("gguf_precision is for GGUF files: add  --format gguf")
        if portable and not self.has_graphs:
            raise InputError("flavor is for graphs: add  --format onnx")
        if self.precision == FAST and (portable or not self.has_graphs):
            raise InputError(f"precision {FAST!r} is for fused graphs: use precision 'int4'")
        if self.kv_cache_dtype in ("fp16", "int8") and (portable or not self.has_graphs):
            raise InputError(
                f"kv_cache_dtype {self.kv_cache_dtype!r} is for fused graphs: leave it out (llama.cpp's is "
                "an option of run)"
            )

    @property
    def gguf_type(self) -> str:
        """Precision of the GGUF files: a type of llama.cpp, or a name that stands for one."""
        if self.gguf_precision is not None:
            return self.gguf_precision
        return "int4" if self.precision == FAST else self.precision

    @property
    def has_graphs(self) -> bool:
        return "onnx" in self.formats

    @property
    def has_gguf(self) -> bool:
        return "gguf" in self.formats


def cache_slots_of(positions: int, cache_slots: int | None) -> int:
    """Return the slots of a portable cache for a model of this many positions."""
    if cache_slots is None:
        return min(CACHE_LENGTH, positions)
    return whole_in("cache_slots", cache_slots, min(SHORTEST_CACHE, positions), positions)


def _plain(value: object) -> str:
    return one_line(value, 80) if isinstance(value, str) else safe_repr(value)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if not among(value, choices):
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {safe_repr(value)}")
