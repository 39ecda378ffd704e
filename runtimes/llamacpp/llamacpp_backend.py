"""llama.cpp as a backend: base and micro decoder in two contexts, the rest of the graft in numpy.

groups --embedder, numpy--> embeddings --base.gguf--> logits, features      --stop head, numpy--> p_stop
                                            features, token --micro_decoder.gguf--> logits, state --> p_stop
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

from hamburger_edge.bundle.files import check_files, model_info
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.drafts.drafting import Costs
from hamburger_edge.errors import BundleError, ClosedError, InputError
from hamburger_edge.loop.backend import Floats, MicroReadout, Readout, Snapshot
from hamburger_edge.runtimes.llamacpp.context import LlamaModel
from hamburger_edge.runtimes.llamacpp.decoders import LlamaCppBase, LlamaCppMicroDecoder
from hamburger_edge.runtimes.llamacpp.gguf_file import GGUF
from hamburger_edge.runtimes.llamacpp.graft import LlamaCppEmbedder, StopHead
from hamburger_edge.runtimes.llamacpp.library import KV_BYTES, Library, library
from hamburger_edge.support.background import Background
from hamburger_edge.support.processors import MOST_THREADS, usable_processors
from hamburger_edge.support.values import among, flag, safe_repr, whole_in

COSTS = Costs(row=0.6, micro=0.4)  # of drafts: its kernels gain little from several rows
DEFAULT_CACHE_SLOTS = 4096  # slots, or the base's own context if that is shorter


def open_bundle(
    path: Path,
    *,
    cache_slots: int | None = None,
    threads: int | None = None,
    kv_cache_dtype: str = "f16",
    gpu_layers: int = -1,
    flash_attention: bool | None = None,
    verify: bool = False,
    log: bool = False,
) -> tuple[LlamaCppBackend, Background[Tokenizer], ChatTemplate]:
    """Open a bundle with GGUF files -> backend, tokenizer (read meanwhile), chat template.

    The options are those of `load`. `gpu_layers` -1 puts all layers on a GPU if llama.cpp was built for one.
    """
    manifest = load_manifest(path)
    check_files(path, manifest, hashes=flag("verify", verify))
    if manifest.gguf is None:
        raise BundleError(f"{path}: holds no GGUF files: export it again with  --format gguf")
    tokenizer_path = manifest.tokenizer_in(path)
    _check_options(manifest, cache_slots, threads, kv_cache_dtype, flash_attention, gpu_layers)
    tokenizer = Background(lambda: Tokenizer(tokenizer_path))
    backend = LlamaCppBackend(
        path,
        manifest,
        library(flag("log", log)),
        cache_slots=min(cache_slots or DEFAULT_CACHE_SLOTS, manifest.model.context_length),
        threads=threads or usable_processors(),
        kv_cache_dtype=kv_cache_dtype,
        gpu_layers=gpu_layers,
        flash=flash_attention,
    )
    return backend, tokenizer, ChatTemplate.from_json(manifest.chat_template)


def _check_options(
    manifest: Manifest,
    cache_slots: int | None,
    threads: int | None,
    kv_cache_dtype: str,
    flash: bool | None,
    gpu_layers: int,
) -> None:
    for name, value, limit in (("cache_slots", cache_slots, 1 << 24), ("threads", threads, MOST_THREADS)):
        if value is not None:
            whole_in(name, value, 1, limit)
    if flash is not None and not isinstance(flash, bool):
        raise InputError(f"flash_attention must be true, false or left out, got {safe_repr(flash)}")
    whole_in("gpu_layers", gpu_layers, -1, 1 << 16)
    if not among(kv_cache_dtype, KV_BYTES):
        raise InputError(
            f"kv_cache_dtype must be one of {', '.join(KV_BYTES)}, got {safe_repr(kv_cache_dtype)}"
        )
    block = KV_BYTES[kv_cache_dtype][0]
    if manifest.kv.head_size % block:
        raise InputError(
            f"kv_cache_dtype={kv_cache_dtype!r} needs heads of a multiple of {block}, here "
            f"{manifest.kv.head_size}: use f16"
        )
    if block > 1 and flash is False:
        raise InputError(f"kv_cache_dtype={kv_cache_dtype!r} needs flash attention: leave it on, or use f16")


class LlamaCppBackend:
    """Implements `hamburger_edge.loop.backend.Backend`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        llama: Library,
        *,
        cache_slots: int,
        threads: int,
        kv_cache_dtype: str = "f16",
        gpu_layers: int = -1,
        flash: bool | None = None,
    ):
        assert manifest.gguf is not None
        model, files = manifest.model, manifest.gguf
        base, *others = (GGUF(folder / entry.file, entry) for entry in files.files)
        _check_agreement(manifest, base, *others)
        graft = others[1] if others else None
        self.manifest, self.closed = manifest, False
        self.embedder, self.stop_head = LlamaCppEmbedder(base, graft, model), StopHead(graft, model)
        self.opened = contextlib.ExitStack()  # closes the contexts before their models

        def weights(file: GGUF, layers: int, vocab_size: int) -> LlamaModel:
            opened = LlamaModel(llama, file.path, gpu_layers=gpu_layers)
            self.opened.callback(opened.close)
            opened.agree(model.hidden_size, layers, vocab_size)
            return opened

        try:
            self.base = LlamaCppBase(
                weights(base, model.num_layers, model.vocab_size),
                manifest,
                cache_slots=cache_slots,
                threads=threads,
                kv_cache_dtype=kv_cache_dtype,
                flash=flash,
            )
            self.opened.callback(self.base.context.close)
            self.micro_decoder: LlamaCppMicroDecoder | None = None
            if others:
                self.micro_decoder = LlamaCppMicroDecoder(
                    weights(others[0], model.micro_layers, model.micro_vocab),
                    manifest,
                    threads=threads,
                    kv_cache_dtype=kv_cache_dtype,
                    flash=flash,
                )
                self.opened.callback(self.micro_decoder.context.close)
        except BaseException:
            self.close()
            raise
        block, size = KV_BYTES[kv_cache_dtype]
        on_gpu = gpu_layers != 0 and bool(llama.low.llama_supports_gpu_offload())
        identity = f"{manifest.gguf_fingerprint} {kv_cache_dtype} {flash}"
        self.info = model_info(
            folder,
            manifest,
            backend="llamacpp",
            provider="gpu" if on_gpu else "cpu",
            precision=files.precision.base,
            cache_slots=cache_slots,
            kv_bytes_per_slot=2
            * model.num_layers
            * manifest.kv.kv_heads
            * manifest.kv.head_size
            // block
            * size,
            fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
            draft_costs=COSTS,
        )

    @property
    def slots(self) -> int:
        return self.base.slots

    def macro(
        self, groups: Sequence[Sequence[int]], positions: Sequence[int], output_indices: Sequence[int]
    ) -> Readout:
        self._check_open()
        logits, features = self.base.run(self.embedder(groups), positions, output_indices)
        return Readout(logits, self.stop_head(features[:, -1]), features)

    def micro_begin(self, features: Floats) -> None:
        self._check_open()
        assert self.micro_decoder is not None  # a plain model makes no micro steps
        self.micro_decoder.begin(features)

    def micro(self, token: int) -> MicroReadout:
        self._check_open()
        assert self.micro_decoder is not None
        logits, state = self.micro_decoder.run(self.embedder.table[token])
        return MicroReadout(logits, float(self.stop_head(state, logits[None])[0]))

    def truncate(self, slots: int) -> None:
        self._check_open()
        self.base.truncate(slots)

    def snapshot(self) -> Snapshot:
        self._check_open()
        return self.base.snapshot()

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        self._check_open()
        self.base.restore(snapshot, slots)

    def close(self) -> None:
        self.closed = True
        self.opened.close()

    def __del__(self) -> None:
        if hasattr(self, "opened"):
            self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError


