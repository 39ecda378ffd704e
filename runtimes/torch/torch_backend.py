"""The reference: HAMburger in PyTorch, float32, with a cache. Other runtimes must generate the same
tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.drafts.draft_index import DraftIndex, read_draft_index
from hamburger_edge.errors import ClosedError, ContextFullError
from hamburger_edge.loop.answer_facts import AnswerFacts
from hamburger_edge.loop.backend import Floats, MicroReadout, ModelInfo, Readout, Snapshot, check_saved_cache
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import Cached, KVCache
from hamburger_edge.support.background import Background
from hamburger_edge.support.files import DRAFT_INDEX
from hamburger_edge.support.processors import MOST_THREADS
from hamburger_edge.support.values import whole_in

DEFAULT_CACHE_SLOTS = 4096  # slots, or the base's own context if that is shorter


class TorchBackend:
    """Implements `hamburger_edge.loop.backend.Backend` on the PyTorch modules."""

    def __init__(
        self,
        model: Hamburger,
        *,
        cache_slots: int | None = None,
        fingerprint: str = "",
        facts: AnswerFacts | None = None,
        draft_index: DraftIndex | None = None,
    ):
        config, facts = model.config, facts or AnswerFacts()
        base = config.base
        self.model = model.eval()
        cache_slots = cache_slots or base.context_length
        self.cache = KVCache(base, base.num_layers, cache_slots)
        self.micro_cache = KVCache(base, 0, 0)
        if config.has_graft:
            micro = model.micro_config
            self.micro_cache = KVCache(micro, micro.num_layers, micro.context_length)
        self.features: Tensor | None = None  # [1, F, d] waiting for the first micro step
        self.closed = False
        self.info = ModelInfo(
            backend="torch",
            provider="cpu",
            precision="fp32",
            vocab_size=base.vocab_size,
            hidden_size=base.hidden_size,
            max_group_tokens=config.max_group_tokens,
            position_rule=config.position_rule,
            stop_rule=config.stop_rule,
            cache_slots=cache_slots,
            context_length=base.context_length,
            eos_ids=config.eos_ids,
            draft_vocab=model.draft_vocab.numpy() if config.draft_vocab_size else None,
            kv_bytes_per_slot=2 * base.num_layers * base.num_kv_heads * base.head_dim * 4,
            fingerprint=fingerprint,
            draft_index=draft_index,
            **facts.of_model,
        )

    @property
    def slots(self) -> int:
        return self.cache.used

    @torch.inference_mode()
    def macro(
        self, groups: Sequence[Sequence[int]], positions: Sequence[int], output_indices: Sequence[int]
    ) -> Readout:
        self._check_open()
        if self.cache.used + len(groups) > self.cache.capacity:
            raise ContextFullError(
                f"{self.cache.used + len(groups)} slots do not fit a cache of {self.cache.capacity}: "
                "load with a larger cache_slots"
            )
        slots = self.model.embed(*pad_groups(groups))[None]  # [1, S, d]
        rotary = self.model.base_rotary(torch.tensor([list(positions)]))
        attend = Cached(self.model.config.base, rotary, self.cache, len(groups))
        features = self.model.base(
            slots, attend, self.model.config.taps, torch.tensor(list(output_indices), dtype=torch.long)
        )[0]
        self.cache.used += len(groups)
        final = features[:, -1]
        p_stop = self.model.stop_logits(final).sigmoid()
        return Readout(_numpy(self.model.base.logits(final)), _numpy(p_stop), features)

    def micro_begin(self, features: Tensor) -> None:
        self.features = features[None]
        self.micro_cache.used = 0

    @torch.inference_mode()
    def micro(self, token: int) -> MicroReadout:
        self._check_open()
        rows = self.model.base.embed(torch.tensor([[token]]))
        if self.features is not None:
            rows, self.features = torch.cat([self.features, rows], dim=1), None
        start, stop = self.micro_cache.used, self.micro_cache.used + rows.shape[1]
        rotary = self.model.micro_rotary(start, stop)
        attend = Cached(self.model.micro_config, rotary, self.micro_cache, rows.shape[1])
        hidden = self.model.micro(rows, attend)[0, -1]
        self.micro_cache.used = stop
        logits = self.model.micro_logits(hidden)
        return MicroReadout(_numpy(logits), float(self.model.stop_logits(hidden, logits).sigmoid()))

    @torch.inference_mode()
    def micro_groups(self, features: Tensor, groups: Sequence[Sequence[int]]) -> list[list[MicroReadout]]:
        """Return what `micro` would after each token of each group, all groups at once.

        features [G, F, d] of the slots before them; `groups` are not empty.
        """
        ids, _ = pad_groups(groups)
        hidden = self.model.teacher_forced(features, ids)
        logits = self.model.micro_logits(hidden)
        stops = self.model.stop_logits(hidden, logits).sigmoid().tolist()
        scores = _numpy(logits)
        return [
            [MicroReadout(scores[g, i], stops[g][i]) for i in range(len(group))]
            for g, group in enumerate(groups)
        ]

    def truncate(self, slots: int) -> None:
        self.cache.used = min(slots, self.cache.used)

    def snapshot(self) -> Snapshot:
        used = self.cache.used
        return {
            "keys": self.cache.keys[:, :, :used].numpy().copy(),
            "values": self.cache.values[:, :, :used].numpy().copy(),
        }

    def restore(self, snapshot: Snapshot, slots: int) -> None:
        cache = self.cache
        layers, heads, _, width = cache.keys.shape
        check_saved_cache(snapshot, (layers, heads, slots, width), "float32", cache.capacity)
        cache.keys[:, :, :slots] = torch.from_numpy(snapshot["keys"])
        cache.values[:, :, :slots] = torch.from_numpy(snapshot["values"])
        cache.used = slots

    def close(self) -> None:
        self.closed = True
        empty = KVCache(self.model.config.base, 0, 0)
        self.cache = self.micro_cache = empty

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError


def use_threads(threads: int | None, name: str = "threads") -> None:
    """Set PyTorch's threads for the whole process; None leaves them. `name` is their name in errors."""
    if threads is not None:
        torch.set_num_threads(whole_in(name, threads, 1, MOST_THREADS))


