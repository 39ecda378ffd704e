"""The tables of docs/spec/loop.md list the tensors that export declares.

The JavaScript runtime implements that page; runtimes/test_javascript.py compares its tokens with Python's.
"""

from __future__ import annotations

import re

import pytest
from helpers.places import ROOT
from helpers.toys.toy_models import toy_config

from hamburger_edge.export.graphs.signatures import graph_ios

DOCUMENT = (ROOT / "docs" / "spec" / "loop.md").read_text(encoding="utf-8")


def documented(graph: str, applies: set[str]) -> list[list[str]]:
    """Return a graph's rows that apply, one a name: in or out, name, dtype, shape."""
    section = DOCUMENT.split(f"\n### {graph}\n")[1].split("\n### ")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in section.splitlines()]
    tensors = [row for row in rows if row[0] in ("in", "out")]
    assert {row[4] for row in tensors} <= {"always", "fused", "portable", "portable, or rule token"}
    chosen = [row[:4] for row in tensors if row[4] in applies]
    return [[direction, name, *rest] for direction, names, *rest in chosen for name in names.split("`, `")]


@pytest.mark.parametrize(
    ("flavor", "rule", "applies"),
    [
        ("fused", "slot", {"always", "fused"}),
        ("fused", "token", {"always", "fused", "portable, or rule token"}),
        ("portable", "slot", {"always", "portable", "portable, or rule token"}),
    ],
)
def test_documented_tensors_are_the_declared_ones(flavor: str, rule: str, applies: set[str]) -> None:
    sizes = {"vocab": 1009, "d": 64, "F": 5, "K": 3, "D": 16, "micro_vocab": 507, "micro_entries": 11}
    base = {"vocab_size": 1009, "hidden_size": 64, "num_layers": 6, "num_heads": 6, "num_kv_heads": 3}
    graft = {"taps": (0, 1, 2, 3), "max_group_tokens": 6, "draft_vocab_size": 507}
    config = toy_config(**base, head_dim=16, **graft, position_rule=rule)
    names = {str(size): name for name, size in sizes.items()} | {"77": "context"}
    slots, kv = (77, "float32") if flavor == "portable" else (0, "int8")
    for graph in ("embedder", "base", "micro_decoder"):
        io = graph_ios(config, cache_slots=slots, kv=kv)[graph]
        declared = [
            [
                direction,
                re.sub(r"\.0$", ".N", spec.name),
                spec.dtype.replace("int8", "dtype"),
                f"[{', '.join(names.get(n, n) for n in spec.shape)}]",
            ]
            for direction, specs in (("in", io.inputs), ("out", io.outputs))
            for spec in specs
            if not re.search(r"\.[1-9]", spec.name)  # one layer stands for all
        ]
        assert declared == documented(graph, applies)
