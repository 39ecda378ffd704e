"""Plain llama.cpp through llama-cpp-python's low-level calls, without or with prompt-lookup speculation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from hamburger_edge.benchmarks.peers import weights
from hamburger_edge.benchmarks.peers.contender import Facts, Source, TimedTurn, WeightBytes
from hamburger_edge.benchmarks.weight_bytes import gguf_weight_bytes
from hamburger_edge.errors import HamburgerError, require
from hamburger_edge.runtimes.llamacpp.library import library

DRAFT = 2  # tokens a lookup proposes; what llama-cpp-python advises for processors
BATCH = 512

Draft = Callable[[Any], Any]  # ids so far -> ids that may follow


class Llama:
    def __init__(self, source: Source, *, lookup: bool = False, made: Path | None = None):
        self.source, self.made = source, made
        require("llama_cpp", "bench")
        self.low = library().low  # quietened
        self.draft: Draft | None = None
        if lookup:
            from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

            self.draft = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=DRAFT)
        self.model: Any = None
        self.context: Any = None

    def prepare(self) -> Path:
        return weights.gguf(self.source)

    def load(self) -> Facts:
        self.made = self.made or self.prepare()
        low, file = self.low, str(self.made)
        params = low.llama_model_default_params()
        params.use_extra_bufts = False  # repacked weights end the process where there is AMX
        self.model = low.llama_model_load_from_file(file.encode(), params)
        if not self.model:
            raise HamburgerError(f"{file}: llama.cpp cannot load it ({library().log.reason()})")
        options = low.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = self.source.slots, BATCH, BATCH
        options.n_threads = options.n_threads_batch = self.source.threads
        options.no_perf = True
        exact = self.source.precision in ("fp32", "f32")
        if exact:  # 16-bit caches round
            options.type_k = options.type_v = 0
            options.flash_attn_type = 0
        self.context = low.llama_init_from_model(self.model, options)
        if not self.context:
            raise HamburgerError(f"{file}: llama.cpp cannot make a context ({library().log.reason()})")
        self.memory = low.llama_get_memory(self.context)
        self.vocab_size = low.llama_vocab_n_tokens(low.llama_model_get_vocab(self.model))
        self.batch = low.llama_batch_init(BATCH, 0, 1)
        heads = low.llama_model_n_head_kv(self.model)
        width = low.llama_model_n_embd(self.model) // low.llama_model_n_head(self.model)
        values = 2 * low.llama_model_n_layer(self.model) * heads * width
        self.kv_bytes_per_slot = values * (4 if exact else 2)
        precision = Path(file).parent.name.removeprefix("gguf-")
        return Facts(precision, self.kv_bytes_per_slot)

    def weight_bytes(self) -> WeightBytes:
        assert self.made is not None
        return WeightBytes(gguf_weight_bytes(self.made))

    def turn(self, prompt: Sequence[int], tokens: int, variant: str = "") -> TimedTurn:
        began = perf_counter()
        self.begin(prompt, tokens, variant)
        first = perf_counter()
        _, decode_s, _ = self.advance(tokens)
        return TimedTurn.plain(prompt, self.text[len(prompt) :], first - began, decode_s, self.steps)

    def begin(self, prompt: Sequence[int], tokens: int, variant: str) -> None:
        self.low.llama_memory_clear(self.memory, False)
        for start in range(0, len(prompt), BATCH):
            said = self._decode(prompt[start : start + BATCH], start, wanted=1)
        self.text, self.prompt_tokens = [*prompt, *said], len(prompt)
        self.steps, self.decode_s = 1, 0.0

    def advance(self, tokens: int) -> tuple[int, float, int]:
        """Each forward reads the newest token and what the lookup proposes, and keeps what it agrees with."""
        began = perf_counter()
        text, end = self.text, self.prompt_tokens + tokens
        while len(text) < end:
            used = len(text) - 1  # in the cache: all but the newest
            guess = self._propose(text)[: end - len(text) - 1]
            said = self._decode([text[-1], *guess], used, wanted=1 + len(guess))
            agreed = 0
            while agreed < len(guess) and guess[agreed] == said[agreed]:
                agreed += 1
            text += said[: agreed + 1]
            if agreed < len(guess):
                self.low.llama_memory_seq_rm(self.memory, 0, used + 1 + agreed, -1)
            self.steps += 1
        self.decode_s += perf_counter() - began
        return len(text) - self.prompt_tokens, self.decode_s, (len(text) - 1) * self.kv_bytes_per_slot

    def _propose(self, text: list[int]) -> list[int]:
        return [] if self.draft is None else [int(i) for i in self.draft(np.array(text, np.intc))]

    def _decode(self, tokens: Sequence[int], start: int, *, wanted: int) -> list[int]:
        """Append tokens; the greedy choice after each of the last `wanted`."""
        batch, count = self.batch, len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i >= count - wanted
        batch.n_tokens = count
        if code := self.low.llama_decode(self.context, batch):
            raise HamburgerError(f"llama.cpp could not decode: code {code}, {library().log.reason()}")
        memory = self.low.llama_get_logits(self.context)
        scores = np.ctypeslib.as_array(
            ctypes.cast(memory, ctypes.POINTER(ctypes.c_float)), (wanted, self.vocab_size)
        )
        return [int(token) for token in scores.argmax(1)]

    def close(self) -> None:
        if self.context:
            self.low.llama_batch_free(self.batch)
            self.low.llama_free(self.context)
        if self.model:
            self.low.llama_model_free(self.model)
        self.model = self.context = None
