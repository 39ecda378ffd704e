"""onnxruntime-genai, with a model that its own builder makes from the same weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from hamburger_edge.benchmarks.contender import (
    Facts,
    Request,
    Source,
    TimedAnswer,
    TimedTurn,
    WeightBytes,
)
from hamburger_edge.benchmarks.peers import weights
from hamburger_edge.benchmarks.weight_bytes import onnx_weight_bytes
from hamburger_edge.loop.grammar import LAYOUT

ACCURACY = 4  # activations become int8, as in our own bundles
PRECISIONS = {"int4": "int4", "q4_0": "int4", "q4_1": "int4", "int8": "int8", "q8_0": "int8"}  # others: fp32


class Genai:
    def __init__(self, source: Source, *, made: Path | None = None):
        self.source, self.made = source, made
        self.precision = PRECISIONS.get(source.precision, "fp32")
        self.model: Any = None
        self.generator: Any = None

    def prepare(self) -> Path:
        return weights.built(self.source, f"genai-{self.precision}", self._build)

    def _build(self, folder: Path) -> None:
        hf = weights.hugging_face(self.source)
        import transformers

        # 0.18's builder imports these of transformers 5, for families that are not ours; the newest
        # optimum-onnx needs transformers 4.
        for name in ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"):
            if not hasattr(transformers, name):
                setattr(transformers, name, None)
        from onnxruntime_genai.models.builder import create_model, parse_extra_options

        model = ("", str(hf), str(folder), self.precision, "cpu", str(folder / "cache"))
        asked = [f"accuracy_level={ACCURACY}"] if self.precision != "fp32" else []
        options = parse_extra_options(*model, asked)
        config = options["hf_details"]["hf_config"]
        scaling = config.rope_scaling or {"rope_type": "default"}
        config.rope_parameters = {"rope_theta": config.rope_theta, **scaling}  # as transformers 5 has it
        del config.rope_scaling
        create_model(*model, **options)

    def load(self) -> Facts:
        import onnxruntime_genai as genai

        self.made = self.made or self.prepare()
        self.genai = genai
        config = genai.Config(str(self.made))
        session = {"intra_op_num_threads": self.source.threads}
        # The builder calls the end token padding, which is masked in prompts too, where it ends turns.
        model = {"decoder": {"session_options": session}, "pad_token_id": self._settings()["vocab_size"] - 1}
        config.overlay(json.dumps({"model": model}))
        self.model = genai.Model(config)
        decoder = self._decoder()
        heads = decoder["num_key_value_heads"] * decoder["head_size"]
        self.kv_bytes_per_slot = 2 * decoder["num_hidden_layers"] * heads * 4
        return Facts(self.precision, self.kv_bytes_per_slot)

    def weight_bytes(self) -> WeightBytes:
        assert self.made is not None
        return WeightBytes(onnx_weight_bytes(self.made / self._decoder()["filename"]))

    def _settings(self) -> dict[str, Any]:
        assert self.made is not None
        config = json.loads((self.made / "genai_config.json").read_text(encoding="utf-8"))
        settings: dict[str, Any] = config["model"]
        return settings

    def _decoder(self) -> dict[str, Any]:
        decoder: dict[str, Any] = self._settings()["decoder"]
        return decoder

    def turn(self, prompt: Sequence[int], tokens: int, variant: str = "") -> TimedTurn:
        began = perf_counter()
        self.begin(prompt, tokens, variant)
        first = perf_counter()
        _, decode_s, _ = self.advance(tokens)
        said = self.generator.get_sequence(0)[len(prompt) :]
        self.generator = None
        return TimedTurn.plain(prompt, said, first - began, decode_s)

    def answer(self, request: Request, variant: str = "") -> TimedAnswer:
        """Under a schema what it forces is said unasked (`enable_ff_tokens`), with our white space. Each call
        of the generator is a forward of the base, the first one the prompt's."""
        self.generator = None
        began = perf_counter()
        params = self.genai.GeneratorParams(self.model)
        params.set_search_options(max_length=len(request.prompt) + request.most, do_sample=False)
        if request.schema is not None:
            params.set_guidance("json_schema", with_layout(request.schema), True)
        generator = self.genai.Generator(self.model, params)
        generator.append_tokens(np.array(request.prompt, np.int32))
        calls, ttft_s = 0, 0.0
        while not generator.is_done():
            generator.generate_next_token()
            calls += 1
            ttft_s = ttft_s or perf_counter() - began
        total_s = perf_counter() - began
        said = [int(token) for token in generator.get_sequence(0)[len(request.prompt) :]]
        last = int(generator.get_next_tokens()[0])
        if last in request.eos_ids and said[-1:] != [last]:  # an end token is said, but in no sequence
            said.append(last)
        return TimedAnswer(tuple(said), ttft_s, total_s, calls, calls, len(said))

    def begin(self, prompt: Sequence[int], tokens: int, variant: str) -> None:
        self.generator = None  # one cache at a time
        params = self.genai.GeneratorParams(self.model)
        length = len(prompt) + tokens
        # no end token before that length: where the others say one and go on, this says the next best
        params.set_search_options(min_length=length, max_length=length, do_sample=False)
        self.generator = self.genai.Generator(self.model, params)
        self.generator.append_tokens(np.array(prompt, np.int32))
        self.generator.generate_next_token()
        self.prompt_tokens, self.said, self.decode_s = len(prompt), 1, 0.0

    def advance(self, tokens: int) -> tuple[int, float, int]:
        began = perf_counter()
        for _ in range(tokens - self.said):
            self.generator.generate_next_token()
        self.decode_s += perf_counter() - began
        self.said = max(self.said, tokens)
        return self.said, self.decode_s, (self.prompt_tokens + self.said - 1) * self.kv_bytes_per_slot

    def close(self) -> None:
        self.generator = self.model = None


def with_layout(schema: str) -> str:
    """Our white space, unless the schema asks for another: llguidance's own, as in our structured answers."""
    parsed = json.loads(schema)
    return json.dumps({**parsed, "x-guidance": {**LAYOUT, **parsed.get("x-guidance", {})}})
