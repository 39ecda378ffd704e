"""Choose tokens under a llama.cpp grammar, in the same way as llama.cpp's own programs.

The grammar first checks the best token. It checks the whole vocabulary only if it rejects that token.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Floats

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
# Keep quoted text and character sets. Replace uses of the rule `space` with a fixed layout.
_PARTS = re.compile(
    r"""(?P<separator>"[,:]")\ space(?![\w-])"""
    r"""|(?P<kept>"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\])"""
    r"""|(?<![\w-])space(?![\w-])"""
)


class GrammarChoice:
    def __init__(self, low: Any, model: Any, schema: str):
        self.low, self.schema = low, schema
        vocab = low.llama_model_get_vocab(model)
        grammar = with_layout(_gbnf(schema))
        self.sampler = low.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
        if not self.sampler:
            raise InputError("llama.cpp cannot hold the grammar that it made of this schema: make it simpler")
        self.all = np.zeros(low.llama_vocab_n_tokens(vocab), _CANDIDATE)
        self.one = np.zeros(1, _CANDIDATE)

    def restart(self) -> None:
        self.low.llama_sampler_reset(self.sampler)

    def choose(self, scores: Floats) -> int:
        """Accept and return the best token that the grammar allows. `scores`: logits, [vocab]."""
        token = int(scores.argmax())
        self.one["id"], self.one["logit"] = token, scores[token]
        if np.isinf(self._apply(self.one)[0]):
            self.all["id"] = np.arange(len(self.all))
            self.all["logit"] = scores
            allowed = self._apply(self.all)
            token = int(self.all["id"][allowed.argmax()])
        self.low.llama_sampler_accept(self.sampler, token)
        return token

    def _apply(self, candidates: Any) -> Any:
        """Set the logits of rejected tokens to minus infinity and return all logits."""
        low = self.low
        data = candidates.ctypes.data_as(ctypes.POINTER(low.llama_token_data))
        array = low.llama_token_data_array(data=data, size=len(candidates), selected=-1, sorted=False)
        low.llama_sampler_apply(self.sampler, ctypes.byref(array))
        return candidates["logit"]

    def close(self) -> None:
        if self.sampler:
            self.low.llama_sampler_free(self.sampler)
        self.sampler = None


def _gbnf(schema: str) -> str:
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text: str = json_schema_to_gbnf(schema)
    except Exception as error:  # the converter may raise any type
        raise InputError(f"llama-cpp-python makes no grammar of this schema ({error!r:.200})") from error
    return text


def with_layout(grammar: str) -> str:
    """Return a JSON schema's grammar with our layout: a space after commas and colons, none elsewhere."""
    rules = [rule for rule in grammar.splitlines() if not rule.startswith("space ::=")]
    return "\n".join(_PARTS.sub(_part, rule) for rule in rules) + "\n"


def _part(match: re.Match[str]) -> str:
    if separator := match["separator"]:
        return f'{separator[:-1]} "'
    return match["kept"] or ""
