"""Export: a checkpoint becomes a bundle.

pipeline        from the checkpoint to the finished folder: start here
options         what may be asked of an export, with defaults and checks
precision_plan  which layer is stored how
quantization/   how weights are rounded: scales, zero points, calibration
graphs/         ONNX graphs and the file of their weights
gguf/           GGUF files for llama.cpp
parity/         the parity gate, also `hamburger-edge verify`
description     the manifest of what was written
target          the output folder: what may be replaced, what killed exports left
"""
