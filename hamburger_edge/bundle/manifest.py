"""The bundle's description of itself: everything a runtime must know.

    my.bundle/
      manifest.json        this, with the format version first
      base.onnx  embedder.onnx  micro_decoder.onnx  weights.bin       and/or
      base.gguf  micro_decoder.gguf  graft.gguf
      tokenizer.json

A runtime never asks which model it is: shapes, taps, positions, head and cache layout all stand here.
Every byte of it is distrusted: see `reading.py` and `files.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.draft_index import FILE as DRAFT_INDEX
from hamburger_edge.loop.drafting import USUAL_COSTS, Costs
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.values import among, safe_repr

KIND = "hamburger-edge bundle"
FORMAT = 2
FILE_NAME = "manifest.json"
GRAPHS = ("embedder", "base", "micro_decoder")

Flavor = Literal["fused", "portable", "gguf"]
Precision = Literal["fp32", "fp16", "int8", "int4", "q4_0", "q4_1", "q8_0", "f16", "f32"]
PRECISIONS: tuple[str, ...] = ("fp32", "fp16", "int8", "int4")  # of ONNX graphs
GGUF_PRECISIONS = ("f32", "f16", "q8_0", "q4_0", "q4_1")
# What a precision of graphs is called in GGUF files, so that one --precision serves both. Of the 4-bit types,
# the one with an offset a block: as fast, and SmolLM2, which comes in it, loses next to nothing (q4_0 doubles
# its perplexity).
IN_GGUF = {"fp32": "f32", "fp16": "f16", "int8": "q8_0", "int4": "q4_1"}
DTYPES = {"float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1}
KV_TYPES = {"fp32": "float32", "fp16": "float16", "int8": "int8"}  # of the graphs' cache, by option

_NUMBER = re.compile("[0-9]+")
_NUMBERS = re.compile(r"\[\n[\s\d,.-]+\]")  # not in a text, where a line feed is an escape


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph. Dimensions are numbers, or names of what varies from call to call."""

    name: str
    dtype: str
    shape: tuple[str, ...]

    @property
    def dims(self) -> tuple[int | str, ...]:
        return tuple(int(dim) if _NUMBER.fullmatch(dim) else dim for dim in self.shape)

    def resolve(self, **sizes: int) -> tuple[int, ...]:
        """The shape with every name replaced by its size."""
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


@dataclass(frozen=True)
class GraphSpec:
    """One ONNX graph."""

    name: str  # "base", "embedder", "micro_decoder"
    file: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


@dataclass(frozen=True)
class FileEntry:
    path: str  # inside the bundle, forward slashes
    bytes: int
    sha256: str


def micro_cache_type(dtype: str) -> str:
    """Beside a cache of this type; with a few entries, 8 bits save nothing."""
    return "float32" if dtype == "int8" else dtype


