"""What may be asked of an export: every option, its default, its help and every check, in one place.

Importing this is light: the command line makes its options from it, without PyTorch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from hamburger_edge.bundle.manifest import KV_TYPES, PRECISIONS
from hamburger_edge.errors import InputError

FORMATS = ("onnx", "gguf")
FLAVORS = ("fused", "portable")
PREFERENCES = ("accuracy", "speed")
BLOCK_SIZES = (16, 32, 64, 128, 256)
# What a precision of graphs is called in GGUF files, so that one --precision serves both. Of the 4-bit types,
# the one with an offset a block: as fast, and SmolLM2, which comes in it, loses next to nothing (q4_0 doubles
# its perplexity).
GGUF_PRECISIONS = {"fp32": "f32", "fp16": "f16", "int8": "q8_0", "int4": "q4_1"}
GGUF_TYPES = ("f32", "f16", "q8_0", "q4_0", "q4_1")


def _option(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class ExportOptions:
    """How a checkpoint becomes a bundle. What contradicts itself is an InputError that says the way out."""

    # what is written: ONNX graphs, GGUF files for llama.cpp, or both
    formats: tuple[str, ...] = _option(
        ("onnx",), "onnx (default), gguf for llama.cpp, or both: give it twice", FORMATS
    )
    # operators of the graphs
    flavor: Literal["fused", "portable"] = _option(
        "fused",
        "fused (default): ONNX Runtime's own operators; portable: standard operators only, for "
        "accelerators; its int4 is coarser and its cache float32",
        FLAVORS,
    )
    # of all weights, but for what a precision leaves at more bits; a name for graphs or one for GGUF files
    precision: str = _option(
        "int4", f"{', '.join(PRECISIONS)} (default); of GGUF files {', '.join(GGUF_TYPES)}"
    )
    # of the GGUF files; None: what comes nearest to `precision`
    gguf_precision: str | None = _option(None, "of the GGUF files, where both are written")
    # weights of graphs that share a scale; None: 64, and what each precision is best with
    block_size: int | None = _option(
        None,
        "weights that share a scale (power of two); default 64, in fused graphs for a base in Q4_1 its own "
        "blocks of 32, which int4 keeps wherever they matter: slower, far nearer to float32",
    )
    # precision of the graphs' embeddings and heads; None: as each precision is best with
    keep_head: str | None = _option(
        None,
        "precision of all embeddings and heads (default at int4: int8, in fused graphs int4 for the head's "
        "rows of rare tokens)",
        PRECISIONS,
    )
    # of fused graphs at int4: nearness to float32, or fewer operations
    prefer: Literal["accuracy", "speed"] = _option(
        "accuracy",
        "of fused graphs at int4: near to float32 (default), or coarser and faster (SmolLM2, whose base is "
        "in Q4_1, by a fifth)",
        PREFERENCES,
    )
    # type of a fused graph's KV cache; None: int8 where weights have no more bits and there is a tokenizer
    kv: str | None = _option(
        None,
        "KV cache of fused graphs: int8 (default where weights are int8 or int4), fp32 (default otherwise), "
        "or fp16, which CUDA needs",
        tuple(KV_TYPES),
    )
    # slots of a portable bundle's KV cache, fixed when it is exported; None: 2048, or the model's context
    cache_length: int | None = _option(
        None, "slots that a portable bundle's KV cache has (default 2048); fused ones choose when loaded"
    )
    # run the parity gate: a bundle that disagrees with PyTorch is not kept
    verify: bool = _option(True, "skip the parity gate")
    # replace a bundle that is there
    force: bool = _option(False, "replace an existing bundle")

    def __post_init__(self) -> None:
        formats = (self.formats,) if isinstance(self.formats, str) else tuple(self.formats)
        object.__setattr__(self, "formats", formats)
        if not formats or set(formats) - set(FORMATS):
            raise InputError(f"formats must be 'onnx', 'gguf' or both, got {', '.join(formats) or 'none'}")
        if self.has_gguf:
            gguf_type(self.gguf_precision or self.precision)
        if self.has_graphs:
            _check_choice("precision", self.precision, PRECISIONS)
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata["choices"]
            if field.name != "formats" and choices and value is not None:
                _check_choice(field.name, value, choices)
        self._check_blocks()
        self._check_fit()

    def _check_blocks(self) -> None:
        size = self.block_size
        if size is not None and (not isinstance(size, int) or size not in BLOCK_SIZES):
            raise InputError(f"block_size must be 16, 32, 64, 128 or 256, got {size!r}")
        if self.prefer == "speed" and self.has_graphs:
            if self.precision != "int4":
                raise InputError(f"prefer 'speed' is for precision int4, not {self.precision}")
            if size is not None:
                raise InputError("prefer 'speed' has blocks of its own: leave block_size out")

    def _check_fit(self) -> None:
        """Options of graphs, of one flavor of them, or of GGUF files, where there are none."""
        portable = self.flavor == "portable"
        if portable and self.prefer != "accuracy":
            raise InputError("prefer 'speed' is for fused graphs: leave it out, or flavor 'portable'")
        if self.cache_length is not None and not (portable and self.has_graphs):
            raise InputError(
                "cache_length is for portable graphs: others take any when they are loaded (context)"
            )
        if self.gguf_precision is not None and not self.has_gguf:
            raise InputError("gguf_precision is for GGUF files: add  --format gguf")
        of_graphs = (self.block_size, self.keep_head, self.flavor, self.prefer)
        if not self.has_graphs and of_graphs != (None, None, "fused", "accuracy"):
            raise InputError("block_size, keep_head, flavor and prefer are for graphs: add  --format onnx")
        if self.kv in ("fp16", "int8") and (portable or not self.has_graphs):
            raise InputError(
                f"kv {self.kv!r} is for fused graphs: leave it out (llama.cpp's --kv is an option of run)"
            )

    @property
    def has_graphs(self) -> bool:
        return "onnx" in self.formats

    @property
    def has_gguf(self) -> bool:
        return "gguf" in self.formats


def gguf_type(precision: str) -> str:
    """What GGUF files call a precision; an InputError where they have none such."""
    name = GGUF_PRECISIONS.get(precision, precision)
    if name not in GGUF_TYPES:
        raise InputError(f"precision must be one of {', '.join(GGUF_TYPES)} for GGUF, got {precision!r}")
    return name


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
