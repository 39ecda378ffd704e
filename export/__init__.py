"""Export: a checkpoint becomes a bundle.

pipeline        from the checkpoint to the finished folder: start here
options         all options of an export, with defaults and checks
precision_plan  the precision of each layer
quantization/   how weights are rounded: scales, zero points, calibration
graphs/         ONNX graphs and the file of their weights
gguf/           GGUF files for llama.cpp
parity/         the parity gate, also `hamburger-edge verify`
description     the manifest of the written files
target          the output folder: replacing a bundle, clearing the remains of killed exports
"""