@dataclass(frozen=True)
class KVLayout:
    """One slot: a key and a value of [kv_heads, head_size] in every layer."""

    layers: int
    kv_heads: int
    head_size: int
    dtype: str

    def micro(self, layers: int) -> KVLayout:
        """Of the micro decoder's cache."""
        return KVLayout(layers, self.kv_heads, self.head_size, micro_cache_type(self.dtype))

    @property
    def bytes_per_slot(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * DTYPES[self.dtype]


@dataclass(frozen=True)
class PrecisionPlan:
    """How each part's weights are stored. `int8_layers` and `narrow_layers` are patterns of layer names."""

    base: Precision
    head: Precision  # the token embeddings and both heads
    graft: Precision
    block_size: int = 0  # weights that share a scale; 0 where nothing is quantized
    int8_layers: tuple[str, ...] = ()  # kept at int8 where others have fewer bits
    narrow_layers: tuple[str, ...] = ()  # with blocks half as long; `head`: its rows of rare tokens
    grid: int = 0  # of a base that keeps its own 4-bit grid (not in `o_proj`): weights that share a minimum
    frequent_rows: int = 0  # of the head as stored: those behind have the base's precision; 0: all alike


@dataclass(frozen=True)
class GGUFEntry:
    """Its header (keys, and the list of tensors) has a hash of its own, checked at every load: llama.cpp
    trusts what stands there."""

    file: str
    header_bytes: int
    header_sha256: str


@dataclass(frozen=True)
class GGUFPart:
    """The same model for llama.cpp, beside the graphs or instead of them."""

    architecture: Literal["llama", "paddleocr"]
    precision: PrecisionPlan
    base: GGUFEntry
    micro_decoder: GGUFEntry
    graft: GGUFEntry

    @property
    def files(self) -> tuple[GGUFEntry, ...]:
        return self.base, self.micro_decoder, self.graft


@dataclass(frozen=True)
class ModelSpec:
    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    max_group_tokens: int
    micro_layers: int
    taps: tuple[int, ...]
    position_rule: Literal["token", "slot"]
    stop_rule: Literal["before", "after"]
    context_length: int  # positions the rotary tables cover
    eos_ids: tuple[int, ...]
    tied_head: bool
    draft_vocab: tuple[int, ...] | None = None  # token id of each micro logit; null: the whole vocabulary
    # what a merged slot starts as: the mean of its tokens' embeddings, or its last token's. The embedder's
    # graph has it inside; bundles that do not say so are of the time before there was a choice
    merge_residual: Literal["mean", "last"] = "mean"

    @property
    def num_features(self) -> int:
        return len(self.taps) + 1

    @property
    def micro_positions(self) -> int:
        """Rows the micro decoder's cache holds: the features and all tokens of a group but its last."""
        return self.num_features + self.max_group_tokens

    @property
    def micro_vocab(self) -> int:
        return self.vocab_size if self.draft_vocab is None else len(self.draft_vocab)


@dataclass(frozen=True)
class Origin:
    """Where a part came from, and under which terms it may be used."""

    name: str
    license: str | None = None
    source: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    format: int
    kind: str
    producer: str
    flavor: Flavor
    model: ModelSpec
    precision: PrecisionPlan
    kv: KVLayout
    cache_slots: int  # slots of a portable graph's cache; 0: the runtime chooses
    graphs: tuple[GraphSpec, ...]
    files: tuple[FileEntry, ...]
    tokenizer: str | None
    base: Origin
    graft: Origin
    chat_template: dict | None = None  # type: ignore[type-arg]
    gguf: GGUFPart | None = None
    sha256: str = ""  # of all that the file says beside it, see `content_hash`; "" before it is saved
    recommended: Recommended | None = None  # mode and confidence where none are asked for
    answer_prefix: tuple[int, ...] = ()  # tokens that all answers begin with
    edits_prompt: bool = False  # its answers are its prompts put right, and are held to that
    draft_costs: Costs = USUAL_COSTS  # of drafted rows and micro steps of the graphs

    @property
    def rounds_calls(self) -> bool:
        """Whether products round the activations of all rows of a call by one scale. A text's first token has
        by far the largest: it is then read in a call of its own."""
        return self.flavor == "fused" and self.precision.base == "int8"

    def graph(self, name: str) -> GraphSpec:
        for graph in self.graphs:
            if graph.name == name:
                return graph
        raise BundleError(f"the bundle has no graph {name!r}: export it again")

    def slots(self, wanted: int) -> int:
        """Of the graphs' cache: fixed in a portable bundle, else as wanted, up to the model's context."""
        return self.cache_slots or min(wanted, self.model.context_length)

    @property
    def fingerprint(self) -> str:
        """Identifies weights, precision and everything else that changes what a cache of the graphs means,
        or what is said with it: tokenizer and chat template, too."""
        return self._identity(self.flavor, self.precision, self.graph_files)

    @property
    def gguf_fingerprint(self) -> str:
        """The same for llama.cpp; the one does not change when a bundle also gets the other."""
        assert self.gguf is not None
        return self._identity("gguf", self.gguf.precision, self.gguf_files)

    @property
    def graph_files(self) -> set[str]:
        """What the graphs are made of: they and their weights."""
        return {file.path for file in self.files} - self.gguf_files - {self.tokenizer or "", DRAFT_INDEX}

    @property
    def gguf_files(self) -> set[str]:
        return {part.file for part in self.gguf.files} if self.gguf else set()

    def _identity(self, flavor: str, precision: PrecisionPlan, paths: Set[str]) -> str:
        model = dataclasses.asdict(self.model)
        del model["merge_residual"]  # the files differ by it, and what was made before it keeps its name
        facts = {
            "model": model,
            "precision": dataclasses.asdict(precision),
            "flavor": flavor,
            "chat_template": self.chat_template,
            "files": sorted(
                (file.path, file.sha256) for file in self.files if file.path in {*paths, self.tokenizer}
            ),
        }
        return _digest(facts)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def save(self, folder: Path) -> None:
        facts = self.to_json()
        text = json.dumps({**facts, "sha256": content_hash(facts)}, indent=1)
        text = _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text)  # a list on one line
        with write_atomically(folder / FILE_NAME) as temporary:  # a bundle may be in its place already
            temporary.write_text(text + "\n", encoding="utf-8")


def content_hash(facts: Mapping[str, Any]) -> str:
    """Of a manifest's JSON without its own `sha256`: keys sorted, no blanks, ASCII. It notices a change in
    the one file that is in no list of files."""
    return _digest({name: value for name, value in facts.items() if name != "sha256"})


def _digest(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def gguf_precision(name: str) -> str:
    """What GGUF files call a precision; an InputError where they have none such."""
    found = IN_GGUF[name] if among(name, IN_GGUF) else name
    if not among(found, GGUF_PRECISIONS):
        known = ", ".join(GGUF_PRECISIONS)
        raise InputError(f"precision must be one of {known} for GGUF, got {safe_repr(name)}")
    return found
