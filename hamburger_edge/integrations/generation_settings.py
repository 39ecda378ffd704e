"""Translate transformers' GenerationConfig to the loop's settings, and refuse unsupported options."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from transformers import GenerationConfig, LogitsProcessorList, MaxTimeCriteria, StoppingCriteriaList
from transformers.generation import logits_process
from transformers.generation.stopping_criteria import StopStringCriteria

from hamburger_edge.errors import InputError
from hamburger_edge.loop.settings import Options
from hamburger_edge.support.values import safe_repr

_DEFAULTS = GenerationConfig().to_dict()
_LENGTHS = {"max_length", "max_new_tokens"}
_HONOURED = {
    *_LENGTHS,
    *("max_time", "stop_strings", "do_sample", "temperature", "top_k", "top_p", "min_p"),
    *("min_length", "min_new_tokens", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids"),
    *("sequence_bias", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens"),
    *("begin_suppress_tokens", "exponential_decay_length_penalty"),
    *("num_return_sequences", "return_dict_in_generate", "pad_token_id", "bos_token_id", "eos_token_id"),
}
# The loop's options that have no equivalent in transformers.
_OURS = set(Options.__annotations__) - {"max_tokens", "stop", "top_probabilities"} - _DEFAULTS.keys()
_WITHOUT_EFFECT = {"transformers_version", "use_cache", "return_legacy_cache", "disable_compile"}


def merged(
    own: GenerationConfig, given: GenerationConfig | None, named: Mapping[str, Any]
) -> GenerationConfig:
    """Merge the model's settings, the changes of `given` and the named arguments. Later ones override.

    `max_length` resets an earlier `max_new_tokens`. A changed mode resets the confidence, unless one is given
    with the mode.
    """
    settings = copy.deepcopy(own)
    changed = {} if given is None else given.to_dict()
    changed = {name: value for name, value in changed.items() if value != _DEFAULTS.get(name)}
    for layer in (changed, named):
        if unknown := sorted(set(layer) - _DEFAULTS.keys() - _OURS - {"_from_model_config"}):
            known = ", ".join(sorted(_HONOURED | _OURS))
            raise InputError(f"generate knows no {safe_repr(unknown[0])} (known: {known})")
        if "max_length" in layer and layer.get("max_new_tokens") is None:
            settings.max_new_tokens = None
        before = getattr(settings, "mode", None)
        if layer.get("mode", before) != before:
            layer = {"confidence": None, **layer}
        for name, value in layer.items():
            setattr(settings, name, value)
    values = settings.to_dict()
    for name in sorted(values.keys() & _DEFAULTS.keys() - _HONOURED - _WITHOUT_EFFECT):
        if not name.startswith("_") and values[name] not in (_DEFAULTS[name], None):
            raise InputError(
                f"{name}={safe_repr(values[name])} is nothing for tokens that come in groups: leave it out"
            )
    return settings


def end_tokens(settings: GenerationConfig) -> tuple[int, ...]:
    ids = settings.eos_token_id
    return () if ids is None else tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)


def options_of(settings: GenerationConfig, prompt_length: int) -> dict[str, Any]:
    """Return the options for `Settings.of`."""
    room = settings.max_new_tokens
    if room is None:
        room = settings.max_length - prompt_length
        if room < 1:
            raise InputError(
                f"a prompt of {prompt_length} tokens leaves no room for an answer below "
                f"max_length={settings.max_length}: set max_new_tokens"
            )
    options = {name: value for name in _OURS if (value := getattr(settings, name, None)) is not None}
    if settings.do_sample:
        options |= {
            "temperature": 1.0 if settings.temperature is None else settings.temperature,
            "top_k": settings.top_k or 0,
            "top_p": 1.0 if settings.top_p is None else settings.top_p,
            "min_p": settings.min_p or 0.0,
        }
    return {**options, "max_tokens": room}


def processors_of(
    settings: GenerationConfig, prompt_length: int, allowed: Callable[[int, Any], list[int]] | None
) -> LogitsProcessorList:
    """Return the processors in transformers' order. Those that need an end token are left out without one."""
    processors, ends = LogitsProcessorList(), list(end_tokens(settings))
    if settings.sequence_bias:
        processors.append(logits_process.SequenceBiasLogitsProcessor(settings.sequence_bias))
    if settings.repetition_penalty not in (None, 1.0):
        processors.append(logits_process.RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
    if settings.no_repeat_ngram_size:
        processors.append(logits_process.NoRepeatNGramLogitsProcessor(settings.no_repeat_ngram_size))
    if settings.bad_words_ids:
        processors.append(logits_process.NoBadWordsLogitsProcessor(settings.bad_words_ids, ends))
    if settings.min_length and ends:
        processors.append(logits_process.MinLengthLogitsProcessor(settings.min_length, ends))
    if settings.min_new_tokens and ends:
        processors.append(
            logits_process.MinNewTokensLengthLogitsProcessor(prompt_length, settings.min_new_tokens, ends)
        )
    if allowed is not None:
        processors.append(logits_process.PrefixConstrainedLogitsProcessor(allowed, 1))
    if settings.forced_bos_token_id is not None:
        processors.append(logits_process.ForcedBOSTokenLogitsProcessor(settings.forced_bos_token_id))
    if settings.forced_eos_token_id is not None:
        last = settings.max_length
        if settings.max_new_tokens is not None:
            last = prompt_length + settings.max_new_tokens
        processors.append(logits_process.ForcedEOSTokenLogitsProcessor(last, settings.forced_eos_token_id))
    if settings.exponential_decay_length_penalty and ends:
        decay = settings.exponential_decay_length_penalty
        processors.append(logits_process.ExponentialDecayLengthPenalty(decay, ends, prompt_length))
    if settings.suppress_tokens:
        processors.append(logits_process.SuppressTokensLogitsProcessor(settings.suppress_tokens))
    if settings.begin_suppress_tokens:
        processors.append(
            logits_process.SuppressTokensAtBeginLogitsProcessor(settings.begin_suppress_tokens, prompt_length)
        )
    return processors


def criteria_of(settings: GenerationConfig, tokenizer: Any) -> StoppingCriteriaList:
    criteria = StoppingCriteriaList()
    if settings.max_time is not None:
        criteria.append(MaxTimeCriteria(settings.max_time))
    if settings.stop_strings:
        if tokenizer is None:
            raise InputError("stop_strings are texts: pass tokenizer= along")
        criteria.append(StopStringCriteria(tokenizer, settings.stop_strings))
    return criteria
