"""llama.cpp through the low-level API of llama-cpp-python, optionally with prompt lookup decoding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from hamburger_edge.benchmarks.contender import (
    BenchmarkRequest,
    Facts,
    Source,
    TimedAnswer,
    TimedTurn,
    WeightBytes,
)
from hamburger_edge.benchmarks.peers import peer_files
from hamburger_edge.benchmarks.peers.llama_grammar import GrammarChoice
from hamburger_edge.benchmarks.weight_bytes import gguf_weight_bytes
from hamburger_edge.bundle.manifest import gguf_precision
from hamburger_edge.errors import HamburgerError, require
from hamburger_edge.loop.backend import Floats
from hamburger_edge.runtimes.llamacpp.library import library

DRAFT = 2  # draft tokens per lookup; llama-cpp-python recommends 2 for CPUs
BATCH = 512

Draft = Callable[[Any], Any]  # token ids so far -> draft of the next ids


def _best(scores: Floats) -> int:
    return int(scores.argmax())


class Llama:
    def __init__(
        self, source: Source, *, lookup: bool = False, precision: str = "", prepared: Path | None = None
    ):
        """`precision`: a GGUF type; "": that of the bundle."""
        setting = peer_files.setting_of(precision, gguf_precision(source.gguf_precision or source.precision))
        self.source, self.prepared = replace(source, gguf_precision=setting), prepared
        require("llama_cpp", "bench")
        self.low = library().low  # with llama.cpp's log redirected
        self.draft: Draft | None = None
        if lookup:
            from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

            self.draft = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=DRAFT)
        self.model: Any = None
        self.context: Any = None
        self.grammar: GrammarChoice | None = None  # for the most recent schema

    def prepare(self) -> Path:
        return peer_files.gguf(self.source)

    def load(self) -> Facts:
        self.prepared = self.prepared or self.prepare()
        low, file = self.low, str(self.prepared)
        params = low.llama_model_default_params()
        params.use_extra_bufts = library().repacks
        self.model = low.llama_model_load_from_file(file.encode(), params)
        if not self.model:
            raise HamburgerError(f"{file}: llama.cpp cannot load it ({library().log.reason()})")
        options = low.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = self.source.slots, BATCH, BATCH
        options.n_threads = options.n_threads_batch = self.source.threads
        options.no_perf = True
        exact = self.source.precision in ("fp32", "f32")
        if exact:  # a 16-bit cache would round
            options.type_k = options.type_v = 0
            options.flash_attn_type = 0
        self.context = low.llama_init_from_model(self.model, options)
        if not self.context:
            raise HamburgerError(f"{file}: llama.cpp cannot make a context ({library().log.reason()})")
        self.memory = low.llama_get_memory(self.context)
        self.vocab_size = low.llama_vocab_n_tokens(low.llama_model_get_vocab(self.model))
        self.batch = low.llama_batch_init(BATCH, 0, 1)
        heads = low.llama_model_n_head_kv(self.model)
        width = int(self._fact(f"{self._fact('general.architecture')}.attention.key_length") or 0)
        width = width or low.llama_model_n_embd(self.model) // low.llama_model_n_head(self.model)
        values = 2 * low.llama_model_n_layer(self.model) * heads * width
        self.kv_bytes_per_slot = values * (4 if exact else 2)
        precision = Path(file).parent.name.removeprefix("llama-")
        return Facts(precision, self.kv_bytes_per_slot)

    def _fact(self, key: str) -> str:
        """Return the value of a key of the GGUF file, or ''."""
        buffer = ctypes.create_string_buffer(64)
        length = self.low.llama_model_meta_val_str(self.model, key.encode(), buffer, len(buffer))
        return buffer.value.decode() if length >= 0 else ""

    def weight_bytes(self) -> WeightBytes:
        assert self.prepared is not None
        return WeightBytes(gguf_weight_bytes(self.prepared))

    def turn(self, prompt: Sequence[int], tokens: int, variant: str = "") -> TimedTurn:
        began = perf_counter()
        self.begin(prompt, tokens, variant)
        first = perf_counter()
        _, decode_s, _ = self.advance(tokens)
        return TimedTurn.plain(prompt, self.text[len(prompt) :], first - began, decode_s, self.steps)

    def answer(self, request: BenchmarkRequest, variant: str = "") -> TimedAnswer:
        """Answer greedily. Under a schema only tokens of its grammar count."""
        grammar = self._grammar(request.schema)
        began = perf_counter()
        self.low.llama_memory_clear(self.memory, False)
        if grammar is not None:
            grammar.restart()
        text, end, calls = list(request.prompt), len(request.prompt) + request.max_tokens, 1
        choose = _best if grammar is None else grammar.choose
        text.append(choose(self._read(request.prompt)[-1]))
        ttft_s = perf_counter() - began
        while text[-1] not in request.eos_ids and len(text) < end:
            self._read_on(text, end, choose, request.eos_ids)
            calls += 1
        total_s = perf_counter() - began
        answer = tuple(text[len(request.prompt) :])
        return TimedAnswer(answer, ttft_s, total_s, calls, calls, len(answer))

    def _grammar(self, schema: str | None) -> GrammarChoice | None:
        if schema is not None and (self.grammar is None or self.grammar.schema != schema):
            if self.grammar is not None:
                self.grammar.close()
            self.grammar = GrammarChoice(self.low, self.model, schema)
        return None if schema is None else self.grammar

    def begin(self, prompt: Sequence[int], tokens: int, variant: str) -> None:
        self.low.llama_memory_clear(self.memory, False)
        first = _best(self._read(prompt)[-1])
        self.text, self.prompt_tokens = [*prompt, first], len(prompt)
        self.steps, self.decode_s = 1, 0.0

    def advance(self, tokens: int) -> tuple[int, float, int]:
        """Generate until the answer has `tokens` tokens."""
        began = perf_counter()
        text, end = self.text, self.prompt_tokens + tokens
        while len(text) < end:
            self._read_on(text, end, _best)
            self.steps += 1
        self.decode_s += perf_counter() - began
        return len(text) - self.prompt_tokens, self.decode_s, (len(text) - 1) * self.kv_bytes_per_slot

    def _read_on(
        self, text: list[int], end: int, choose: Callable[[Floats], int], ends: Collection[int] = ()
    ) -> None:
        """Make one forward pass: read the newest token and the draft, and append what is chosen after them.

        Appends up to the first choice that differs from the draft or is in `ends`, and `end` tokens at most.
        """
        used = len(text) - 1  # the cache holds all but the newest token
        guess = self._propose(text)[: end - len(text) - 1]
        scores = self._scores([text[-1], *guess], used, wanted=1 + len(guess))
        for row, drafted in zip(scores, [*guess, None], strict=True):
            text.append(choose(row))
            if text[-1] != drafted or text[-1] in ends:
                break
        if len(text) - 1 < used + 1 + len(guess):
            self.low.llama_memory_seq_rm(self.memory, 0, len(text) - 1, -1)

    def _propose(self, text: list[int]) -> list[int]:
        return [] if self.draft is None else [int(i) for i in self.draft(np.array(text, np.intc))]

    def _read(self, prompt: Sequence[int]) -> Floats:
        """Append a prompt to the empty cache and return the logits after its last token, [1, vocab]."""
        for start in range(0, len(prompt), BATCH):
            scores = self._scores(prompt[start : start + BATCH], start, wanted=1)
        return scores

    def _scores(self, tokens: Sequence[int], start: int, *, wanted: int) -> Floats:
        """Append tokens to the cache and return the logits after the last `wanted` ones, [wanted, vocab].

        The next call overwrites the returned array.
        """
        batch, count = self.batch, len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i >= count - wanted
        batch.n_tokens = count
        if code := self.low.llama_decode(self.context, batch):
            raise HamburgerError(f"llama.cpp could not decode: code {code}, {library().log.reason()}")
        memory = self.low.llama_get_logits(self.context)
        return np.ctypeslib.as_array(
            ctypes.cast(memory, ctypes.POINTER(ctypes.c_float)), (wanted, self.vocab_size)
        )

    def close(self) -> None:
        if self.grammar is not None:
            self.grammar.close()
            self.grammar = None
        if self.context:
            self.low.llama_batch_free(self.batch)
            self.low.llama_free(self.context)
        if self.model:
            self.low.llama_model_free(self.model)
        self.model = self.context = None
