"""From a checkpoint's folder `assembly` and its weights to the bundle that an export wrote, byte for byte."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, CheckpointError
from hamburger_edge.export.assembly.recipe import (
    STORED,
    WEIGHTS,
    AssemblyRecipe,
    Product,
    TokenTable,
    read_recipe,
)
from hamburger_edge.export.assembly.weights import Weights, base_of, tokenizer_beside
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.export.quantization.int8_columns import quantize_columns, quantize_table
from hamburger_edge.loop.answer_facts import AnswerFacts
from hamburger_edge.models.bases.sources.fetch import base_folder, fetch, is_complete
from hamburger_edge.models.bases.sources.terms import copy_terms
from hamburger_edge.models.checkpoints.manifest import MANIFEST, PARTS, CheckpointManifest, read_manifest
from hamburger_edge.support.files import DRAFT_INDEX, is_terms
from hamburger_edge.support.folders import clear_leftovers, publish
from hamburger_edge.support.processors import usable_processors
from hamburger_edge.support.progress import Progress, no_progress

MOST_THREADS = 4  # each has some matrices of float32 in hand


def assemble(checkpoint: Path, out: Path, *, progress: Progress = no_progress) -> Path:
    """Write the bundle to `out`, which is replaced: complete, or not at all. The caller holds a lock for it.

    A base whose files were damaged after their fetch is fetched again, once.
    """
    about = read_manifest(checkpoint / MANIFEST)
    try:
        return _assemble(checkpoint, about, out, progress)
    except (BundleError, CheckpointError):
        if not _mended_base(about, progress):
            raise
        return _assemble(checkpoint, about, out, progress)


def _mended_base(about: CheckpointManifest, progress: Progress) -> bool:
    """Fetch a damaged base again; return False if there is no damage, or if the base was not fetched."""
    if about.base.kind != "fetch":
        return False
    name = str(about.base.name)
    if is_complete(base_folder(name), verify=True, progress=progress):
        return False
    progress(f"{name} is damaged, fetching it again", 0, 0)
    fetch(name, verify=True, progress=progress)
    return True


def _assemble(checkpoint: Path, about: CheckpointManifest, out: Path, progress: Progress) -> Path:
    parts = checkpoint / PARTS
    manifest, recipe = load_manifest(parts), read_recipe(parts)
    base = base_of(checkpoint, about, progress)
    partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
    try:
        clear_leftovers(out)
        partial.mkdir(parents=True)
        for graph in manifest.graphs:
            shutil.copyfile(parts / graph.file, partial / graph.file)
        if manifest.tokenizer is not None:
            compact_tokenizer(_tokenizer(checkpoint, about, base), partial / manifest.tokenizer)
        if any(entry.path == DRAFT_INDEX for entry in manifest.files):
            shutil.copyfile(checkpoint / DRAFT_INDEX, partial / DRAFT_INDEX)
        copy_terms(checkpoint, partial)
        weights = Weights(checkpoint, about, base, Folds.from_json(recipe.folds))
        _write_weights(partial / WEIGHTS, recipe, weights, parts / STORED, progress)
        progress("finishing", 0, 0)
        _checked(partial, manifest, checkpoint, about).save(partial)
        publish(partial, out)
    except OSError as error:
        raise BundleError(
            f"{error.filename or out}: {error.strerror or error}: check space and permissions"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def compact_tokenizer(source: Path, target: Path) -> None:
    """Without the blanks: a third of the usual file, and of the time to read it."""
    content = json.loads(source.read_text(encoding="utf-8"))
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    target.write_text(text, encoding="utf-8")


def _tokenizer(checkpoint: Path, about: CheckpointManifest, base: Path | None) -> Path:
    """The checkpoint's, or else its base's."""
    if about.tokenizer is not None or base is None:
        return checkpoint / (about.tokenizer or "tokenizer.json")
    return tokenizer_beside(base)


def _checked(folder: Path, manifest: Manifest, checkpoint: Path, about: CheckpointManifest) -> Manifest:
    """Return the manifest of the assembled files.

    The hash of the tokenizer depends on the library's version, and some facts are measured after the export;
    terms are the checkpoint's own.
    """
    entries = tuple(file_entries(folder))
    wanted = {entry.path: entry.sha256 for entry in manifest.files}
    for entry in entries:
        same = entry.path == manifest.tokenizer or is_terms(entry.path)
        if not same and wanted.get(entry.path) != entry.sha256:
            raise BundleError(
                f"{checkpoint}: {entry.path} differs from the exported one: the checkpoint was changed after "
                "its assembly was made; make that again with  hamburger-edge export --assembly"
            )
    return dataclasses.replace(manifest, files=entries, **vars(AnswerFacts.of(vars(about))))


def _write_weights(
    path: Path, recipe: AssemblyRecipe, weights: Weights, stored: Path, progress: Progress
) -> None:
    """Several threads: numpy's loops run beside each other."""
    lock, done = threading.Lock(), 0
    jobs: list[Product | TokenTable] = [*recipe.tables, *recipe.products]
    with open(path, "wb") as file:
        file.truncate(recipe.bytes)

        def put(offset: int, data: Any) -> None:
            with lock:
                file.seek(offset)
                file.write(data)

        def make(job: Product | TokenTable) -> None:
            nonlocal done
            for offset, array in _arrays(job, weights):
                put(offset, np.ascontiguousarray(array).data)
            with lock:
                done += 1
                progress("assembling", done, len(jobs))

        for plain in recipe.plain:
            array = np.ascontiguousarray(weights.plain(plain.name, plain.bytes), np.float32)
            if array.nbytes != plain.bytes:
                raise CheckpointError(
                    f"tensor {plain.name} has {array.nbytes} bytes, expected {plain.bytes}: make the "
                    "assembly again with  hamburger-edge export --assembly"
                )
            put(plain.offset, array.data)
        if recipe.stored:
            kept = memoryview(stored.read_bytes())
            for span in recipe.stored:
                put(span.offset, kept[: span.bytes])
                kept = kept[span.bytes :]
        with ThreadPoolExecutor(min(MOST_THREADS, usable_processors())) as pool:
            for _ in pool.map(make, jobs):  # raises what a thread raised
                pass


def _arrays(job: Product | TokenTable, weights: Weights) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """(offset, array) of all that a product or a table consists of."""
    if isinstance(job, TokenTable):
        values, scales = quantize_table(weights.rows(job.origin))
        yield job.values, values.T
        yield job.scales, scales
        return
    quantized = [quantize_columns(weights.rows(origin)) for origin in job.origins]
    values, scales = (np.concatenate(parts, axis=-1) for parts in zip(*quantized, strict=True))
    start = 0
    for tile in job.tiles:
        columns = slice(start, start + tile.width)
        yield tile.values, values[:, columns].T if job.in_rows else values[:, columns]
        if tile.scales is not None:
            yield tile.scales, scales[columns]
        start += tile.width
