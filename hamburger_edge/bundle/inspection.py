"""Describe a bundle without a runtime: sizes, precision, operators, memory, licences."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, MissingExtraError, printable, require
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.support.values import whole_in


def describe(bundle: str | Path, *, cache_slots: int = 4096) -> dict[str, Any]:
    """Return the manifest with total bytes, fingerprint, operators and expected memory.

    Memory is for a KV cache of `cache_slots`, at most the context length; a portable bundle's cache is fixed.
    """
    folder = Path(bundle)
    whole_in("cache_slots", cache_slots, 1, 1 << 31)
    manifest = load_manifest(folder)
    check_files(folder, manifest)
    facts = manifest.to_json()
    if manifest.model.draft_vocab is not None:
        facts["model"]["draft_vocab"] = len(manifest.model.draft_vocab)  # its size instead of its ids
    return {
        **facts,
        "bytes": sum(file.bytes for file in manifest.files),
        "fingerprint": manifest.fingerprint if manifest.graphs else manifest.gguf_fingerprint,
        "operators": operators(folder, manifest),
        "memory": expected_memory(manifest, manifest.slots(cache_slots)),
    }


def expected_memory(manifest: Manifest, slots: int) -> dict[str, Any]:
    """Return the bytes of stored weights and caches, without activations and the runtime.

    They are those of the graphs if there are any. Otherwise they are those of the GGUF files, with
    llama.cpp's default cache type.
    """
    model, kv, loaded = manifest.model, manifest.kv, manifest.graph_files
    if not manifest.graphs:
        kv, loaded = replace(kv, dtype="float16"), manifest.gguf_files
    micro = kv.micro(model.micro_layers).bytes_per_slot if model.has_graft else 0
    return {
        "slots": slots,
        "weights": sum(file.bytes for file in manifest.files if file.path in loaded),
        "kv_type": kv.dtype,
        "kv_per_slot": kv.bytes_per_slot,
        "kv": slots * kv.bytes_per_slot,
        "micro_kv": model.micro_positions * micro,
    }


def show(facts: dict[str, Any]) -> str:
    """Format the result of `describe` as text."""
    model, plan, memory = facts["model"], facts["precision"], facts["memory"]
    head = f"{model['draft_vocab']} tokens" if model["draft_vocab"] else "the whole vocabulary"
    block = f", blocks of {plan['block_size']}" if plan["block_size"] else ""
    grid = f" on its own grid of {plan['grid']}" if plan["grid"] else ""
    rare = f" ({plan['base']} for rare tokens)" if plan["frequent_rows"] else ""
    tools, copied = facts.get("tools", ()), facts.get("copied_fields", ())
    graft, parts = f", graft {plan['graft']}", ["base", "graft"]
    groups = [
        f"groups      up to {model['max_group_tokens']} tokens, merged onto the {model['merge_residual']}; "
        f"positions by {model['position_rule']}; "
        f"taps {', '.join(map(str, model['taps'])) or 'none'}",
        f"micro       {model['micro_layers']} layers, choosing from {head}",
    ]
    if model["max_group_tokens"] == 1:
        graft, parts = "", ["base", "graft"] if facts["graft"]["license"] else ["base"]
        groups = [f"groups      none: a plain model, without a graft; positions by {model['position_rule']}"]
    lines = [
        f"format      {facts['format']}, {facts['flavor']}, written by {facts['producer']}",
        f"model       {model['family']}, {model['num_layers']} layers of {model['hidden_size']}, "
        f"vocabulary {model['vocab_size']}, context {model['context_length']}",
        *groups,
        f"precision   base {plan['base']}{grid}, embeddings and heads {plan['head']}{rare}{graft}{block}",
        *([f"recommended {Recommended(**facts['recommended'])}"] if facts["recommended"] else []),
        *(["certainty   measured: answers have one"] if facts["certainty"] else []),
        *(["edits       its prompts: names and numbers stay"] if facts["edits_prompt"] else []),
        *([f"copies      from its prompts: {', '.join(copied)}"] if copied else []),
        *([f"tools       {', '.join(tool['function']['name'] for tool in tools)}"] if tools else []),
        f"memory      weights {_mib(memory['weights'])}, cache of {memory['slots']} slots "
        f"{_mib(memory['kv'])} ({memory['kv_per_slot']} bytes a slot, {memory['kv_type']})",
        *(f"{part:<12}{_origin(facts[part])}" for part in parts),
        f"fingerprint {facts['fingerprint'][:16]}",
        "",
        *(f"{_mib(file['bytes']):>12}  {file['path']}" for file in facts["files"]),
        f"{_mib(facts['bytes']):>12}  in all",
    ]
    if facts["operators"] is None:
        lines += ["", "operators: listed where the extra [export] is installed"]
    for name, counts in (facts["operators"] or {}).items():
        lines += ["", f"{name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}"]
    return "\n".join(map(printable, lines))


def _origin(origin: dict[str, Any]) -> str:
    source = f" ({origin['source']})" if origin["source"] else ""
    return f"{origin['name']}{source}, licence {origin['license'] or 'not stated'}"


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def operators(folder: Path, manifest: Manifest) -> dict[str, dict[str, int]] | None:
    """Count the nodes of every graph by operator, branches included; None if `onnx` is not installed."""
    graphs = [graph for graph in manifest.graphs if graph.file.endswith(".onnx")]
    if not graphs:
        return {}
    try:
        onnx = require("onnx", "export")
    except MissingExtraError:
        return None
    return {graph.name: dict(_count(onnx, folder / graph.file).most_common()) for graph in graphs}


def _count(onnx: Any, path: Path) -> Counter[str]:
    from google.protobuf.message import DecodeError  # a dependency of onnx

    counts: Counter[str] = Counter()

    def visit(graph: Any) -> None:
        for node in graph.node:
            counts[node.op_type] += 1
            for attribute in node.attribute:
                if attribute.HasField("g"):  # a branch
                    visit(attribute.g)

    try:
        visit(onnx.load(path, load_external_data=False).graph)
    except (DecodeError, ValueError) as error:  # ValueError: a name is not UTF-8
        raise BundleError(f"{path}: not an ONNX graph: copy the bundle again") from error
    return counts
