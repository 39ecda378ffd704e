"""The bundle's description of itself: everything a runtime must know, read strictly and written once.

    my.bundle/
      manifest.json        this, with the format version first
      base.onnx  embedder.onnx  micro_decoder.onnx  weights.bin       and/or
      base.gguf  micro_decoder.gguf  graft.gguf
      tokenizer.json

A runtime never asks which model it is: shapes, taps, positions, head and cache layout all stand here.
Every byte is distrusted: `load` refuses what is impossible, `check_files` what is missing or changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from hamburger_edge.errors import BundleError, ConfigError
from hamburger_edge.strict import from_mapping

FORMAT = 1
FILE_NAME = "manifest.json"
GRAPHS = ("embedder", "base", "micro_decoder")
LARGEST = 64 << 20  # bytes of a manifest; a real one has some ten thousand

Flavor = Literal["fused", "portable", "gguf"]
Precision = Literal["fp32", "fp16", "int8", "int4", "q4_0", "q4_1", "q8_0", "f16", "f32"]
PRECISIONS: tuple[str, ...] = ("fp32", "fp16", "int8", "int4")  # of ONNX graphs
DTYPES = {"float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1}
KV_TYPES = {"fp32": "float32", "fp16": "float16", "int8": "int8"}  # of the graphs' cache, by option


_NUMBER = re.compile("[0-9]+")


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
    """How each part's weights are stored. `int8_layers` and `narrow_layers` are endings of layer names."""

    base: Precision
    head: Precision  # the token embeddings and both heads
    graft: Precision
    block_size: int = 0  # weights that share a scale; 0 where nothing is quantized
    int8_layers: tuple[str, ...] = ()  # kept at int8 where others have fewer bits
    narrow_layers: tuple[str, ...] = ()  # with blocks half as long: the more sensitive
    grid: int = 0  # of a base that keeps its own 4-bit grid in all layers: weights that share a minimum


@dataclass(frozen=True)
class GGUFFile:
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
    base: GGUFFile
    micro_decoder: GGUFFile
    graft: GGUFFile

    @property
    def files(self) -> tuple[GGUFFile, ...]:
        return self.base, self.micro_decoder, self.graft


