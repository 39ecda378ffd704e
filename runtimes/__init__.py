"""Backends: what computes a macro step and a micro step. The loop knows them as `loop.backend.Backend`.

    loop/engine --groups, positions--> macro        base, one slot a group  --> logits, p_stop, features
                --features-----------> micro_begin  an empty micro decoder
                --token--------------> micro        the group's next token  --> logits, p_stop

    onnx/       ONNX Runtime on a bundle's graphs: the default
    llamacpp/   stock llama.cpp on a bundle's GGUF files
    torch/      PyTorch on a checkpoint: the reference, which the others have to agree with

Each has an `open_*` that `hamburger_edge.load` calls, and nothing else of it is known outside.
"""
