"""The manifest: a bundle's complete description for every runtime.

    my.bundle/
      manifest.json        the format version first
      base.onnx  embedder.onnx  micro_decoder.onnx  weights.bin       and/or
      base.gguf  micro_decoder.gguf  graft.gguf
      tokenizer.json

A plain model, whose groups have one token, has no micro_decoder.onnx, or base.gguf alone.

Shapes, taps, positions, head and cache layout are all in the manifest: no runtime has code for a particular
model. A manifest is untrusted input: `reading.py` and `files.py` check it.
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

from hamburger_edge.drafts.drafting import USUAL_COSTS, Costs
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.support.files import DRAFT_INDEX, is_terms, write_atomically
from hamburger_edge.support.values import among, safe_repr

KIND = "hamburger-edge bundle"
FORMAT = 3
FILE_NAME = "manifest.json"
FORMER_FIELDS = {"answer_prefix"}  # of older bundles, ignored: the draft index stores how answers begin

Flavor = Literal["fused", "portable", "gguf"]
Precision = Literal["fp32", "fp16", "int8", "int4", "q4_0", "q4_1", "q8_0", "f16", "f32"]
PRECISIONS: tuple[str, ...] = ("fp32", "fp16", "int8", "int4")  # of ONNX graphs
GGUF_PRECISIONS = ("f32", "f16", "q8_0", "q4_0", "q4_1")
# Precision of graphs -> type in GGUF files, so that one --precision serves both. q4_1 has an offset per
# block: it is as fast as q4_0, and SmolLM2's 4-bit weights lose almost nothing (q4_0 doubles its perplexity).
IN_GGUF = {"fp32": "f32", "fp16": "f16", "int8": "q8_0", "int4": "q4_1"}
DTYPES = {"float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1}
KV_TYPES = {"fp32": "float32", "fp16": "float16", "int8": "int8"}  # of the graphs' cache, by option

_NUMBER = re.compile("[0-9]+")
_NUMBERS = re.compile(r"\[\n[\s\d,.-]+\]")  # lists of numbers; in JSON a string has no raw line feed


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph. Dimensions are numbers, or names if they vary between calls."""

    name: str
    dtype: str
    shape: tuple[str, ...]

    @property
    def dims(self) -> tuple[int | str, ...]:
        return tuple(int(dim) if _NUMBER.fullmatch(dim) else dim for dim in self.shape)

    def resolve(self, **sizes: int) -> tuple[int, ...]:
        """Return the shape with every name replaced by its size."""
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
    path: str  # relative to the bundle, with forward slashes
    bytes: int
    sha256: str


def micro_cache_type(dtype: str) -> str:
    """Return the type of the micro decoder's cache: too few entries for int8 to save memory."""
    return "float32" if dtype == "int8" else dtype


