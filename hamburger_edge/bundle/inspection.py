"""What is in a bundle, without opening a runtime: sizes, precision, operators, memory, terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError
from hamburger_edge.support.terminal import printable
from hamburger_edge.support.values import whole_in


def describe(bundle: str | Path, *, context: int = 4096) -> dict[str, Any]:
    """The manifest, and what follows from it and its files; memory is for a cache of `context` slots, or as
    many as a portable bundle's has, or the model has positions."""
    folder = Path(bundle)
    whole_in("context", context, 1, 1 << 31)
    manifest = load_manifest(folder)
    check_files(folder, manifest)
    facts = manifest.to_json()
    if manifest.model.shortlist is not None:
        facts["model"]["shortlist"] = len(manifest.model.shortlist)  # the ids themselves are for machines
    return {
        **facts,
        "bytes": sum(file.bytes for file in manifest.files),
        "fingerprint": manifest.fingerprint if manifest.graphs else manifest.gguf_fingerprint,
        "operators": {
            graph.name: dict(count_operators(folder / graph.file).most_common())
            for graph in manifest.graphs
            if graph.file.endswith(".onnx")
        },
        "memory": expected_memory(manifest, manifest.slots(context)),
    }


def expected_memory(manifest: Manifest, slots: int) -> dict[str, Any]:
    """Bytes: weights as stored, and caches; activations and the runtime itself come on top.

    Of the graphs, where there are any; else of the GGUF files, with the cache that llama.cpp has by default.
    """
    model, kv, loaded = manifest.model, manifest.kv, manifest.graph_files
    if not manifest.graphs:
        kv, loaded = replace(kv, dtype="float16"), manifest.gguf_files
    micro = kv.micro(model.micro_layers)
    return {
        "slots": slots,
        "weights": sum(file.bytes for file in manifest.files if file.path in loaded),
        "kv_type": kv.dtype,
        "kv_per_slot": kv.bytes_per_slot,
        "kv": slots * kv.bytes_per_slot,
        "micro_kv": model.micro_positions * micro.bytes_per_slot,
    }


def show(facts: dict[str, Any]) -> str:
    """For people."""
    model, plan, memory = facts["model"], facts["precision"], facts["memory"]
    head = f"{model['shortlist']} tokens" if model["shortlist"] else "the whole vocabulary"
    block = f", blocks of {plan['block_size']}" if plan["block_size"] else ""
    grid = f" on its own grid of {plan['grid']}" if plan["grid"] else ""
    rare = f" ({plan['base']} for rare tokens)" if plan["frequent_rows"] else ""
    lines = [
        f"format      {facts['format']}, {facts['flavor']}, written by {facts['producer']}",
        f"model       {model['family']}, {model['num_layers']} layers of {model['hidden_size']}, "
        f"vocabulary {model['vocab_size']}, context {model['context_length']}",
        f"groups      up to {model['max_steps']} tokens; positions by {model['position_rule']}; "
        f"taps {', '.join(map(str, model['taps'])) or 'none'}",
        f"micro       {model['micro_layers']} layers, choosing from {head}",
        f"precision   base {plan['base']}{grid}, embeddings and heads {plan['head']}{rare}, "
        f"graft {plan['graft']}{block}",
        f"memory      weights {_mib(memory['weights'])}, cache of {memory['slots']} slots "
        f"{_mib(memory['kv'])} ({memory['kv_per_slot']} bytes a slot, {memory['kv_type']})",
        *(f"{part:<12}{_origin(facts[part])}" for part in ("base", "graft")),
        f"fingerprint {facts['fingerprint'][:16]}",
        "",
        *(f"{_mib(file['bytes']):>12}  {file['path']}" for file in facts["files"]),
        f"{_mib(facts['bytes']):>12}  in all",
    ]
    for name, operators in facts["operators"].items():
        counted = ", ".join(f"{count} {kind}" for kind, count in operators.items())
        lines += ["", f"{name}: {counted}"]
    return "\n".join(map(printable, lines))


def _origin(origin: dict[str, Any]) -> str:
    source = f" ({origin['source']})" if origin["source"] else ""
    return f"{origin['name']}{source}, licence {origin['license'] or 'not stated'}"


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


# -- operators, read from the protocol buffer itself --------------------------------------------------------

_GRAPH, _NODE, _OP_TYPE, _ATTRIBUTE, _SUBGRAPH = 7, 1, 4, 5, 6  # field numbers of onnx.proto


def count_operators(path: Path) -> Counter[str]:
    """Operators of an ONNX file, those inside branches included."""
    counts: Counter[str] = Counter()
    try:
        for field, graph in _fields(path.read_bytes()):
            if field == _GRAPH:
                _count(graph, counts, depth=0)
    except (IndexError, UnicodeDecodeError, TypeError) as error:
        raise BundleError(f"{path}: not an ONNX graph: copy the bundle again") from error
    return counts


def _count(graph: Any, counts: Counter[str], depth: int) -> None:
    if depth > 8:
        raise IndexError("branches inside branches without end")
    for field, node in _fields(graph):
        if field != _NODE:
            continue
        for part, value in _fields(node):
            if part == _OP_TYPE:
                counts[bytes(value).decode()] += 1
            elif part == _ATTRIBUTE:
                for inner, subgraph in _fields(value):
                    if inner == _SUBGRAPH:
                        _count(subgraph, counts, depth + 1)


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """(field number, content) of the length-delimited fields of a message; others are stepped over."""
    view, at = memoryview(message), 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(view, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _varint(view, at)
            if at + length > len(view):
                raise IndexError("cut short")
            yield key >> 3, view[at : at + length]
            at += length
        else:
            raise IndexError(f"wire type {kind}")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise IndexError("a number without end")