@dataclass(frozen=True)
class ModelSpec:
    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    max_steps: int
    micro_layers: int
    taps: tuple[int, ...]
    position_rule: Literal["token", "slot"]
    stop_rule: Literal["before", "after"]
    context_length: int  # positions the rotary tables cover
    eos_ids: tuple[int, ...]
    tied_head: bool
    shortlist: tuple[int, ...] | None = None  # token id of each micro logit; null: the whole vocabulary

    @property
    def num_features(self) -> int:
        return len(self.taps) + 1

    @property
    def micro_positions(self) -> int:
        """Rows the micro decoder's cache holds: the features and all tokens of a group but its last."""
        return self.num_features + self.max_steps

    @property
    def micro_vocab(self) -> int:
        return self.vocab_size if self.shortlist is None else len(self.shortlist)


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
    cache_length: int  # slots of a portable graph's cache; 0: the runtime chooses
    graphs: tuple[GraphSpec, ...]
    files: tuple[FileEntry, ...]
    tokenizer: str | None
    base: Origin
    graft: Origin
    chat_template: dict | None = None  # type: ignore[type-arg]
    gguf: GGUFPart | None = None

    def graph(self, name: str) -> GraphSpec:
        for graph in self.graphs:
            if graph.name == name:
                return graph
        raise BundleError(f"the bundle has no graph {name!r}: export it again")

    @property
    def fingerprint(self) -> str:
        """Identifies weights, precision and everything else that changes what a cache of the graphs means."""
        others = {self.tokenizer, *(part.file for part in (self.gguf.files if self.gguf else ()))}
        return self._identity(self.flavor, self.precision, {file.path for file in self.files} - others)

    @property
    def gguf_fingerprint(self) -> str:
        """The same for llama.cpp; the one does not change when a bundle also gets the other."""
        assert self.gguf is not None
        return self._identity("gguf", self.gguf.precision, {part.file for part in self.gguf.files})

    def _identity(self, flavor: str, precision: PrecisionPlan, paths: Set[str | None]) -> str:
        facts = {
            "model": dataclasses.asdict(self.model),
            "precision": dataclasses.asdict(precision),
            "flavor": flavor,
            "files": sorted((file.path, file.sha256) for file in self.files if file.path in paths),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def save(self, folder: Path) -> None:
        text = json.dumps(self.to_json(), indent=1)
        text = _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text)  # a list on one line
        (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")


KIND = "hamburger-edge bundle"
_NUMBERS = re.compile(r"\[[\s\d,.-]+\]")


def load_manifest(folder: str | Path) -> Manifest:
    """Read and check a bundle's manifest; the files it names are not opened."""
    folder = Path(folder)
    path = folder / FILE_NAME
    if not folder.is_dir():
        raise BundleError(f"{folder}: no such bundle folder: make one with  hamburger-edge export")
    data = _read(path)
    version = data.get("format")
    if data.get("kind") != KIND:
        raise BundleError(
            f"{path}: not a bundle's manifest (kind is {data.get('kind')!r}, expected {KIND!r})"
        )
    if version != FORMAT or isinstance(version, bool):
        raise BundleError(
            f"{path}: format version {version!r}, but this program reads version {FORMAT}: "
            "update hamburger-edge or export the model again"
        )
    try:
        manifest: Manifest = from_mapping(Manifest, data, "manifest")
        _check(manifest)
    except ConfigError as error:
        raise BundleError(f"{path}: {error}: export the model again") from error
    return manifest


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST:
            raise BundleError(f"{path}: {path.stat().st_size} bytes is no manifest: export the model again")
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BundleError(
            f"{path}: missing: this folder is not a bundle, or its export was cut short"
        ) from error
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: not valid JSON ({error}): export the model again") from error
    if not isinstance(data, dict):
        raise BundleError(f"{path}: expected a table of settings, got {type(data).__name__}")
    return data


# -- what a manifest may say -----------------------------------------------------------------------------

_LIMITS = {  # far above any model that runs on a device, far below what would hurt it
    "vocab_size": 1 << 21,
    "hidden_size": 1 << 16,
    "num_layers": 1 << 10,
    "max_steps": 64,
    "micro_layers": 1 << 8,
    "context_length": 1 << 24,
}


def _check(manifest: Manifest) -> None:
    model, kv = manifest.model, manifest.kv
    for name, most in _LIMITS.items():
        _require(
            1 <= getattr(model, name) <= most, f"model.{name} must be 1..{most}, got {getattr(model, name)}"
        )
    _require(
        list(model.taps) == sorted(set(model.taps))
        and all(0 <= tap < model.num_layers for tap in model.taps),
        f"model.taps must be increasing layer numbers below {model.num_layers}, got {list(model.taps)}",
    )
    for name in ("eos_ids", "shortlist"):
        ids = getattr(model, name) or ()
        _require(
            len(set(ids)) == len(ids) and all(0 <= i < model.vocab_size for i in ids),
            f"model.{name} must be distinct token ids below {model.vocab_size}",
        )
    _require(model.shortlist != (), "model.shortlist is empty: write null for the whole vocabulary")
    _require(kv.layers == model.num_layers, f"kv.layers {kv.layers} differs from model.num_layers")
    _require(1 <= kv.kv_heads <= 1 << 12, f"kv.kv_heads must be 1..4096, got {kv.kv_heads}")
    _require(1 <= kv.head_size <= 1 << 12, f"kv.head_size must be 1..4096, got {kv.head_size}")
    _require(kv.dtype in DTYPES, f"kv.dtype {kv.dtype!r} is unknown (known: {', '.join(DTYPES)})")
    _require(0 <= manifest.precision.block_size <= 1 << 12, "precision.block_size must be 0..4096")
    _require(0 <= manifest.cache_length <= 1 << 24, f"cache_length {manifest.cache_length} is out of range")
    _check_names(manifest)
    if manifest.graphs:
        _check_caches(manifest)


def _check_caches(manifest: Manifest) -> None:
    """The cached graphs take what the runtime is going to bind."""
    model, flavor, length = manifest.model, manifest.flavor, manifest.cache_length
    portable = flavor == "portable"
    _require(portable == (length > 0), f"{flavor} graphs with a cache_length of {length}")
    lengths = ("used",) if portable else ("last_slot", "total_slots")
    for graph, layers in {"base": model.num_layers, "micro_decoder": model.micro_layers}.items():
        given = {tensor.name for tensor in manifest.graph(graph).inputs}
        caches = (f"past_{kind}.{layer}" for layer in range(layers) for kind in ("key", "value"))
        for name in (*lengths, *caches):
            _require(name in given, f"{graph} has no input {name!r}")


def _check_names(manifest: Manifest) -> None:
    listed = [file.path for file in manifest.files]
    _require(len(set(listed)) == len(listed), "a file is listed twice")
    for file in manifest.files:
        _require(_inside(file.path), f"file path {file.path!r} leaves the bundle")
        _require(file.path != FILE_NAME, "the manifest lists itself")
        _require(0 <= file.bytes < 1 << 46, f"{file.path}: {file.bytes} bytes is out of range")
        hexadecimal = len(file.sha256) == 64 and all(c in "0123456789abcdef" for c in file.sha256)
        _require(hexadecimal, f"{file.path}: sha256 {file.sha256[:80]!r} is not 64 hexadecimal digits")
    wanted = [graph.file for graph in manifest.graphs] + ([manifest.tokenizer] if manifest.tokenizer else [])
    for part in manifest.gguf.files if manifest.gguf else ():
        wanted.append(part.file)
        _require(0 < part.header_bytes < 1 << 30, f"{part.file}: header_bytes is out of range")
    for path in wanted:
        _require(path in listed, f"{path!r} is not in the list of files")
    names = [graph.name for graph in manifest.graphs]
    _require(len(set(names)) == len(names), "a graph is listed twice")
    _require(not names or {*names} == {*GRAPHS}, f"graphs must be {', '.join(GRAPHS)}, got {names}")
    for graph in manifest.graphs:
        for tensor in (*graph.inputs, *graph.outputs):
            where = f"{graph.name}.{tensor.name}"
            _require(tensor.dtype in DTYPES, f"{where}: unknown dtype {tensor.dtype!r}")
            longest = max(map(len, tensor.shape), default=0)
            _require(longest < 64, f"{where}: a dimension of {longest} characters is absurd")
            sizes = [dim for dim in tensor.dims if isinstance(dim, int)]
            _require(math.prod(sizes) < 1 << 40, f"{where}: shape {list(tensor.shape)} is absurd")
            _require(len(tensor.shape) <= 8, f"{where}: {len(tensor.shape)} dimensions")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _inside(path: str) -> bool:
    """A plain relative path, on every system: no parent steps, drives, backslashes or control characters."""
    pure = PurePosixPath(path)
    return (
        bool(pure.parts)
        and not pure.is_absolute()
        and ".." not in pure.parts
        and pure.as_posix() == path
        and not any(c in '\\:*?"<>|' or ord(c) < 32 for c in path)
    )


# -- the files it names ------------------------------------------------------------------------------------


def file_entries(folder: Path) -> Iterator[FileEntry]:
    """Every file below a finished folder, the manifest excepted."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != FILE_NAME:
            yield FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, _sha256(path))


def check_files(folder: Path, manifest: Manifest, *, hashes: bool = False) -> None:
    """Every listed file is inside the folder and has its size; with `hashes`, also its content."""
    root = folder.resolve()
    for entry in manifest.files:
        path = folder / entry.path
        if not path.resolve().is_relative_to(root):
            raise BundleError(f"{path}: a link that leaves the bundle: copy the file itself into the folder")
        if not path.is_file():
            raise BundleError(f"{path}: missing: copy the whole bundle again, or export it again")
        size = path.stat().st_size
        if size != entry.bytes:
            raise BundleError(
                f"{path}: {size} bytes, but the manifest says {entry.bytes}: truncated or changed; "
                "copy the bundle again"
            )
        if hashes and _sha256(path) != entry.sha256:
            raise BundleError(
                f"{path}: its content differs from the manifest's sha256: copy the bundle again"
            )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
