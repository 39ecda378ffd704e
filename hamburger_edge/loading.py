"""Open a folder as a model; its files decide the runtime, which is imported on demand."""

from __future__ import annotations

import importlib
import inspect
from os import PathLike
from pathlib import Path
from typing import Any

from hamburger_edge.assembling import assembled_bundle, can_assemble
from hamburger_edge.errors import BundleError, InputError, needing
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.values import among, safe_repr

# backend -> module, function and extra; each function returns (Backend, Background[Tokenizer], ChatTemplate)
_OPENERS = {
    "torch": ("hamburger_edge.runtimes.torch.torch_backend", "open_checkpoint", "export"),
    "onnx": ("hamburger_edge.runtimes.onnx.onnx_backend", "open_bundle", ""),
    "llamacpp": ("hamburger_edge.runtimes.llamacpp.llamacpp_backend", "open_bundle", "llamacpp"),
}


def load(
    path: str | PathLike[str],
    backend: str = "auto",
    *,
    threads: int | None = None,
    cache_slots: int | None = None,
    kv_cache_dtype: str | None = None,
    provider: str | None = None,
    provider_options: dict[str, Any] | None = None,
    gpu_layers: int | None = None,
    flash_attention: bool | None = None,
    verify: bool | None = None,
    log: bool | None = None,
    progress: Progress = no_progress,
) -> Model:
    """Open a bundle, a built-in model ("voice-commands"), or a checkpoint: a folder or a Lightning file.

    The first use of a built-in model fetches its base and makes its bundle in the cache folder, without
    PyTorch. A checkpoint exported with `assembly` works the same way. Backend "torch" opens the checkpoint
    directly.

        threads           CPU threads; None: one per core
        cache_slots       slots of the KV cache; None: 4096, at most the model's context
        kv_cache_dtype    llamacpp: f16 (default), q8_0, q4_0 or f32; onnx uses the exported type
        provider          onnx: execution provider, "cpu" (default), "cuda", "coreml" or "auto"
        provider_options  onnx: options of that execution provider
        gpu_layers        llamacpp: layers on the GPU; None: all
        flash_attention   llamacpp; None: automatic, off for an f32 cache
        verify            onnx, llamacpp: check every file's hash first
        log               llamacpp: show llama.cpp's messages
        progress          reports the progress of making a bundle at its first use

    An option of another backend raises InputError.
    """
    if not among(backend, ("auto", *_OPENERS)):
        raise InputError(f"unknown backend {safe_repr(backend)} (known: auto, {', '.join(_OPENERS)})")
    given: dict[str, Any] = {
        "threads": threads,
        "cache_slots": cache_slots,
        "kv_cache_dtype": kv_cache_dtype,
        "provider": provider,
        "provider_options": provider_options,
        "gpu_layers": gpu_layers,
        "flash_attention": flash_attention,
        "verify": verify,
        "log": log,
    }
    options = {name: value for name, value in given.items() if value is not None}
    try:
        folder = find_bundle(path, backend, progress=progress)
        chosen = _choose(folder, backend)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}: check its name and its rights") from error
    module, function, extra = _OPENERS[chosen]
    with needing(extra):
        opener = getattr(importlib.import_module(module), function)
    known = list(inspect.signature(opener).parameters)[1:]
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"unknown option {unknown[0]!r} for backend {chosen} (known: {', '.join(known)})")
    runtime, tokenizer, template = opener(folder, **options)
    try:
        return Model(runtime, tokenizer.result(), template)
    except BaseException:
        runtime.close()
        raise


def find_bundle(
    path: str | PathLike[str], backend: str = "auto", *, progress: Progress = no_progress
) -> Path:
    """Return the folder that a name stands for: an existing one, or a built-in model's.

    For the ONNX backend, a checkpoint with `assembly` stands for its bundle, which is made at its first use.
    """
    from hamburger_edge.models.checkpoints.built_in import find_folder

    try:
        source = Path(path)
    except TypeError as error:
        raise InputError(f"a bundle is named by its path, got {safe_repr(path)}") from error
    remedy = f"make a bundle with  hamburger-edge export CHECKPOINT -o {source}"
    folder = find_folder(source, BundleError, remedy)
    if backend in ("auto", "onnx") and can_assemble(folder):
        return assembled_bundle(folder, progress=progress)
    return folder


def _choose(path: Path, backend: str) -> str:
    from hamburger_edge.models.checkpoints.manifest import is_lightning

    if (path / "manifest.json").is_file():
        fitting = ["onnx", "llamacpp"]
        if any(path.glob("*.gguf")) and not any(path.glob("*.onnx")):
            fitting = ["llamacpp"]
        kind = "a bundle"
    elif (path / "hamburger.json").is_file() or (is_lightning(path) and path.is_file()):
        fitting, kind = ["torch"], "a checkpoint"
    else:
        raise BundleError(
            f"{path}: neither a bundle (manifest.json) nor a checkpoint (hamburger.json): make a bundle "
            f"with  hamburger-edge export {path} -o BUNDLE"
        )
    if backend == "auto":
        return fitting[0]
    if backend not in fitting:
        raise InputError(f"{path} is {kind}, not for backend {backend!r}: use {' or '.join(fitting)}")
    return backend
