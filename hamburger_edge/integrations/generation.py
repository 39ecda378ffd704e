"""Implement transformers' `generate` with the hierarchical loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer
from transformers.utils.generic import ModelOutput

from hamburger_edge.chat.inference import Inference
from hamburger_edge.errors import InputError
from hamburger_edge.integrations.generation_settings import (
    criteria_of,
    end_tokens,
    merged,
    options_of,
    processors_of,
)
from hamburger_edge.loop.backend import Floats
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.sampling import Processor
from hamburger_edge.loop.settings import Settings

Processors = Iterable[Callable[..., Tensor]]
Criteria = Iterable[Callable[..., Any]]
# Arguments for other models: ignored if falsy.
_UNUSED = {"synced_gpus", "assistant_model", "negative_prompt_ids", "negative_prompt_attention_mask"}
_UNUSED |= {"use_model_defaults", "custom_generate", "token_type_ids", "position_ids"}


@dataclass
class HierarchicalOutput(ModelOutput):
    """The result of `generate` with `return_dict_in_generate`."""

    sequences: Tensor | None = None  # [rows, longest] prompts with their answers, padded at the end
    groups: list[list[list[int]]] | None = None  # per row: the tokens of each macro step


class Loop:
    """Runs one model's inference for `generate`, one answer at a time."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    @property
    def recommended(self) -> Recommended:
        return self.inference.engine.info.recommended

    def answer(
        self,
        prompt: list[int],
        settings: Settings,
        ends: tuple[int, ...],
        processors: LogitsProcessorList,
    ) -> Generator[list[int], None, None]:
        """Yield the answer's groups. No cache entry is reused, so that answers are reproducible."""
        groups = self.inference.prompt_groups(prompt)
        changes = [_processor(processors)] if processors else ()
        with self.inference.answer(
            groups, settings, reuse="none", processors=changes, eos_ids=ends
        ) as stream:
            for chunk in stream:
                if chunk.tokens:
                    yield list(chunk.tokens)

    def read(self, tokens: Sequence[int]) -> Tensor:
        """Return the logits after every token, one token a slot: [tokens, vocab]"""
        with self.inference.turns.exclusive():
            engine, rows = self.inference.engine, []
            engine.keep([])
            for start in range(0, len(tokens), engine.chunk):
                chunk = tokens[start : start + engine.chunk]
                positions = range(start, start + len(chunk))
                readout = engine.backend.macro([(token,) for token in chunk], positions, range(len(chunk)))
                rows.append(torch.from_numpy(readout.logits.copy()))
            engine.backend.truncate(0)
            return torch.cat(rows)


def _processor(processors: LogitsProcessorList) -> Processor:
    """Return transformers' processors as one of the sampler's."""

    def process(tokens: Sequence[int], scores: Floats) -> Floats:
        ids: Any = torch.tensor([tokens])
        batch: Any = torch.from_numpy(scores)[None]
        processed: Floats = processors(ids, batch)[0].numpy()
        return processed

    return process


