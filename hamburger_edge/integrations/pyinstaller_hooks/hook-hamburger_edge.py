"""PyInstaller's instructions for an app that imports hamburger_edge.

`load` imports a runtime by its name, and llguidance is imported at the first structure: PyInstaller does not
see such imports. For GGUF files an app names `hamburger_edge.runtimes.llamacpp.llamacpp_backend` as a hidden
import itself.
"""

from __future__ import annotations

from importlib.util import find_spec

from PyInstaller.utils.hooks import copy_metadata

hiddenimports = ["hamburger_edge.runtimes.onnx.onnx_backend"]
datas = copy_metadata("hamburger-edge")
if find_spec("llguidance") is not None:
    hiddenimports += ["llguidance"]
    datas += copy_metadata("llguidance")  # its import reads its version

# Used by functions that export, train and fetch from the hub. An app that imports one itself keeps it.
excludedimports = [
    "accelerate",
    "huggingface_hub",
    "matplotlib",
    "onnx",
    "onnxscript",
    "optimum",
    "ray",
    "safetensors",
    "torch",
    "transformers",
]