def open_checkpoint(
    path: str | PathLike[str], *, cache_slots: int | None = None, threads: int | None = None
) -> tuple[TorchBackend, Background[Tokenizer], ChatTemplate]:
    """Open a checkpoint folder, a Lightning file or a built-in name for `hamburger_edge.load`."""
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

    use_threads(threads)
    if cache_slots is not None:
        whole_in("cache_slots", cache_slots, 1, 1 << 31)
    checkpoint = load_checkpoint(Path(path))
    no_identity = {*AnswerFacts.names(), "recommended_precision"}
    identity = {name: fact for name, fact in checkpoint.manifest.items() if name not in no_identity}
    index, vocab_size = checkpoint.file(DRAFT_INDEX), checkpoint.model.config.base.vocab_size
    digest = hashlib.sha256(b"torch fp32" + json.dumps(identity, sort_keys=True).encode())
    backend = TorchBackend(
        checkpoint.model,
        cache_slots=min(cache_slots or DEFAULT_CACHE_SLOTS, checkpoint.model.config.base.context_length),
        fingerprint=digest.hexdigest(),
        facts=AnswerFacts.of(checkpoint.manifest),
        draft_index=None if index is None else read_draft_index(index, vocab_size),
    )
    tokenizer = Background(lambda: Tokenizer(checkpoint.tokenizer))
    return backend, tokenizer, ChatTemplate.from_json(checkpoint.chat_template)


def pad_groups(groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Groups of token ids -> ids [N, widest], sizes [N]"""
    ids = pad_sequence([torch.tensor(list(group)) for group in groups], batch_first=True)
    return ids, torch.tensor([len(group) for group in groups])


def _numpy(x: Tensor) -> Floats:
    return np.ascontiguousarray(x.detach().float().numpy())
