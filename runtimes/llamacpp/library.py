"""The llama.cpp library of llama-cpp-python: finding, checking and silencing it, and the used functions.

Everything that depends on its version is in this file: mangled symbols, struct fields, log lines.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hamburger_edge.errors import RuntimeUnavailableError, require
from hamburger_edge.loop.backend import Floats

VERSIONS = ("0.3.36",)  # of llama-cpp-python, with these structs and private symbols

# Not in llama.h, so C++ names: Itanium (Linux, macOS), Microsoft, and plain if it becomes public.
LAYER_INPUT = {
    "set": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        "llama_set_embeddings_layer_inp",
    ),
    "get": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        "llama_get_embeddings_layer_inp",
    ),
}
KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}  # ggml's numbers
KV_BYTES = {"f32": (1, 4), "f16": (1, 2), "q4_0": (32, 18), "q8_0": (32, 34)}  # weights, bytes of a block
FLASH = {None: -1, False: 0, True: 1}  # None: llama.cpp decides

ERROR = 4  # of ggml's log levels
POINTER, SIZE, INT, FLAG = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_bool


class Library:
    """Functions of libllama with our prototypes: addresses are plain integers."""

    def __init__(self, show_log: bool):
        self.python = _import()
        self.low = self.python.llama_cpp  # the bindings' module of structs
        self.log = Log(show_log)
        # For the whole process, and for good: a message may come from any thread at any time.
        self._log_callback = self.low.llama_log_callback(self.log)
        self.low.llama_log_set(self._log_callback, None)
        self.low.llama_backend_init()
        name = self.function
        self.decode = name("llama_decode", INT, POINTER, self.low.llama_batch)
        self.logits = name("llama_get_logits", POINTER, POINTER)
        self.embeddings = name("llama_get_embeddings", POINTER, POINTER)
        self.set_embeddings = name("llama_set_embeddings", None, POINTER, FLAG)
        self.memory = name("llama_get_memory", POINTER, POINTER)
        self.memory_clear = name("llama_memory_clear", None, POINTER, FLAG)
        self.memory_remove = name("llama_memory_seq_rm", FLAG, POINTER, INT, INT, INT)
        self.memory_last = name("llama_memory_seq_pos_max", INT, POINTER, INT)
        self.state_size = name("llama_state_seq_get_size", SIZE, POINTER, INT)
        self.state_get = name("llama_state_seq_get_data", SIZE, POINTER, POINTER, SIZE, INT)
        self.state_set = name("llama_state_seq_set_data", SIZE, POINTER, POINTER, SIZE, INT)
        self.free_context = name("llama_free", None, POINTER)
        self.free_model = name("llama_model_free", None, POINTER)
        self.set_layer_input = self._optional(LAYER_INPUT["set"], None, POINTER, ctypes.c_uint32, FLAG)
        self.layer_input = self._optional(LAYER_INPUT["get"], POINTER, POINTER, ctypes.c_uint32)
        base = self._ggml_base()
        self.tensor_name = self.function("ggml_get_name", ctypes.c_char_p, POINTER, library=base)
        self.tensor_bytes = self.function("ggml_nbytes", SIZE, POINTER, library=base)
        self.tensor_get = self.function(
            "ggml_backend_tensor_get", None, POINTER, POINTER, SIZE, SIZE, library=base
        )

    @property
    def repacks(self) -> bool:
        """q4_0 and q8_0 have faster kernels on repacked weights. Where llama.cpp is built for AMX, these
        kernels end the process in any product of two or more rows."""
        features = self.function("llama_print_system_info", ctypes.c_char_p)()
        return b"AMX_INT8 = 1" not in features

    @property
    def has_layer_inputs(self) -> bool:
        return self.set_layer_input is not None and self.layer_input is not None

    def function(self, name: str, result: Any, *arguments: Any, library: Any = None) -> Callable[..., Any]:
        try:
            function: Any = (library or self.low._lib)[name]  # a new object, whose prototype we may set
        except AttributeError as error:
            raise RuntimeUnavailableError(
                f"this llama.cpp has no function {name}: {_advice(self.python.__version__)}"
            ) from error
        function.restype, function.argtypes = result, arguments
        declared: Callable[..., Any] = function
        return declared

    def _optional(self, names: tuple[str, ...], result: Any, *arguments: Any) -> Callable[..., Any] | None:
        for name in names:
            try:
                return self.function(name, result, *arguments)
            except RuntimeUnavailableError:
                continue
        return None

    def _ggml_base(self) -> Any:
        loader = self.low.load_shared_library
        try:
            return loader("ggml-base", self.low._base_path)
        except (FileNotFoundError, RuntimeError):  # linked into libllama
            return self.low._lib


class Log:
    """llama.cpp's messages: kept for errors, shown on request only."""

    def __init__(self, show: bool):
        self.show = show
        self.lines: deque[str] = deque(maxlen=20)

    def __call__(self, level: int, text: bytes, _: Any) -> None:
        line = text.decode(errors="replace")
        if self.show:
            print(line, end="", file=sys.stderr, flush=True)
        if level == ERROR and line.strip():
            self.lines.append(line.strip())

    def reason(self) -> str:
        """Return the first error since the last call: later ones are its consequences."""
        first = self.lines[0] if self.lines else "it gives no reason"
        self.lines.clear()
        return " ".join(first.split())[:300]


_loading = threading.Lock()  # a cache alone would let two threads make one each


@functools.cache
def _library() -> Library:
    return Library(False)


def library(show_log: bool = False) -> Library:
    """The one library of this process, loaded on first use."""
    with _loading:
        loaded = _library()
    loaded.log.show = show_log
    loaded.log.lines.clear()
    return loaded


def _import() -> Any:
    try:
        python = require("llama_cpp", "llamacpp")
    except (OSError, RuntimeError, AttributeError) as error:  # its library, or a symbol its bindings name
        raise RuntimeUnavailableError(
            f"llama-cpp-python cannot be loaded ({error}): install it again: {_PIP}"
        ) from error
    if python.__version__ not in VERSIONS:
        raise RuntimeUnavailableError(
            f"llama-cpp-python {python.__version__} is not supported: {_advice(python.__version__)}"
        )
    return python


def _advice(version: str) -> str:
    return f"this is {version}, use {' or '.join(VERSIONS)}, or another backend: {_PIP}"


_PIP = f"pip install 'llama-cpp-python=={VERSIONS[-1]}'"


@functools.lru_cache(64)  # buffers rarely move
def view(address: int, rows: int, width: int) -> Floats:
    """Return an array over memory of llama.cpp."""
    memory = (ctypes.c_float * (rows * width)).from_address(address)
    return np.ctypeslib.as_array(memory).reshape(rows, width)