@dataclass(frozen=True)
class KVLayout:
    """The layout of one slot: a key and a value of [kv_heads, head_size] per layer."""

    layers: int
    kv_heads: int
    head_size: int
    dtype: str

    def micro(self, layers: int) -> KVLayout:
        """Return the layout of the micro decoder's cache."""
        return KVLayout(layers, self.kv_heads, self.head_size, micro_cache_type(self.dtype))

    @property
    def bytes_per_slot(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * DTYPES[self.dtype]


@dataclass(frozen=True)
class PrecisionPlan:
    """The precision of each part's weights. `int8_layers` and `narrow_layers` are patterns of layer names."""

    base: Precision
    head: Precision  # the token embeddings and both heads
    graft: Precision
    block_size: int = 0  # weights per scale; 0: nothing is quantized
    int8_layers: tuple[str, ...] = ()  # at int8 although other layers have fewer bits
    narrow_layers: tuple[str, ...] = ()  # with half the block size; `head`: its rows of rare tokens
    grid: int = 0  # weights per minimum, if the base keeps its 4-bit grid (except in `o_proj`)
    frequent_rows: int = 0  # stored rows at the head's precision, later ones at the base's; 0: all alike


@dataclass(frozen=True)
class GGUFEntry:
    """A GGUF file and its header (keys and list of tensors).

    The header's hash is checked at every load, because llama.cpp trusts the header.
    """

    file: str
    header_bytes: int
    header_sha256: str


@dataclass(frozen=True)
class GGUFPart:
    """The same model for llama.cpp, with the graphs or instead of them."""

    architecture: Literal["llama", "paddleocr"]
    precision: PrecisionPlan
    base: GGUFEntry
    micro_decoder: GGUFEntry | None  # null, like the graft: a plain model
    graft: GGUFEntry | None

    @property
    def files(self) -> tuple[GGUFEntry, ...]:
        entries = self.base, self.micro_decoder, self.graft
        return tuple(entry for entry in entries if entry is not None)


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
    context_length: int  # positions of the rotary tables
    eos_ids: tuple[int, ...]
    tied_head: bool
    draft_vocab: tuple[int, ...] | None = None  # token id of each micro logit; null: the whole vocabulary
    # embedding that a merged slot starts from: the mean over its tokens, or the last token's. It is part of
    # the embedder's graph. Older bundles without this field use the mean
    merge_residual: Literal["mean", "last"] = "mean"

    @property
    def has_graft(self) -> bool:
        return self.max_group_tokens > 1

    @property
    def graph_names(self) -> tuple[str, ...]:
        return ("embedder", "base", "micro_decoder") if self.has_graft else ("embedder", "base")

    @property
    def num_features(self) -> int:
        return len(self.taps) + 1

    @property
    def micro_positions(self) -> int:
        """Rows of the micro decoder's cache: the features and `max_group_tokens` tokens."""
        return self.num_features + self.max_group_tokens

    @property
    def micro_vocab(self) -> int:
        return self.vocab_size if self.draft_vocab is None else len(self.draft_vocab)


@dataclass(frozen=True)
class Origin:
    """The source and licence of a part."""

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
    sha256: str = ""  # of all other fields, see `content_hash`; "" before saving
    recommended: Recommended | None = None  # default mode and confidence
    certainty: Certainty | None = None  # coefficients of an answer's certainty; null: not measured
    edits_prompt: bool = False  # answers are corrected prompts, constrained by structured/edits.py
    copied_fields: tuple[str, ...] = ()  # of JSON answers or calls: their strings are spans of the prompt
    draft_costs: Costs = USUAL_COSTS  # of drafted rows and micro steps of the graphs
    tools: tuple[dict[str, Any], ...] = ()  # functions that answers call, in OpenAI's form; see calls/

    @property
    def has_update(self) -> bool:
        """Whether there is more than the base: a graft, or a plain model's change of the base."""
        return self.model.has_graft or self.graft.license is not None

    @property
    def pairs_rows(self) -> bool:
        """Whether each call of the base has an even number of slots, and reads out an even number of rows.

        ONNX Runtime's products of weights in blocks compute the last row of an odd number by another kernel,
        which rounds differently. With even numbers a row does not depend on the rows beside it.
        """
        return self.flavor == "fused" and self.precision.block_size > 0

    def graph(self, name: str) -> GraphSpec:
        for graph in self.graphs:
            if graph.name == name:
                return graph
        raise BundleError(f"the bundle has no graph {name!r}: export it again")

    def tokenizer_in(self, folder: Path) -> Path:
        """Return the path of the tokenizer of a bundle in this folder."""
        if self.tokenizer is None:
            raise BundleError(f"{folder}: holds no tokenizer: export it from a checkpoint that has one")
        return folder / self.tokenizer

    def slots(self, wanted: int) -> int:
        """Return the slots of the graphs' cache: fixed in a portable bundle, else at most the context length.

        If calls have an even number of slots, one position stays free for the slot that evens the last call.
        """
        return self.cache_slots or min(wanted, self.model.context_length - self.pairs_rows)

    @property
    def fingerprint(self) -> str:
        """Hash of the graphs' weights, precision, flavor, model facts, tokenizer and chat template.

        A saved session fits only a bundle with the same fingerprint.
        """
        return self._identity(self.flavor, self.precision, self.graph_files)

    @property
    def gguf_fingerprint(self) -> str:
        """The same for llama.cpp. Neither fingerprint depends on the other format's files."""
        assert self.gguf is not None
        return self._identity("gguf", self.gguf.precision, self.gguf_files)

    @property
    def graph_files(self) -> set[str]:
        """Paths of the graphs and their weights."""
        others = {*self.gguf_files, self.tokenizer, DRAFT_INDEX}
        return {file.path for file in self.files if file.path not in others and not is_terms(file.path)}

    @property
    def gguf_files(self) -> set[str]:
        return {part.file for part in self.gguf.files} if self.gguf else set()

    def _identity(self, flavor: str, precision: PrecisionPlan, paths: Set[str]) -> str:
        model = dict(vars(self.model))
        del model["merge_residual"]  # the file hashes cover it; older bundles keep their fingerprint
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
        """Return the file's content; empty `tools` and `copied_fields`, and costs of 0, are left out."""
        facts = dataclasses.asdict(self)
        facts["draft_costs"] = {name: cost for name, cost in facts["draft_costs"].items() if cost}
        for name in ("tools", "copied_fields"):
            if not facts[name]:
                del facts[name]
        return facts

    def save(self, folder: Path) -> None:
        facts = self.to_json()
        text = json.dumps({**facts, "sha256": content_hash(facts)}, indent=1)
        text = _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text)  # each list on one line
        with write_atomically(folder / FILE_NAME) as temporary:  # may replace an existing manifest
            temporary.write_text(text + "\n", encoding="utf-8")


def content_hash(facts: Mapping[str, Any]) -> str:
    """Hash a manifest's JSON without its `sha256`: keys sorted, no blanks, ASCII.

    It detects changes of the manifest, which is not in the list of files.
    """
    return _digest({name: value for name, value in facts.items() if name != "sha256"})


def _digest(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def gguf_precision(name: str) -> str:
    """Return the GGUF type of a precision; raise InputError if there is none."""
    precision = IN_GGUF[name] if among(name, IN_GGUF) else name
    if not among(precision, GGUF_PRECISIONS):
        known = ", ".join(GGUF_PRECISIONS)
        raise InputError(f"precision must be one of {known} for GGUF, got {safe_repr(name)}")
    return precision