def _check_agreement(
    manifest: Manifest, base: GGUF, micro: GGUF | None = None, graft: GGUF | None = None
) -> None:
    """Check that the files come from one export and fit this manifest."""
    assert manifest.gguf is not None
    model, architecture = manifest.model, manifest.gguf.architecture
    if (architecture == "paddleocr") != (model.position_rule == "token"):
        raise BundleError(
            f"{base.path}: architecture {architecture} cannot have positions by {model.position_rule}: "
            "export the bundle again"
        )
    expected = [(base, "base", architecture, model.num_layers, model.vocab_size)]
    if micro is not None:
        expected.append((micro, "micro_decoder", "llama", model.micro_layers, model.micro_vocab))
    for file, part, arch, layers, vocab_size in expected:
        file.agree(
            {
                "general.architecture": arch,
                "hamburger.part": part,
                "hamburger.export": base.keys.get("hamburger.export"),
                f"{arch}.block_count": layers,
                f"{arch}.embedding_length": model.hidden_size,
                f"{arch}.attention.head_count_kv": manifest.kv.kv_heads,
                f"{arch}.attention.key_length": manifest.kv.head_size,
            }
        )
        file.shaped("token_embd.weight", vocab_size, model.hidden_size)
    base.agree(
        {
            "hamburger.taps": list(model.taps) or None,  # GGUF has no empty lists
            "hamburger.max_group_tokens": model.max_group_tokens,
            "hamburger.position_rule": model.position_rule,
            "hamburger.stop_rule": model.stop_rule,
        }
    )
    if graft is None:
        return
    graft.keys.setdefault("hamburger.merge_residual", "mean")  # older files lack the key
    graft.agree(
        {
            "hamburger.part": "graft",
            "hamburger.export": base.keys.get("hamburger.export"),
            "hamburger.merge_residual": model.merge_residual,
        }
    )
