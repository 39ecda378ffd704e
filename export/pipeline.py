"""Export: a checkpoint becomes a bundle, or nothing at all.

    load -> quantize -> trace three graphs -> weights.bin -> parity gate -> manifest -> rename into place
         and/or -> three GGUF files -> parity gate -^

Everything is written to a hidden folder beside the target and renamed at the end; the manifest, without
which nothing opens a folder, is the last file in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Collection
from pathlib import Path

import onnx_ir as ir
from torch import Tensor

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.manifest import FILE_NAME, KIND, KV_TYPES, Flavor, Manifest, PrecisionPlan
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import (
    BundleError,
    ConfigError,
    HamburgerWarning,
    InputError,
    MissingExtraError,
    RuntimeUnavailable,
)
from hamburger_edge.export.description import TOKENIZER, manifest_of
from hamburger_edge.export.gguf.tensors import make_gguf_plan
from hamburger_edge.export.gguf.writer import calibrated_layers, check_supported, write_gguf
from hamburger_edge.export.graphs.modules import GRAPHS, FusedAttention
from hamburger_edge.export.graphs.portable import OPSET as PORTABLE_OPSET
from hamburger_edge.export.graphs.portable import PortableAttention, pack_nibbles
from hamburger_edge.export.graphs.signatures import graph_ios
from hamburger_edge.export.graphs.tracing import OPSET, trace
from hamburger_edge.export.graphs.weight_file import WeightFile
from hamburger_edge.export.parity.gate import check_parity
from hamburger_edge.export.quantization.calibration import measure
from hamburger_edge.export.quantization.moments import Moments
from hamburger_edge.export.quantization.plan import apply_plan, fit_plan, make_plan, needs_moments
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import locked
from hamburger_edge.support.folders import publish, strangers
from hamburger_edge.support.strict import read_json
from hamburger_edge.support.values import whole_in

# (stage, done, of): "loading", "quantizing", "tracing base", "verifying", "finishing"; of 0: not countable
Progress = Callable[[str, int, int], None]

WEIGHTS = "weights.bin"
DEFAULT_CONTEXT, SHORTEST = 2048, 64  # slots of a portable cache; the parity gate needs some room


def export(
    source: str | Path | Checkpoint,
    out: str | Path,
    *,
    formats: Collection[str] = ("onnx",),
    flavor: Flavor = "fused",
    precision: str = "fp32",
    gguf_precision: str | None = None,
    block_size: int | None = None,
    keep_head: str | None = None,
    prefer: str = "accuracy",
    kv: str | None = None,
    context: int | None = None,
    verify: bool = True,
    force: bool = False,
    progress: Progress = lambda stage, done, of: None,
) -> Path:
    """Write the bundle of a checkpoint (a folder, a built-in name, or one already loaded) to `out`.

    `context` is the length of a portable bundle's cache; fused ones choose theirs when loaded, and
    hold it in 32 bits (`kv` "fp32"), 16 ("fp16") or 8 ("int8", the default where weights have no more).
    `formats` are "onnx", "gguf" or both; GGUF files have `gguf_precision`, by default what comes nearest to
    `precision`.
    """
    out = Path(out).resolve()  # a link to a bundle stands for that bundle
    if not formats or set(formats) - {"onnx", "gguf"}:
        raise InputError(f"formats must be 'onnx', 'gguf' or both, got {', '.join(formats) or 'none'}")
    plan = gguf_plan = None
    if "gguf" in formats:
        gguf_plan = make_gguf_plan(gguf_precision or precision)
    if "onnx" in formats:
        plan = make_plan(precision, block_size=block_size, keep_head=keep_head, prefer=prefer)
    if flavor not in ("fused", "portable"):
        raise InputError(f"flavor must be 'fused' or 'portable', got {flavor!r}")
    if flavor == "portable" and prefer != "accuracy":
        raise InputError("prefer 'speed' is for fused graphs: leave it out, or flavor 'portable'")
    if kv not in (None, *KV_TYPES):
        raise InputError(f"kv must be one of {', '.join(map(repr, KV_TYPES))}, got {kv!r}")
    if context is not None and (flavor != "portable" or plan is None):
        raise InputError(
            "context is the cache length of portable graphs: others take any when they are loaded"
        )
    if gguf_precision is not None and gguf_plan is None:
        raise InputError("gguf_precision is for GGUF files: add  --format gguf")
    if plan is None and (block_size, keep_head, flavor, prefer) != (None, None, "fused", "accuracy"):
        raise InputError("block_size, keep_head, flavor and prefer are for graphs: add  --format onnx")
    if kv in ("fp16", "int8") and (flavor == "portable" or plan is None):
        raise InputError(
            f"kv {kv!r} is for fused graphs: leave it out (llama.cpp's --kv is an option of run)"
        )
    lock = cache_folder() / "locks" / hashlib.sha256(os.fsencode(out)).hexdigest()[:16]
    try:
        with locked(lock):
            _check_target(out, force)
            for stale in _left_over(out):
                shutil.rmtree(stale, ignore_errors=True)
            progress("loading", 0, 0)
            checkpoint = source if isinstance(source, Checkpoint) else load_checkpoint(source)
            _check_template(checkpoint)
            if gguf_plan is not None:
                check_supported(checkpoint.model.config)
            partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
            partial.mkdir(parents=True)
            try:
                manifest = None
                if plan is not None:
                    if flavor == "fused":
                        plan = fit_plan(plan, checkpoint.model, tiers=keep_head is None)
                    manifest = write_graphs(
                        checkpoint,
                        partial,
                        flavor=flavor,
                        plan=plan,
                        kv=kv or _cache_type(checkpoint, plan, flavor),
                        context=context,
                        progress=progress,
                    )
                    if verify:
                        check_parity(partial, manifest, checkpoint, progress=progress)
                if gguf_plan is not None:
                    manifest = add_gguf(checkpoint, partial, manifest, plan=gguf_plan, progress=progress)
                    if verify:
                        check_gguf_parity(partial, manifest, checkpoint, progress)
                assert manifest is not None
                progress("finishing", 0, 0)
                manifest.save(partial)
                load_manifest(partial)  # what this program would refuse to read is not put in place
                if out.exists() and not force:
                    raise InputError(f"{out} appeared while this export ran: use --force to replace it")
                publish(partial, out)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise BundleError(
            f"{error.filename or out}: {error.strerror or error}: check space and permissions"
        ) from error
    return out


def _cache_type(checkpoint: Checkpoint, plan: PrecisionPlan, flavor: Flavor) -> str:
    """8 bits are a quarter of the memory, and ONNX Runtime attends to them faster; ranges come from text."""
    fits = flavor == "fused" and plan.base in ("int8", "int4") and checkpoint.tokenizer is not None
    return "int8" if fits else "fp32"


def _left_over(out: Path) -> list[Path]:
    """What exports to this very place wrote before they were killed."""
    name = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.partial")
    there = out.parent.iterdir() if out.parent.is_dir() else ()
    return [path for path in there if name.fullmatch(path.name)]


def _check_target(out: Path, force: bool) -> None:
    if not out.name:
        raise InputError(f"{out}: not a folder name for a bundle")
    if out.exists() and not force:
        raise InputError(f"{out} exists already: use --force to replace it, or choose another folder")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    ours = _files_of_bundle(out)
    if not ours:
        raise InputError(
            f"{out} is not a bundle: it will not be replaced; choose another folder, or delete it"
        )
    if others := strangers(out, ours):
        raise InputError(
            f"{out} holds {others[0]}, which exporting would delete: choose another or move it away"
        )


def _check_template(checkpoint: Checkpoint) -> None:
    try:
        ChatTemplate.from_json(checkpoint.chat_template)
    except ConfigError as error:
        raise ConfigError(f"{checkpoint.path}: {error}") from error


def _files_of_bundle(folder: Path) -> set[str]:
    """What a bundle of any version says it consists of; nothing if this is none."""
    try:
        data = read_json(folder / FILE_NAME)
    except ConfigError:
        return set()
    if not isinstance(data, dict) or data.get("kind") != KIND:
        return set()
    listed = data.get("files")
    files = listed if isinstance(listed, list) else []
    return {FILE_NAME, *(str(file.get("path")) for file in files if isinstance(file, dict))}


def write_graphs(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    flavor: Flavor,
    plan: PrecisionPlan,
    kv: str,
    context: int | None,
    progress: Progress,
) -> Manifest:
    """All files of a bundle but the manifest, which is returned."""
    model = checkpoint.model
    config = model.config
    if flavor == "fused" and config.base.head_dim % 16:
        raise ConfigError(
            f"heads of {config.base.head_dim} do not fit ONNX Runtime's fused attention (multiples of 16): "
            "export with --flavor portable"
        )
    most = config.base.context_length
    cache_length = 0 if flavor == "fused" else min(DEFAULT_CONTEXT, most)
    if context is not None:
        cache_length = whole_in("context", context, min(SHORTEST, most), most)
    ios = graph_ios(config, context=cache_length, kv=KV_TYPES[kv])
    layers = sum(1 for module in model.modules() if type(module).__name__ == "Linear")
    done = 0

    def count(part: str) -> None:
        nonlocal done
        progress("quantizing", done, layers)
        done += 1

    small = kv == "int8"
    if small and checkpoint.tokenizer is None:
        raise ConfigError(
            "an int8 cache is calibrated on text: give the checkpoint a tokenizer, or --kv fp32"
        )
    moments, scales = _calibrate(checkpoint, needs_moments(model, plan), cache=small, progress=progress)
    portable = flavor == "portable"
    own, vocabulary = apply_plan(model, plan, moments, count, portable=portable)
    moments.clear()
    with contextlib.closing(WeightFile(folder / WEIGHTS)) as weights:
        for name in GRAPHS:
            progress(f"tracing {name}", 0, 0)
            attention = PortableAttention if portable else FusedAttention
            graph = GRAPHS[name](own, vocabulary, ios[name], attention, scales if name == "base" else None)
            traced = trace(graph, PORTABLE_OPSET if portable else OPSET)
            pack_nibbles(traced)
            weights.take(traced)
            ir.save(traced, folder / ios[name].spec.file)
    if checkpoint.tokenizer is not None:
        copy_tokenizer(checkpoint.tokenizer, folder / TOKENIZER)
    progress("hashing", 0, 0)
    return manifest_of(
        checkpoint, folder, ios, flavor=flavor, plan=plan, kv=KV_TYPES[kv], cache_length=cache_length
    )


def _calibrate(
    checkpoint: Checkpoint, layers: Collection[str], *, cache: bool, progress: Progress
) -> tuple[dict[str, Moments], dict[str, Tensor]]:
    """Moments and cache ranges, see `measure`; nothing where there is no tokenizer to read text with."""
    if checkpoint.tokenizer is None:
        return {}, {}
    return measure(
        checkpoint, layers, cache=cache, progress=lambda done, of: progress("calibrating", done, of)
    )


def copy_tokenizer(source: Path, target: Path) -> None:
    """Without the blanks: a third of the usual file, and of the time to read it."""
    content = json.loads(source.read_text(encoding="utf-8"))
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    target.write_text(text, encoding="utf-8")


def add_gguf(
    checkpoint: Checkpoint,
    folder: Path,
    manifest: Manifest | None,
    *,
    plan: PrecisionPlan,
    progress: Progress,
) -> Manifest:
    """The GGUF files, beside the graphs of a manifest or on their own."""
    layers = calibrated_layers(checkpoint.model, plan)
    moments, _ = _calibrate(checkpoint, layers, cache=False, progress=progress)
    part = write_gguf(checkpoint, folder, plan=plan, moments=moments, progress=progress)
    moments.clear()
    progress("hashing", 0, 0)
    if manifest is None:
        if checkpoint.tokenizer is not None:
            copy_tokenizer(checkpoint.tokenizer, folder / TOKENIZER)
        manifest = manifest_of(checkpoint, folder, {}, flavor="gguf", plan=plan, cache_length=0)
    return dataclasses.replace(manifest, gguf=part, files=tuple(file_entries(folder)))


def check_gguf_parity(folder: Path, manifest: Manifest, checkpoint: Checkpoint, progress: Progress) -> None:
    """Files may be written for another machine, on one that cannot run them."""
    try:
        check_parity(folder, manifest, checkpoint, backend="llamacpp", progress=progress)
    except (MissingExtraError, RuntimeUnavailable) as error:
        warnings.warn(f"the GGUF files were not compared: {error}", HamburgerWarning, stacklevel=2)