class HierarchicalGeneration(GenerationMixin):
    """A mixin for models with a `loop` and a `generation_config`."""

    generation_config: GenerationConfig

    @property
    def loop(self) -> Loop:
        raise NotImplementedError

    @classmethod
    def can_generate(cls) -> bool:
        return True

    @torch.no_grad()
    def generate(  # type: ignore[override]
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        logits_processor: Processors | None = None,
        stopping_criteria: Criteria | None = None,
        prefix_allowed_tokens_fn: Callable[[int, Tensor], list[int]] | None = None,
        streamer: BaseStreamer | None = None,
        *,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        tokenizer: Any = None,
        **named: Any,
    ) -> Tensor | HierarchicalOutput:
        """Answer the prompts [rows, length] one after the other: [rows, longest].

        Accepts transformers' settings and those of the loop (confidence, mode, json_schema, regex, grammar,
        seed, ...). An unsupported setting, such as beams or an assistant model, raises an InputError.
        """
        named = {name: value for name, value in named.items() if value or name not in _UNUSED}
        settings = merged(self.generation_config, generation_config, named)
        prompts = _prompts(inputs if input_ids is None else input_ids, attention_mask, settings)
        repeats = settings.num_return_sequences or 1
        if repeats > 1 and not settings.do_sample:
            raise InputError("num_return_sequences: without do_sample all answers are the same: ask for one")
        if streamer is not None and len(prompts) * repeats > 1:
            raise InputError(f"a streamer shows one answer, not {len(prompts) * repeats}: leave it out")
        loop = self.loop
        rows: list[list[int]] = []
        groups: list[list[list[int]]] = []
        for row in (row for row in prompts for _ in range(repeats)):
            prompt = row.prompt
            processors = processors_of(settings, len(prompt), prefix_allowed_tokens_fn)
            criteria = criteria_of(settings, tokenizer)
            processors.extend(logits_processor or ())
            criteria.extend(stopping_criteria or ())
            loop_settings = _loop_settings(settings, prompt, loop.recommended)
            answer = loop.answer(prompt, loop_settings, end_tokens(settings), processors)
            groups.append(list(_until_met(answer, prompt, criteria, streamer)))
            rows.append([*row.whole, *(token for group in groups[-1] for token in group)])
        sequences = _padded(rows, settings)
        return HierarchicalOutput(sequences, groups) if settings.return_dict_in_generate else sequences


class PaddedPrompt(NamedTuple):
    prompt: list[int]  # without padding
    whole: list[int]  # with padding, as returned before the answer


def _prompts(inputs: Tensor | None, mask: Tensor | None, settings: GenerationConfig) -> list[PaddedPrompt]:
    if inputs is None:
        if settings.bos_token_id is None:
            raise InputError("there is no prompt, and no bos_token_id to begin with: pass input_ids")
        inputs = torch.tensor([[settings.bos_token_id]])
    if inputs.ndim != 2 or inputs.is_floating_point():
        raise InputError(f"input_ids must be token ids [rows, length], got {list(inputs.shape)}")
    if mask is not None and mask.shape != inputs.shape:
        raise InputError(f"attention_mask is {list(mask.shape)}, input_ids {list(inputs.shape)}")
    masks = torch.ones_like(inputs) if mask is None else mask
    pairs = zip(inputs.tolist(), masks.tolist(), strict=True)
    return [
        PaddedPrompt([token for token, seen in zip(*pair, strict=True) if seen], pair[0]) for pair in pairs
    ]


def _loop_settings(settings: GenerationConfig, prompt: list[int], recommended: Recommended) -> Settings:
    """Return the loop's settings. Without a seed, sampling takes one from PyTorch's generator."""
    options = options_of(settings, len(prompt))
    if settings.do_sample and options.get("seed") is None:
        options["seed"] = int(torch.randint(2**62, ()).item())
    return Settings.of(options, recommended)


def _until_met(
    answer: Generator[list[int], None, None],
    prompt: list[int],
    criteria: StoppingCriteriaList,
    streamer: BaseStreamer | None,
) -> Iterator[list[int]]:
    """Yield the groups up to the token that meets the criteria, which are checked after every token."""
    if streamer is not None:
        streamer.put(torch.tensor([prompt]))
    text, met = list(prompt), False
    try:
        for group in answer:
            tokens: list[int] = []
            for token in group:
                tokens.append(token)
                text.append(token)
                if criteria and (met := bool(criteria(torch.tensor([text]), None).all())):
                    break
            if streamer is not None:
                streamer.put(torch.tensor(tokens))
            yield tokens
            if met:
                break
    finally:
        answer.close()
        if streamer is not None:
            streamer.end()


def _padded(rows: list[list[int]], settings: GenerationConfig) -> Tensor:
    ends = end_tokens(settings)
    pad = settings.pad_token_id
    pad = pad if pad is not None else ends[0] if ends else 0
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad)
