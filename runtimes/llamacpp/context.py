"""A llama.cpp model and one context on it: embeddings in, states and logits out, no object per token.

A context owns numpy arrays and a `llama_batch` that points into them. A step writes rows, decodes, and reads
views of llama.cpp's output buffers.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import (
    BundleError,
    ContextFullError,
    HamburgerError,
    RuntimeFailureError,
    RuntimeUnavailableError,
)
from hamburger_edge.loop.backend import Floats
from hamburger_edge.runtimes.llamacpp.library import FLASH, INT, KV_TYPES, POINTER, Library, view

SEQUENCE = 0  # the only one


class LlamaModel:
    """The weights of one GGUF file. Closing twice is harmless."""

    def __init__(self, library: Library, path: Path, *, gpu_layers: int):
        self.library, self.path = library, path
        low = library.low
        params = low.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.use_extra_bufts = library.repacks
        load = library.function(
            "llama_model_load_from_file", POINTER, ctypes.c_char_p, low.llama_model_params
        )
        self.address: int | None = load(os.fsencode(path), params)
        if self.address is None:
            raise BundleError(
                f"{path}: llama.cpp cannot load it ({library.log.reason()}): export the bundle again"
            )
        self.width = self._ask("llama_model_n_embd")
        self.layers = self._ask("llama_model_n_layer")
        vocab = library.function("llama_model_get_vocab", POINTER, POINTER)(self.address)
        self.vocab_size = library.function("llama_vocab_n_tokens", INT, POINTER)(vocab)

    def _ask(self, name: str) -> int:
        return int(self.library.function(name, INT, POINTER)(self.address))

    def agree(self, width: int, layers: int, vocab_size: int) -> None:
        """Check the sizes that determine buffers and layer numbers: a wrong one would end the process."""
        if (self.width, self.layers, self.vocab_size) != (width, layers, vocab_size):
            raise BundleError(
                f"{self.path}: width, layers and vocabulary are {self.width}, {self.layers}, "
                f"{self.vocab_size}; the manifest implies {width}, {layers}, {vocab_size}: export it again"
            )

    def close(self) -> None:
        if self.address is not None:
            self.library.free_model(self.address)
            self.address = None


class Context:
    """A KV cache of `slots` entries and the arrays of one call of up to `rows` rows."""

    def __init__(
        self,
        model: LlamaModel,
        *,
        slots: int,
        rows: int,
        threads: int,
        kv_cache_dtype: str = "f16",
        flash: bool | None = None,
        sections: int = 1,  # position numbers of a row: 4 with M-RoPE
        embeddings: bool = True,
        capture: Capture | None = None,
    ):
        library, low = model.library, model.library.low
        self.library, self.model, self.capture, self.sections = library, model, capture, sections
        params = low.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = slots, rows, rows, 1
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = KV_TYPES[kv_cache_dtype]
        if kv_cache_dtype == "f32" and flash is None:
            flash = False  # it computes in 16 bits, and f32 is for exact results
        params.flash_attn_type = FLASH[flash]
        params.embeddings = self.embeddings = embeddings
        self.reading: bool | None = embeddings
        params.pooling_type = 0  # none: a state for each row
        params.no_perf = True
        if capture is not None:
            params.cb_eval = capture.callback
        start = library.function("llama_init_from_model", POINTER, POINTER, low.llama_context_params)
        self.address: int | None = start(model.address, params)
        if self.address is None:
            raise RuntimeUnavailableError(
                f"llama.cpp cannot make a context of {slots} slots with a {kv_cache_dtype} cache "
                f"({library.log.reason()}): try fewer slots or kv_cache_dtype='f16'"
            )
        self.memory = library.memory(self.address)
        self.rows: Floats = np.zeros((rows, model.width), np.float32)
        self.positions: npt.NDArray[np.int32] = np.zeros(sections * rows, np.int32)
        self.outputs: npt.NDArray[np.int8] = np.zeros(rows, np.int8)
        self.batch = low.llama_batch()  # no tokens, no sequence numbers: llama.cpp puts in sequence 0
        for name, array in (("embd", self.rows), ("pos", self.positions), ("logits", self.outputs)):
            kind = dict(low.llama_batch._fields_)[name]
            setattr(self.batch, name, ctypes.cast(array.ctypes.data, kind))

    def decode(self, count: int, positions: Sequence[int] | npt.NDArray[Any], *, read: bool = True) -> None:
        """Append the first `count` of `rows`. Without `read` there is no output and the head does not run.

        For states (`embeddings`) llama.cpp requires an output for every row; otherwise only the last row has
        one.
        """
        assert self.address is not None
        if self.embeddings and read != self.reading:
            self.reading = None  # not known, if this is interrupted
            self.library.set_embeddings(self.address, read)
            self.reading = read
        self.outputs[:count] = read and self.embeddings
        self.outputs[count - 1] = read
        if self.sections == 1:
            self.positions[:count] = positions
        else:  # time, height and width all equal the position; the fourth is unused
            self.positions[: 4 * count].reshape(4, count)[:3] = positions
            self.positions[3 * count : 4 * count] = 0
        self.batch.n_tokens = count
        if self.capture is None:
            return self._compute(count)
        rows = int(self.outputs[:count].sum())
        self.capture.begin(count, rows)
        self._compute(count)
        if self.capture.outdated:  # the nodes come in another order: look again
            self.capture.nodes.clear()
            self.capture.begin(count, rows)
            self.remove_from(int(self.positions[0]))
            self._compute(count)
        return None

    def _compute(self, count: int) -> None:
        with _Interrupts():
            code = self.library.decode(self.address, self.batch)
        if code == 1:
            raise ContextFullError(f"{count} more slots do not fit the cache: load with a larger cache_slots")
        if code != 0:
            reason = self.library.log.reason()
            raise RuntimeFailureError(
                f"llama.cpp could not compute {count} rows (code {code}, {reason}): "
                "load the model with a smaller cache_slots, or check the bundle with  hamburger-edge verify"
            )

    def logits(self, count: int) -> Floats:
        """[count, vocab] of the last reading call; valid until the next call."""
        return view(self.library.logits(self.address), count, self.model.vocab_size)

    def states(self, count: int) -> Floats:
        """[count, d] final-normed; valid until the next call."""
        return view(self.library.embeddings(self.address), count, self.model.width)

    def clear(self) -> None:
        self.library.memory_clear(self.memory, False)

    def remove_from(self, position: int) -> None:
        self.library.memory_remove(self.memory, SEQUENCE, position, -1)

    @property
    def last_position(self) -> int:
        """-1 if the cache is empty."""
        return int(self.library.memory_last(self.memory, SEQUENCE))

    def save(self) -> npt.NDArray[np.uint8]:
        size = self.library.state_size(self.address, SEQUENCE)
        state = np.empty(size, np.uint8)
        written = self.library.state_get(self.address, state.ctypes.data, size, SEQUENCE)
        if written != size:
            raise HamburgerError(f"llama.cpp saved {written} of {size} bytes of its cache")
        return state

    def load(self, state: npt.NDArray[np.uint8]) -> bool:
        """Whether llama.cpp accepted all of it. On failure the cache is empty."""
        self.clear()
        taken = self.library.state_set(self.address, state.ctypes.data, state.size, SEQUENCE)
        if taken != state.size:
            self.clear()
        return bool(taken == state.size)

    def close(self) -> None:
        if self.address is not None:
            self.library.free_context(self.address)
            self.address = None


class _Interrupts:
    """Raise a Ctrl-C from the middle of a llama.cpp callback once llama.cpp has returned.

    In the callback Python can only report it. Only the main thread receives it, so only the main thread
    changes the hook.
    """

    def __enter__(self) -> None:
        self.caught = False
        self.here = threading.current_thread() is threading.main_thread()
        if self.here:
            self.before, sys.unraisablehook = sys.unraisablehook, self._look

    def _look(self, unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            self.caught = True
        else:
            self.before(unraisable)

    def __exit__(self, *_: object) -> None:
        if self.here:
            sys.unraisablehook = self.before
        if self.caught:
            raise KeyboardInterrupt


class Capture:
    """Read tensors by name while a graph runs; llama.cpp calls this for every node, before and after it.

    A graph of n rows has its nodes in a fixed order. So the first run compares all names, and later runs
    count nodes and compare the name at the expected one only.
    """

    def __init__(self, library: Library, names: Sequence[str], width: int):
        self.library, self.width = library, width
        self.names = [name.encode() for name in names]
        self.callback = library.low.ggml_backend_sched_eval_callback(self._node)
        # rows of the graph -> number of the node -> index into names
        self.nodes: dict[int, dict[int, int]] = {}
        self.begin(0, 0)

    def begin(self, graph: int, rows: int) -> None:
        """Capture from the next graph of this many rows and outputs; 0 outputs: nothing."""
        self.graph, self.rows, self.count, self.wanted = graph, rows, 0, -1
        self.known = self.nodes.get(graph) if rows else {}
        self.outputs: list[Floats | None] = [None] * len(self.names)

    @property
    def outdated(self) -> bool:
        """Whether the recorded nodes of this graph were wrong."""
        return bool(self.known) and any(values is None for values in self.outputs)

    def _node(self, tensor: int, asking: bool, _: Any) -> bool:
        if not asking:
            self._take(tensor)
            return True
        self.count += 1
        if self.known is None:
            name = self.library.tensor_name(tensor)
            self.wanted = self.names.index(name) if name in self.names else -1
            if self.wanted >= 0:
                self.nodes.setdefault(self.graph, {})[self.count] = self.wanted
            return self.wanted >= 0
        if self.count not in self.known:
            return False
        self.wanted = self.known[self.count]
        return bool(self.library.tensor_name(tensor) == self.names[self.wanted])

    def _take(self, tensor: int) -> None:
        size = self.library.tensor_bytes(tensor)
        if size != 4 * self.rows * self.width:
            return  # `read` raises
        values = np.empty((self.rows, self.width), np.float32)
        self.library.tensor_get(tensor, values.ctypes.data, 0, size)
        self.outputs[self.wanted] = values

    def read(self) -> list[Floats]:
        """Return one array [rows, d] per name."""
        outputs = [values for values in self.outputs if values is not None]
        if len(outputs) < len(self.names):
            missing = self.names[self.outputs.index(None)].decode()
            raise RuntimeUnavailableError(
                f"llama.cpp's graph has no tensor {missing} of {self.rows} rows of {self.width} numbers: "
                "this version of it is not supported"
            )
        return outputs
