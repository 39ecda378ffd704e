"""Structured answers: a structure compiled for a tokenizer, and an answer's state in it.

    Structure --Grammars.start--> Grammar:  forced tokens, masks for base and micro steps, consume, rewind

llguidance does the parsing. A token is forced if the structure allows no other text. Forced text is split
into the tokenizer's usual tokens, which need no scores of a model.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hamburger_edge.errors import BundleError, InputError, require
from hamburger_edge.structured.rewriting import rewritten
from hamburger_edge.structured.structure import Structure
from hamburger_edge.support.constraint import Bools, Constraint

Run = tuple[Sequence[int], int]  # consecutive forced tokens, and the index of the next one

# The layout of json.dumps, which is common in training data: a space after commas and colons, none elsewhere.
# A fixed layout forces more tokens. A schema's "x-guidance" overrides it.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

# Limits of the parser against endless compilation: enough for objects of a thousand optional properties.
_LIMITS = {"max_items_in_row": 20_000, "step_max_items": 200_000, "verbose_errors": False}


class Grammars:
    """Compiles structures for one tokenizer and caches the newest, as most requests repeat it."""

    def __init__(self, tokenizer_json: Callable[[], str], vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._tokenizer_json = tokenizer_json
        self._vocab_size, self._eos_ids = vocab_size, list(eos_ids)
        self._tokenizer: Any = None  # built at the first structure: it takes a moment
        self._lock = threading.Lock()
        self._newest: tuple[Structure, Any] | None = None

    def start(self, structure: Structure) -> Grammar:
        with self._lock:
            if self._newest is None or self._newest[0] != structure:
                self._newest = structure, self._compile(structure)
            return Grammar(self._newest[1].deep_copy(), self._vocab_size)

    def _compile(self, structure: Structure) -> Any:
        guidance = require("llguidance", "structured")
        if self._tokenizer is None:
            try:
                self._tokenizer = guidance.LLTokenizer(
                    self._tokenizer_json(), n_vocab=self._vocab_size, eos_token=self._eos_ids or None
                )
            except ValueError as error:
                raise BundleError(
                    f"this tokenizer cannot hold a structure ({error}): leave it out"
                ) from error
        make, text = guidance.LLMatcher, structure.text
        try:
            if structure.kind == "json_schema":
                text = json.dumps(rewritten(json.loads(text)), ensure_ascii=False)
                text = make.grammar_from_json_schema(text, defaults={**LAYOUT, "lenient": structure.lenient})
            else:
                text = (make.grammar_from_regex if structure.kind == "regex" else make.grammar_from_lark)(
                    text
                )
        except ValueError as error:
            raise InputError(f"{structure.kind}: {error}: correct it") from error
        matcher = make(self._tokenizer, text, log_level=0, limits=guidance.LLParserLimits(**_LIMITS))
        if matcher.is_error():
            raise InputError(_explained(structure, matcher.get_error()))
        if not structure.lenient and (warnings := matcher.get_grammar_warnings()):
            raise InputError(_explained(structure, str(warnings[0])))
        beginning = Grammar(matcher.deep_copy(), self._vocab_size)
        if beginning.forced is None:  # both checks raise if the structure allows no answer
            beginning.allowed()
        return matcher


class Grammar(Constraint):
    """The state of one answer in its structure: the tokens that may come next."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._bits = np.zeros((vocab_size + 31) // 32, dtype=np.int32)
        self._vocab_size = vocab_size
        self._runs: list[Run] = []  # the forced run before each consumed token
        self._run: Run | None = None  # the forced run here; computed on demand
        self._allowed: Bools | None = None

    @property
    def forced(self) -> int | None:
        """Return the only token that may come next; None if there is a choice.

        A run of forced text is tokenized as a whole. Its rest is never tokenized again, even if an answer
        stops inside the run and continues later.
        """
        if self._run is None:
            self._run = self._matcher.compute_ff_tokens(), 0
            self._check()
        tokens, index = self._run
        return tokens[index] if index < len(tokens) else None

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting()) or self.ended

    @property
    def ended(self) -> bool:
        """Whether the answer must end here."""
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()

    def allowed(self) -> Bools:
        """Return a mask [vocab] of the tokens that may come next."""
        if self._allowed is None:
            self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
            self._check()
            bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
            self._allowed = bits[: self._vocab_size].view(np.bool_)
        return self._allowed

    def consume(self, token: int) -> None:
        forced = self.forced
        assert self._run is not None
        tokens, index = self._run
        self._matcher.consume_token(token)
        self._check()
        self._runs.append(self._run)
        going_on = token == forced and index + 1 < len(tokens)
        self._run = (tokens, index + 1) if going_on else None
        self._allowed = None

    def rewind(self, tokens: int) -> None:
        """Take back the last tokens, after an error, too: the next use raises if the error persists."""
        if tokens:
            self._matcher.rollback(tokens)
            self._run = self._runs[-tokens]
            del self._runs[-tokens:]
            self._allowed = None

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        """Return to the beginning of an answer, then consume its tokens."""
        self._matcher.reset()
        self._runs.clear()
        self._run = self._allowed = None
        for token in answer:
            self.consume(token)

    def _check(self) -> None:
        if self._matcher.is_error():
            message = _first_line(self._matcher.get_error())
            if "NoExtension" in message:
                raise InputError("the structure allows no answer that goes on from here: correct it")
            raise InputError(f"the structure is too much to follow from here ({message}): make it simpler")


def _explained(structure: Structure, message: str) -> str:
    """Return llguidance's multi-line error as one line: the place, the fault and the remedy."""
    kind = structure.kind
    if match := re.search(r'^Unimplemented keys: \["([^"]*)"', message):
        return _unsupported(structure, f'"{match[1]}"', structure.place(match[1]))
    if match := re.search(r"^Unknown format: (.*)", message):
        path = structure.place("format", match[1])
        return _unsupported(structure, f"format {json.dumps(match[1])}", path)
    if message.startswith("oneOf"):
        path = structure.place("oneOf")
        return _unsupported(structure, "oneOf of alternatives that may overlap", path, "use anyOf, ")
    if match := re.search(r"regex parse error:\n    (.*)\n    ( *)\^+\nerror: (.*)", message):
        pattern, before, reason = match.groups()
        before, after = (
            part.replace("\\/", "/") for part in (pattern[: len(before)], pattern[len(before) :])
        )
        shown = before + after if len(pattern) <= 60 else after[:60]
        return f'{kind}: {reason} in "{shown}", at character {len(before) + 1}: correct it'
    line = _first_line(message)
    if kind == "regex":  # drop its place, which is inside a generated grammar
        line = re.sub(r"^at [\d()]+: (invalid regex .*\(in regex\): )?(regex parse error: )?", "", line)
    line = re.sub(r"^(at )?(\d+)\((\d+)\):", r"line \2, column \3:", line)
    return f"{kind}: {line[:1].lower()}{line[1:]}: correct it"


def _unsupported(structure: Structure, what: str, path: str | None, instead: str = "") -> str:
    where = f" (at {path})" if path else ""
    return f"{structure.kind}: {what}{where} is not supported: {instead}leave it out, or set strict=False"


def _first_line(message: str) -> str:
    """Return the message without the source excerpt that llguidance draws below it."""
    first = re.split(r"\n<|\n +\d+ \| |\n\n", message.strip())[0]
    return re.sub(r"\s+", " ", first)[:200].rstrip(": ")
