"""The other programs that `bench --peers` measures."""

from __future__ import annotations

from dataclasses import replace

from hamburger_edge.benchmarks.contender import Program

_HERE = "hamburger_edge.benchmarks.peers"


def _settings(program: Program, name: str, precisions: tuple[str, ...]) -> dict[str, Program]:
    """Return a program at each precision ("": the bundle's), and each of these with prompt lookup."""
    return {
        "-".join(filter(None, (name, precision, lookup))): replace(
            program,
            options={"precision": precision, "lookup": bool(lookup)},
            continues=not precision and not lookup,
            answers=True,
        )
        for precision in ("", *precisions)
        for lookup in ("", "lookup")
    }


GENAI = Program(f"{_HERE}.genai:Genai", ("onnxruntime_genai", "onnx_ir", "transformers"), "onnxruntime-genai")
LLAMA = Program(f"{_HERE}.llama_cpp:Llama", ("llama_cpp",), "llama-cpp-python")

PEERS = {
    **_settings(GENAI, "onnxruntime-genai", ("int4", "int4-k_quant", "int8")),
    **_settings(LLAMA, "llama.cpp", ("q4_1", "q4_0", "iq4_nl", "q8_0")),
    "optimum": Program(
        f"{_HERE}.transformers:Optimum", ("optimum.onnxruntime", "transformers"), "optimum-onnx"
    ),
    "transformers": Program(f"{_HERE}.transformers:Transformers", ("transformers",), "transformers"),
}
