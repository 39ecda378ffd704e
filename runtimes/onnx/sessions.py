"""Open ONNX Runtime sessions: providers by name, settings for low memory, checks of graphs."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from hamburger_edge.bundle.manifest import GraphSpec, TensorSpec
from hamburger_edge.errors import (
    BundleError,
    HamburgerWarning,
    InputError,
    RuntimeFailureError,
    RuntimeUnavailableError,
)
from hamburger_edge.support.processors import MOST_THREADS
from hamburger_edge.support.values import among, safe_repr, whole_in

_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}
_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
}


# operators that take most of a step's time; a warning names those that run elsewhere
_COMPUTE = re.compile(r"MatMul|Gemm|Attention")
_NO_MEMORY = re.compile(r"bad_alloc|allocate memory|out of memory|failed to allocate", re.IGNORECASE)


@dataclass(frozen=True)
class Provider:
    name: str  # "cpu", "cuda", "coreml"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """The device that holds the caches."""
        return "cuda" if self.name == "cuda" else "cpu"

    @property
    def device_id(self) -> int:
        """The number of the device, from the provider's options."""
        given = self.options.get("device_id", 0)
        digits = isinstance(given, str) and re.fullmatch("[0-9]{1,4}", given)  # ONNX Runtime takes texts too
        return whole_in("provider_options device_id", int(given) if digits else given, 0, 1023)

    @property
    def order(self) -> list[Any]:
        """The providers for ONNX Runtime: this one, and the CPU for unsupported operators."""
        chosen = [(_NAMES[self.name], self.options)]
        return chosen if self.name == "cpu" else [*chosen, _NAMES["cpu"]]


def choose_provider(name: str, options: dict[str, Any] | None, flavor: str = "fused") -> Provider:
    """Choose a provider by name, or "auto": the fastest in this build that supports the graphs' operators,
    with a warning if that is the CPU. Options are the named provider's; "auto" on the CPU takes none."""
    if options is not None and not isinstance(options, dict):
        raise InputError(f"provider_options must be a dictionary, got {safe_repr(options)}")
    here = [short for short, full in _NAMES.items() if full in ort.get_available_providers()]
    if among(name, ("auto",)):
        # CoreML lacks ONNX Runtime's own operators, which fused graphs use
        fitting = ("cuda", "coreml") if flavor == "portable" else ("cuda",)
        best = next((short for short in fitting if short in here), "cpu")
        if best == "cpu":
            reason = "this onnxruntime has no accelerator"
            if "coreml" in here:
                reason = "CoreML does not know the operators of fused graphs (--flavor portable has others)"
            warnings.warn(f"provider 'auto': {reason}, running on the CPU", HamburgerWarning, stacklevel=2)
        return Provider(best, (options or {}) if best != "cpu" else {})
    if not among(name, _NAMES):
        raise InputError(f"unknown provider {safe_repr(name)} (known: auto, {', '.join(_NAMES)})")
    if name not in here:
        raise RuntimeUnavailableError(
            f"provider {name!r} is not in this onnxruntime {ort.__version__}, which has: {', '.join(here)}; "
            "install the onnxruntime package made for it"
        )
    return Provider(name, options or {})


def open_graph(
    folder: Path,
    graph: GraphSpec,
    provider: Provider,
    threads: int | None,
    *,
    fold: bool = True,
) -> ort.InferenceSession:
    """`fold`: whether constants are computed while loading.

    Casts of float16 weights and scales need it, and heads that are stored as rows. It copies what
    `GatherBlockQuantized` and `MatMulNBits` would read from the mapped file.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = whole_in("threads", threads, 1, MOST_THREADS)
    options.inter_op_num_threads = 1
    if provider.name != "cpu":
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # the sessions alternate: a pool that spins after its run slows the next one
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = ort.InferenceSession(
            folder / graph.file,
            options,
            providers=provider.order,
            enable_fallback=0,  # it would say so on standard output, and go on without what was asked for
            disabled_optimizers=None if fold else ["ConstantFolding"],
        )
    except Exception as error:  # ONNX Runtime's errors have no common base class
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            raise RuntimeFailureError(
                f"{folder / graph.file}: not enough memory to load it: close other programs, or export it "
                "with a lower --precision"
            ) from error
        if provider.name != "cpu":
            raise RuntimeUnavailableError(
                f"provider {provider.name!r} cannot open {folder / graph.file} ({_first_line(error)}): "
                "check its driver and its options, or use --provider cpu"
            ) from error
        raise BundleError(f"{folder / graph.file}: {_first_line(error)}: export it again") from error
    if _NAMES[provider.name] not in session.get_providers():  # ONNX Runtime continues without it
        raise RuntimeUnavailableError(
            f"provider {provider.name!r} is in this onnxruntime {ort.__version__} but could not start here: "
            "check its driver and libraries, or use --provider cpu"
        )
    _warn_of_fallbacks(folder / graph.file, session, provider)
    _check(folder / graph.file, "input", graph.inputs, session.get_inputs())
    _check(folder / graph.file, "output", graph.outputs, session.get_outputs())
    return session


def _warn_of_fallbacks(file: Path, session: ort.InferenceSession, provider: Provider) -> None:
    """Warn of operators that run on the CPU instead, with copies to and from the device."""
    assigned = getattr(session, "get_provider_graph_assignment_info", None)
    if provider.name == "cpu" or assigned is None:  # onnxruntime 1.31 does not report it
        return
    on_cpu = [part for part in assigned() if part.ep_name == _NAMES["cpu"]]
    kinds = Counter(node.op_type for part in on_cpu for node in part.get_nodes())
    counts = [f"{count} {kind}" for kind, count in kinds.most_common() if _COMPUTE.search(kind)]
    if counts:
        warnings.warn(
            f"{file}: on the CPU instead of {provider.name}: {', '.join(counts[:4])}; this is slow: export "
            "it again with --flavor portable, or use --provider cpu",
            HamburgerWarning,
            stacklevel=2,
        )


def run(session: ort.InferenceSession, binding: Any, name: str) -> None:
    """Run the graph of this name once."""
    try:
        session.run_with_iobinding(binding)
    except Exception as error:
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            remedy = "not enough memory: close other programs, or load it with a smaller cache_slots"
        else:
            remedy = f"{_first_line(error)}: check the bundle with  hamburger-edge verify"
        raise RuntimeFailureError(f"ONNX Runtime could not run {name}: {remedy}") from error


def _check(file: Path, kind: str, declared: tuple[TensorSpec, ...], tensors: list[Any]) -> None:
    """Compare the graph's inputs and outputs with the manifest: name, type and fixed dimensions."""
    here = {tensor.name: tensor for tensor in tensors}
    if list(here) != [spec.name for spec in declared]:
        odd = sorted(set(here) ^ {spec.name for spec in declared}) or ["their order"]
        raise BundleError(f"{file}: its {kind}s differ from the manifest's in {odd[0]}: export it again")
    for spec in declared:
        tensor = here[spec.name]
        fixed = [dim if isinstance(dim, int) else None for dim in spec.dims]
        shape = [dim if isinstance(dim, int) else None for dim in tensor.shape]
        if _TYPES.get(tensor.type) != np.dtype(spec.dtype).name or shape != fixed:
            raise BundleError(
                f"{file}: {kind} {spec.name} is {tensor.type} {tensor.shape}, but the manifest says "
                f"{spec.dtype} {list(spec.shape)}: export it again"
            )


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    if not text:
        return type(error).__name__
    return text[0] if len(text[0]) <= 400 else f"{text[0][:200]} ... {text[0][-200:]}"
