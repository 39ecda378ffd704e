"""Backends, which compute macro steps and micro steps. They implement `loop.backend.Backend`.

    loop/modes --groups, positions--> macro        base, one slot a group  --> logits, p_stop, features
                --features-----------> micro_begin  an empty micro decoder
                --token--------------> micro        the group's next token  --> logits, p_stop

    onnx/       ONNX Runtime on a bundle's graphs: the default
    llamacpp/   stock llama.cpp on a bundle's GGUF files
    torch/      PyTorch on a checkpoint: the reference for the others

`hamburger_edge.load` calls the `open_*` function of each; nothing else is public.
"""
