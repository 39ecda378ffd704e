"""onnxruntime-genai; its model builder converts the same weights. Optionally with n-gram speculation."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from hamburger_edge.benchmarks.weight_bytes import onnx_weight_bytes
from hamburger_edge.structured.grammar import LAYOUT

ACCURACY = 4  # int8 activations, as in our bundles
PRECISIONS = {"int4": "int4", "q4_0": "int4", "q4_1": "int4", "int8": "int8", "q8_0": "int8"}  # others: fp32
LOOKUP = {"ngram_size": 3, "max_draft_tokens": 4}  # the fastest of 2 to 8 where text is copied


class Genai:
    def __init__(
        self, source: Source, *, precision: str = "", lookup: bool = False, prepared: Path | None = None
    ):
        """`precision`: "int8", "int4", or "int4" and an algorithm of the builder, as in "int4-k_quant"."""
        self.source, self.lookup, self.prepared = source, lookup, prepared
        self.precision = peer_files.setting_of(precision, PRECISIONS.get(source.precision, "fp32"))
        self.model: Any = None
        self.generator: Any = None

    def prepare(self) -> Path:
        return peer_files.built(self.source, f"genai-{self.precision}", self._build)

    def _build(self, folder: Path) -> None:
        hf = peer_files.hugging_face(self.source)
        import transformers

        # The builder of 0.18 imports these two names from transformers 5, for model families that we do not
        # use. The newest optimum-onnx needs transformers 4, so define them.
        for name in ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"):
            if not hasattr(transformers, name):
                setattr(transformers, name, None)
        from onnxruntime_genai.models.builder import create_model, parse_extra_options

        precision, _, algorithm = self.precision.partition("-")
        model = ("", str(hf), str(folder), precision, "cpu", str(folder / "cache"))
        extra = [f"accuracy_level={ACCURACY}"] if precision != "fp32" else []
        extra += [f"algo_config={algorithm}"] if algorithm else []
        options = parse_extra_options(*model, extra)
        config = options["hf_details"]["hf_config"]
        scaling = config.rope_scaling or {"rope_type": "default"}
        config.rope_parameters = {"rope_theta": config.rope_theta, **scaling}  # the transformers 5 name
        del config.rope_scaling
        create_model(*model, **options)

    def load(self) -> Facts:
        import onnxruntime_genai as genai

        self.prepared = self.prepared or self.prepare()
        self.genai = genai
        settings = json.loads((self.prepared / "genai_config.json").read_text(encoding="utf-8"))["model"]
        config = genai.Config(str(self.prepared))
        session = {"intra_op_num_threads": self.source.threads}
        # The builder sets the padding token to the end token, and padding is masked in prompts. Our prompts
        # contain the end token at the end of each turn, so use the last token of the vocabulary as padding.
        model = {"decoder": {"session_options": session}, "pad_token_id": settings["vocab_size"] - 1}
        config.overlay(json.dumps({"model": model}))
        self.model = genai.Model(config)
        decoder = self.decoder = settings["decoder"]
        heads = decoder["num_key_value_heads"] * decoder["head_size"]
        self.kv_bytes_per_slot = 2 * decoder["num_hidden_layers"] * heads * 4
        return Facts(self.precision, self.kv_bytes_per_slot)

    def weight_bytes(self) -> WeightBytes:
        assert self.prepared is not None
        return WeightBytes(onnx_weight_bytes(self.prepared / self.decoder["filename"]))

    def turn(self, prompt: Sequence[int], tokens: int, variant: str = "") -> TimedTurn:
        began = perf_counter()
        self.begin(prompt, tokens, variant)
        first = perf_counter()
        _, decode_s, _ = self.advance(tokens)
        answer = self.generator.get_sequence(0)[len(prompt) :]
        self.generator = None
        return TimedTurn.plain(prompt, answer, first - began, decode_s)

    def answer(self, request: BenchmarkRequest, variant: str = "") -> TimedAnswer:
        """Answer one request. `base_calls` counts generator calls, the prefill included.

        Under a schema, `enable_ff_tokens` appends forced tokens without a choice of the model. White space
        follows `LAYOUT`, as in our answers.
        """
        self.generator = None
        began = perf_counter()
        params = self.genai.GeneratorParams(self.model)
        end = len(request.prompt) + request.max_tokens
        params.set_search_options(max_length=self._capacity(end), do_sample=False)
        self._draft(params)
        if request.schema is not None:
            params.set_guidance("json_schema", with_layout(request.schema), True)
        generator = self.genai.Generator(self.model, params)
        generator.append_tokens(np.array(request.prompt, np.int32))
        calls, ttft_s = 0, 0.0
        while not generator.is_done() and generator.token_count() < end:
            generator.generate_next_token()
            calls += 1
            ttft_s = ttft_s or perf_counter() - began
        total_s = perf_counter() - began
        answer = [int(token) for token in generator.get_sequence(0)[len(request.prompt) :]]
        last = int(generator.get_next_tokens()[0])
        if last in request.eos_ids and answer[-1:] != [last]:  # `get_sequence` lacks the end token
            answer.append(last)
        return TimedAnswer(tuple(answer), ttft_s, total_s, calls, calls, len(answer))

    def _capacity(self, length: int) -> int:
        """Return the cache's size for texts of this length: a layer with a window needs all of the window."""
        window: int = self.decoder.get("sliding_window", {}).get("window_size", 0)
        return max(length, window)

    def _draft(self, params: Any) -> None:
        if self.lookup:
            params.set_speculative_options(**LOOKUP)

    def begin(self, prompt: Sequence[int], tokens: int, variant: str) -> None:
        self.generator = None  # one cache at a time
        params = self.genai.GeneratorParams(self.model)
        length = len(prompt) + tokens
        # `min_length` forbids end tokens. Other programs generate an end token and continue; this one takes
        # the next best token.
        params.set_search_options(min_length=length, max_length=self._capacity(length), do_sample=False)
        self._draft(params)
        self.generator = self.genai.Generator(self.model, params)
        self.generator.append_tokens(np.array(prompt, np.int32))
        self.generator.generate_next_token()
        self.prompt_tokens, self.generated, self.decode_s = len(prompt), 1, 0.0

    def advance(self, tokens: int) -> tuple[int, float, int]:
        began = perf_counter()
        for _ in range(tokens - self.generated):
            self.generator.generate_next_token()
        self.decode_s += perf_counter() - began
        self.generated = max(self.generated, tokens)
        return (
            self.generated,
            self.decode_s,
            (self.prompt_tokens + self.generated - 1) * self.kv_bytes_per_slot,
        )

    def close(self) -> None:
        self.generator = self.model = None


def with_layout(schema: str) -> str:
    """Return the schema with our white space as `x-guidance`; the schema's own `x-guidance` wins."""
    parsed = json.loads(schema)
    return json.dumps({**parsed, "x-guidance": {**LAYOUT, **parsed.get("x-guidance", {})}})
