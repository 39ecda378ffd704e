"""The stages of an export in their order, each with the share of the time that it usually takes.

Seconds of SmolLM2-135M on two cores. Only their ratios matter, for one progress bar over all stages.
"""

from __future__ import annotations

from hamburger_edge.export.options import FAST, GRAPHS, ExportOptions
from hamburger_edge.export.parity.gate import STAGES as GATE

QUANTIZING = {"int4": 50.0, FAST: 50.0, "int8": 6.0}


def stages_of(options: ExportOptions) -> dict[str, float]:
    stages = {"loading": 4.0}
    if options.has_graphs:
        stages["quantizing"] = QUANTIZING.get(options.precision, 1.0)
        if options.precision in QUANTIZING:  # the ranges of an 8-bit cache
            stages["calibrating"] = 6.0
        stages |= {"tracing base": 8.0, "tracing embedder": 3.0, "tracing micro_decoder": 3.0}
    if options.has_gguf:
        stages["writing GGUF"] = 40.0
    stages["hashing"] = 1.0
    if options.verify:
        first = "verifying graphs"
        partly = options.verify == GRAPHS and not options.has_gguf
        stages |= {first: GATE[first]} if partly else GATE
    return {**stages, "finishing": 0.5}
