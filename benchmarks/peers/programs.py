"""The other programs that `bench --peers` measures."""

from __future__ import annotations

from hamburger_edge.benchmarks.contender import Program

_HERE = "hamburger_edge.benchmarks.peers"

PEERS = {
    "onnxruntime-genai": Program(
        f"{_HERE}.genai:Genai",
        ("onnxruntime_genai", "onnx_ir", "transformers"),
        "onnxruntime-genai",
        continues=True,
        answers=True,
    ),
    "llama.cpp": Program(
        f"{_HERE}.llama_cpp:Llama", ("llama_cpp",), "llama-cpp-python", continues=True, answers=True
    ),
    **{
        f"llama.cpp-{precision}": Program(
            f"{_HERE}.llama_cpp:Llama",
            ("llama_cpp",),
            "llama-cpp-python",
            options={"precision": precision},
            answers=True,
        )
        for precision in ("q4_0", "q8_0")
    },
    "llama.cpp-lookup": Program(
        f"{_HERE}.llama_cpp:Llama", ("llama_cpp",), "llama-cpp-python", options={"lookup": True}
    ),
    "optimum": Program(
        f"{_HERE}.transformers:Optimum", ("optimum.onnxruntime", "transformers"), "optimum-onnx"
    ),
    "transformers": Program(f"{_HERE}.transformers:Transformers", ("transformers",), "transformers"),
}
