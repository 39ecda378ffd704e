"""Costs of drafting on this machine: measured once for each bundle, then kept in the cache folder.

A busy machine gives wrong costs. Then measuring ends at once, the bundle's own count, and the next start
tries again.

The length of drafts in `verify` depends on them, its answers do not: rows are exact. `hybrid` merges what it
drafts, so it keeps the bundle's own costs, and its answers are the same on every machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from dataclasses import asdict, replace
from pathlib import Path

import onnxruntime

from hamburger_edge.drafts.drafting import FEW_SLOTS, Costs
from hamburger_edge.errors import HamburgerError
from hamburger_edge.loop.backend import Backend
from hamburger_edge.loop.call_costs import COSTED_ROWS, MANY_SLOTS, time_calls
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.strict import from_mapping, read_json

VARIABLE = "HAMBURGER_EDGE_DRAFT_COSTS"  # "bundle": nothing is measured


def machine_costs(backend: Backend, threads: int) -> Costs | None:
    """Return the costs on this machine, measured at the first start; None: the bundle's own are used."""
    if os.environ.get(VARIABLE) == "bundle":
        return None
    try:
        path = costs_file(backend, threads)
    except RuntimeError:  # a user without a home folder
        return None
    with contextlib.suppress(OSError, HamburgerError):
        if path.exists():
            costs: Costs = from_mapping(Costs, read_json(path), str(path))
            if costs.usable:
                return costs
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        times = time_calls(backend, threads=threads)
        if times is None:
            return None
        costs, usual = times.costs(), backend.info.draft_costs
        if not times.many_slots:
            costs = replace(costs, call_slots=usual.call_slots, row_slots=usual.row_slots)
        with write_atomically(path) as partial:
            partial.write_text(json.dumps(asdict(costs)), encoding="utf-8")
    except OSError:  # where nothing can be kept, every start would measure
        return None
    return costs


def costs_file(backend: Backend, threads: int) -> Path:
    """Return the file of a bundle on this processor, with so many threads and this ONNX Runtime."""
    info = backend.info
    measured = COSTED_ROWS, FEW_SLOTS, MANY_SLOTS
    parts = info.fingerprint, info.provider, threads, _processor(), onnxruntime.__version__, measured
    return cache_folder() / "costs" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    with contextlib.suppress(OSError):  # Linux: the model and its instructions
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        lines = text.partition("\n\n")[0].splitlines()
        return "".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    return f"{platform.machine()} {platform.processor()}"
