"""What goes before a program that is to run as if no extra were installed."""

WITHOUT_EXTRAS = """
import sys
LACKING = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "gguf", "llguidance")
LACKING += ("starlette", "uvicorn")
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""
