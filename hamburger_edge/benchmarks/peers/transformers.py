"""`generate` of transformers, on torch and on the ONNX graph that optimum-onnx exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from hamburger_edge.benchmarks.contender import Facts, Source, TimedTurn, WeightBytes
from hamburger_edge.benchmarks.peers import peer_files
from hamburger_edge.benchmarks.weight_bytes import onnx_weight_bytes


class _Times:
    """A streamer that records a time for the prompt and for each generated token."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def put(self, tokens: Any) -> None:
        self.seen.append(perf_counter())

    def end(self) -> None:
        pass


class Transformers:
    """transformers on torch, in float32."""

    def __init__(self, source: Source, *, prepared: Path | None = None):
        self.source, self.prepared = source, prepared
        self.model: Any = None

    def prepare(self) -> Path:
        return peer_files.hugging_face(self.source)

    def load(self) -> Facts:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(self.source.threads)
        self.prepared = self.prepared or self.prepare()
        self.model = AutoModelForCausalLM.from_pretrained(self.prepared, dtype=torch.float32).eval()
        self._say_all()
        return Facts("fp32", self._kv_bytes())

    def weight_bytes(self) -> WeightBytes:
        table, head = self.model.get_input_embeddings().weight, self.model.get_output_embeddings().weight
        sizes = {p.data_ptr(): p.nbytes for p in self.model.parameters()}  # count shared parameters once
        return WeightBytes(sum(sizes.values()) - (table.nbytes if table is not head else 0))

    def _say_all(self) -> None:
        """Remove the end token, so that every program generates the same number of tokens."""
        self.model.generation_config.eos_token_id = None

    def _kv_bytes(self) -> int:
        config = self.model.config
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(2 * config.num_hidden_layers * config.num_key_value_heads * head * 4)

    def turn(self, prompt: Sequence[int], tokens: int, variant: str = "") -> TimedTurn:
        import torch
        from transformers import GenerationConfig

        ids = torch.tensor([list(prompt)])
        config = GenerationConfig(max_new_tokens=tokens, do_sample=False, use_cache=True, pad_token_id=0)
        times = _Times()
        began = perf_counter()
        with torch.inference_mode():
            sequences = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=config, streamer=times
            )
        ended = perf_counter()
        first = times.seen[1]  # index 0 is the prompt
        return TimedTurn.plain(prompt, sequences[0, len(prompt) :].tolist(), first - began, ended - first)

    def close(self) -> None:
        self.model = None


class Optimum(Transformers):
    """transformers on ONNX Runtime; optimum exports float32."""

    def prepare(self) -> Path:
        return peer_files.built(self.source, "optimum", self._export)

    def _export(self, folder: Path) -> None:
        hf = peer_files.hugging_face(self.source)
        from optimum.exporters.onnx import main_export

        main_export(str(hf), output=folder, task="text-generation-with-past", do_validation=False)

    def load(self) -> Facts:
        import onnxruntime
        from optimum.onnxruntime import ORTModelForCausalLM

        self.prepared = self.prepared or self.prepare()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.source.threads
        options.log_severity_level = 3
        self.model = ORTModelForCausalLM.from_pretrained(self.prepared, session_options=options)
        self._say_all()
        return Facts("fp32", self._kv_bytes())

    def weight_bytes(self) -> WeightBytes:
        assert self.prepared is not None
        return WeightBytes(onnx_weight_bytes(self.prepared / "model.onnx"))
