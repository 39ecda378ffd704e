"""Read a bundle's manifest strictly: an error names each impossible value."""

from __future__ import annotations

import json
import math
from pathlib import Path, PurePosixPath
from typing import Any

from hamburger_edge.bundle.manifest import (
    DTYPES,
    FILE_NAME,
    FORMAT,
    FORMER_FIELDS,
    GGUF_PRECISIONS,
    KIND,
    KV_TYPES,
    PRECISIONS,
    GraphSpec,
    KVLayout,
    Manifest,
    PrecisionPlan,
    content_hash,
)
from hamburger_edge.calls.catalogue import read_catalogue
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import BundleError, ConfigError, InputError
from hamburger_edge.support.files import read_regular
from hamburger_edge.support.strict import from_mapping, unique_keys

LARGEST = 64 << 20  # bytes of a manifest; typical ones have about ten thousand


def load_manifest(folder: str | Path) -> Manifest:
    """Read and check a bundle's manifest, without opening the listed files."""
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
    if version != FORMAT:
        raise BundleError(
            f"{path}: format version {version!r}, but this program reads version {FORMAT}: "
            "update hamburger-edge or export the model again"
        )
    try:
        fields = {name: value for name, value in data.items() if name not in FORMER_FIELDS}
        manifest: Manifest = from_mapping(Manifest, fields, "manifest")
        _check(manifest)
    except ConfigError as error:
        raise BundleError(f"{path}: {error}: export the model again") from error
    if manifest.sha256 != content_hash(data):
        raise BundleError(
            f"{path}: was changed since it was written, its sha256 says: copy the bundle again, or export it "
            "again"
        )
    return manifest


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_regular(path, limit=LARGEST).decode("utf-8")
        data = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_number)
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


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON's")


# -- checks of a manifest --------------------------------------------------------------------------------

_LIMITS = {  # far above any model for a device, low enough to protect its memory
    "vocab_size": 1 << 21,
    "hidden_size": 1 << 16,
    "num_layers": 1 << 10,
    "max_group_tokens": 64,
    "micro_layers": 1 << 8,
    "context_length": 1 << 24,
}


def _check(manifest: Manifest) -> None:
    model, kv = manifest.model, manifest.kv
    _require(bool(manifest.graphs) or manifest.gguf is not None, "names neither graphs nor GGUF files")
    _require(
        (manifest.flavor == "gguf") == (not manifest.graphs),
        f"flavor {manifest.flavor!r} with {len(manifest.graphs)} graphs",
    )
    for name, limit in _LIMITS.items():
        least, value = int(name != "micro_layers"), getattr(model, name)
        _require(least <= value <= limit, f"model.{name} must be {least}..{limit}, got {value}")
    _require(
        model.has_graft == (model.micro_layers > 0),
        f"model.micro_layers is {model.micro_layers} at a max_group_tokens of {model.max_group_tokens}",
    )
    for name in ("taps", "draft_vocab"):
        _require(
            model.has_graft or not getattr(model, name), f"model.{name}: max_group_tokens 1 has no graft"
        )
    _require(
        list(model.taps) == sorted(set(model.taps))
        and all(0 <= tap < model.num_layers for tap in model.taps),
        f"model.taps must be increasing layer numbers below {model.num_layers}, got {list(model.taps)}",
    )
    for name in ("eos_ids", "draft_vocab"):
        ids = getattr(model, name) or ()
        _require(
            len(set(ids)) == len(ids) and all(0 <= i < model.vocab_size for i in ids),
            f"model.{name} must be distinct token ids below {model.vocab_size}",
        )
    _require(
        manifest.draft_costs.usable,
        f"draft_costs must be above 0 and at most 10, those of slots at least 0, got {manifest.draft_costs}",
    )
    _require(model.draft_vocab != (), "model.draft_vocab is empty: write null for the whole vocabulary")
    _require(kv.layers == model.num_layers, f"kv.layers {kv.layers} differs from model.num_layers")
    _require(1 <= kv.kv_heads <= 1 << 12, f"kv.kv_heads must be 1..4096, got {kv.kv_heads}")
    _require(1 <= kv.head_size <= 1 << 12, f"kv.head_size must be 1..4096, got {kv.head_size}")
    types = tuple(KV_TYPES.values())
    _require(kv.dtype in types, f"kv.dtype {kv.dtype!r} is unknown (known: {', '.join(types)})")
    of_graphs = GGUF_PRECISIONS if manifest.flavor == "gguf" else PRECISIONS
    _check_precision("precision", manifest.precision, of_graphs, model.vocab_size)
    if manifest.gguf is not None:
        _check_precision("gguf.precision", manifest.gguf.precision, GGUF_PRECISIONS, model.vocab_size)
    _require(0 <= manifest.cache_slots <= 1 << 24, f"cache_slots {manifest.cache_slots} is out of range")
    ChatTemplate.from_json(manifest.chat_template)
    if manifest.tools:
        try:
            read_catalogue(manifest.tools)
        except InputError as error:
            raise ConfigError(str(error)) from error
    _check_names(manifest)
    if manifest.graphs:
        _check_graphs(manifest)


def _check_precision(where: str, plan: PrecisionPlan, known: tuple[str, ...], vocab_size: int) -> None:
    for part in ("base", "head", "graft"):
        name = getattr(plan, part)
        _require(name in known, f"{where}.{part} {name!r} is not one of {', '.join(known)}")
    for name in ("block_size", "grid"):
        size = getattr(plan, name)
        whole = 16 <= size <= 1 << 12 and size & (size - 1) == 0
        _require(size == 0 or whole, f"{where}.{name} must be 0 or a power of two, 16..4096, got {size}")
    rows = plan.frequent_rows
    _require(0 <= rows <= vocab_size, f"{where}.frequent_rows must be 0..{vocab_size}, got {rows}")


# graph -> inputs and outputs that every runtime binds, without caches and positions
_BOUND = {
    "embedder": (("tokens",), ("embeddings",)),
    "base": (("embeddings", "rows"), ("logits", "p_stop", "features")),
    "micro_decoder": (("features", "token"), ("logits", "p_stop")),
}


def _check_graphs(manifest: Manifest) -> None:
    """Check that the graphs have all inputs and outputs that the runtime binds."""
    flavor, length = manifest.flavor, manifest.cache_slots
    portable = flavor == "portable"
    _require(portable == (length > 0), f"{flavor} graphs with a cache_slots of {length}")
    layouts = {"base": manifest.kv, "micro_decoder": manifest.kv.micro(manifest.model.micro_layers)}
    for name in manifest.model.graph_names:
        graph, (inputs, outputs) = manifest.graph(name), _BOUND[name]
        if layout := layouts.get(name):
            parts = [f"{part}.{layer}" for layer in range(layout.layers) for part in ("key", "value")]
            lengths = ("used",) if portable else ("last_slot", "total_slots")
            inputs = (*inputs, *lengths, *(f"past_{part}" for part in parts))
            outputs = (*outputs, *(f"{'new' if portable else 'present'}_{part}" for part in parts))
            _check_cache(graph, layout)
        for kind, wanted, there in (("input", inputs, graph.inputs), ("output", outputs, graph.outputs)):
            missing = min({*wanted} - {tensor.name for tensor in there}, default=None)
            _require(missing is None, f"{name} has no {kind} {missing!r}")


def _check_cache(graph: GraphSpec, layout: KVLayout) -> None:
    for tensor in (*graph.inputs, *graph.outputs):
        if tensor.name.startswith(("past_", "present_", "new_")):  # [1, K, entries, D]
            fixed = (*tensor.dims[:2], *tensor.dims[3:])
            _require(
                tensor.dtype == layout.dtype and fixed == (1, layout.kv_heads, layout.head_size),
                f"{graph.name}.{tensor.name} is {tensor.dtype} {list(tensor.shape)}, but kv has "
                f"{layout.kv_heads} heads of {layout.head_size}, {layout.dtype} there",
            )


def _check_names(manifest: Manifest) -> None:
    listed = [file.path for file in manifest.files]
    _require(len(set(listed)) == len(listed), "a file is listed twice")
    for file in manifest.files:
        _require(_inside(file.path), f"file path {file.path!r} leaves the bundle, or is no file's name")
        _require(file.path != FILE_NAME, "the manifest lists itself")
        _require(0 <= file.bytes < 1 << 46, f"{file.path}: {file.bytes} bytes is out of range")
        hexadecimal = len(file.sha256) == 64 and all(c in "0123456789abcdef" for c in file.sha256)
        _require(hexadecimal, f"{file.path}: sha256 {file.sha256[:80]!r} is not 64 hexadecimal digits")
    wanted = [graph.file for graph in manifest.graphs] + ([manifest.tokenizer] if manifest.tokenizer else [])
    if manifest.gguf:
        parts = 3 if manifest.model.has_graft else 1
        _require(len(manifest.gguf.files) == parts, f"gguf must name {parts} files")
    for part in manifest.gguf.files if manifest.gguf else ():
        wanted.append(part.file)
        _require(0 < part.header_bytes < 1 << 30, f"{part.file}: header_bytes is out of range")
    for path in wanted:
        _require(path in listed, f"{path!r} is not in the list of files")
    for graph in manifest.graphs:  # ONNX Runtime reads other extensions as another format
        _require(graph.file.endswith(".onnx"), f"graph {graph.file!r} is no .onnx file")
    names = [graph.name for graph in manifest.graphs]
    _require(len(set(names)) == len(names), "a graph is listed twice")
    graphs = manifest.model.graph_names
    _require(not names or {*names} == {*graphs}, f"graphs must be {', '.join(graphs)}, got {names}")
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
    """Whether this is a plain relative path on every system.

    Parent steps, drives, backslashes, control characters and surrogates (possible in JSON) are refused.
    """
    pure = PurePosixPath(path)
    return (
        bool(pure.parts)
        and not pure.is_absolute()
        and ".." not in pure.parts
        and pure.as_posix() == path
        and not any(c in '\\:*?"<>|' or ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in path)
    )
