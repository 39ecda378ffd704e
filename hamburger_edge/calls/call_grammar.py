"""Decoding along a catalogue: the tokens that may come next in an answer of calls.

A token is forced if the catalogue allows no other text. The strings of copied fields are spans of the prompt.
Near the token limit only those tokens are allowed from which the answer can still be completed, so no answer
is cut inside a call or a copied string.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

import numpy as np

from hamburger_edge.calls.byte_automaton import ByteVocabulary, States
from hamburger_edge.calls.call_automaton import call_states
from hamburger_edge.calls.catalogue import CallLimits, Catalogue
from hamburger_edge.calls.compact_form import spelling
from hamburger_edge.errors import InputError
from hamburger_edge.support.constraint import Bools, Constraint
from hamburger_edge.support.spans import Spans, texts_of

OVER = -1  # the state after the end token
MOST_MASKS = 512  # kept in memory, one byte per token each


class CallGrammars:
    """Compiles catalogues with limits for one tokenizer, and caches the newest."""

    def __init__(
        self,
        catalogue: Catalogue,
        token_bytes: Callable[[int], bytes],
        encode: Callable[[str], list[int]],
        vocab_size: int,
        eos_ids: Sequence[int],
        copied_fields: Collection[str] = (),
    ) -> None:
        self.catalogue, self._copying = catalogue, catalogue.copying(copied_fields)
        self._token_bytes, self._encode = token_bytes, encode
        self._vocab_size, self._eos_ids = vocab_size, tuple(eos_ids)
        self._vocabulary: ByteVocabulary | None = None  # made for the first answer
        self._newest: tuple[CallLimits, CompiledCalls] | None = None
        self._lock = threading.Lock()

    def start(self, limits: CallLimits, max_tokens: int) -> CallGrammar:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = ByteVocabulary(
                    [self._token_bytes(token) for token in range(self._vocab_size)]
                )
            if self._newest is None or self._newest[0] != limits:
                states = call_states(self._copying.limited(limits), limits)
                compiled = CompiledCalls(states, self._vocabulary, self._encode, self._eos_ids)
                self._newest = limits, compiled
            return CallGrammar(self._newest[1], max_tokens)


class CompiledCalls:
    """The tokens that may follow each state, computed on first use."""

    def __init__(
        self,
        states: States,
        vocabulary: ByteVocabulary,
        encode: Callable[[str], list[int]],
        eos_ids: tuple[int, ...],
    ) -> None:
        self.states, self.vocabulary, self.eos_ids = states, vocabulary, eos_ids
        self._encode = encode
        self._allowed: dict[int, Bools] = {}
        self._runs: dict[int, tuple[int, ...]] = {}

    def allowed(self, state: int) -> Bools:
        """Return a mask [vocab] of the tokens that may follow a state."""
        if state not in self._allowed:
            if len(self._allowed) >= MOST_MASKS:
                self._allowed.clear()
            self._allowed[state] = self._with_end(state, self.states.after_tokens(state, self.vocabulary) > 0)
        return self._allowed[state]

    def allowed_within(self, state: int, tokens: int) -> Bools:
        """Return the mask of the tokens after which `tokens - 1` more can complete the answer."""
        after = self.states.after_tokens(state, self.vocabulary)
        return self._with_end(state, (after > 0) & (self.states.distances()[after] < tokens))

    def run(self, state: int) -> tuple[int, ...]:
        """Return the tokens that are forced after a state, one after the other.

        The run ends where a longer token may replace its rest, as the text behind it is not forced.
        """
        if state not in self._runs:
            self._runs[state] = tuple(self._cut(state, self._forced_text(state)))
        return self._runs[state]

    def _with_end(self, state: int, allowed: Bools) -> Bools:
        allowed[list(self.eos_ids)] = self.states.complete(state)
        return allowed

    def _forced_text(self, state: int) -> str:
        text = bytearray()
        while not self.states.complete(state) and len(choices := self.states.next_bytes(state)) == 1:
            text += bytes(choices)
            state = self.states.follow(state, bytes(choices))
        return text.decode(errors="ignore")

    def _cut(self, state: int, text: str) -> list[int]:
        tokens = self._encode(text) if text else []
        rest, run = text.encode(), list[int]()
        for token in tokens:
            piece = self.vocabulary.pieces[token]
            longer = self.vocabulary.longer_than(rest)
            if not piece or not rest.startswith(piece) or (longer and self.allowed(state)[longer].any()):
                break
            run.append(token)
            rest, state = rest[len(piece) :], self.states.follow(state, piece)
        return run


class CallGrammar(Constraint):
    """The state of one answer."""

    def __init__(self, compiled: CompiledCalls, max_tokens: int) -> None:
        self._compiled, self._states = compiled, compiled.states
        self._max_tokens = max_tokens
        self._state = self._states.start
        self._run: tuple[int, ...] = ()  # forced tokens from here on; (): not computed, or there is a choice
        self._copied: bytes | None = b""  # copied string so far; None: free, a refused token was consumed
        # state, run and copied string before each consumed token
        self._history: list[tuple[int, tuple[int, ...], bytes | None]] = []
        self._last = max_tokens  # number of tokens at which the answer ends
        self._texts: tuple[bytes, ...] = ()  # of the prompt
        self._spans: dict[str, Spans] = {}  # marks that may end a string -> spans in its spelling

    @property
    def forced(self) -> int | None:
        """Return the only token that may come next; None if there is a choice."""
        if not self._run and not self.ended:
            self._run = self._compiled.run(self._state)
        return self._run[0] if self._run else None

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return self._state == OVER or self._states.complete(self._state)

    @property
    def ended(self) -> bool:
        """Whether the answer must end here."""
        return self._state == OVER or (self.complete and not self._states.next_bytes(self._state))

    def allowed(self) -> Bools:
        """Return a mask [vocab] of the tokens that may come next."""
        if self._state == OVER:
            return np.zeros(self._compiled.vocabulary.size, np.bool_)
        if self._left > self._states.longest_distance + 1:
            return self._compiled.allowed(self._state)
        return self._compiled.allowed_within(self._state, self._left)

    def allows(self, token: int) -> bool:
        return super().allows(token) and (self._copied is None or self._copied_after(token) is not None)

    def consume(self, token: int) -> None:
        run = self._run[1:] if token == self.forced else ()
        copied = None if self._copied is None else self._copied_after(token)
        self._history.append((self._state, self._run, self._copied))
        if token in self._compiled.eos_ids:
            self._state = OVER if self.complete else 0
        else:
            piece = self._compiled.vocabulary.pieces[token]
            self._state = self._states.follow(self._state, piece) if piece and self._state > 0 else 0
        self._run, self._copied = run, copied
        if self._state == 0:
            raise InputError("the catalogue allows no answer that goes on from here: begin a new answer")

    def rewind(self, tokens: int) -> None:
        """Take back the last tokens."""
        if tokens:
            self._state, self._run, self._copied = self._history[-tokens]
            del self._history[-tokens:]

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        """Return to the beginning of an answer, then consume its tokens."""
        self._state, self._run, self._copied = self._states.start, (), b""
        self._history.clear()
        self._texts = tuple(texts_of(prompt, self._compiled.vocabulary.pieces.__getitem__))
        self._spans.clear()
        self._last = len(answer) + self._max_tokens
        for token in answer:
            self.consume(token)

    @property
    def _left(self) -> int:
        """Return the number of tokens that the answer may still have."""
        return self._last - len(self._history)

    def _copied_after(self, token: int) -> bytes | None:
        """Return the copied string so far after a token, empty outside of one.

        None: the token would end it as no span, or no span that begins so fits into the tokens that are left.
        """
        states, state, text = self._states, self._state, self._copied or b""
        marks = states.copying(state)
        if token in self._compiled.eos_ids:
            return b"" if marks is None or self._spans_until(marks).rest(text) == 0 else None
        for byte in self._compiled.vocabulary.pieces[token]:
            before, state = marks, states.follow(state, bytes([byte]))
            marks = states.copying(state)
            if before is not None and marks is None and self._spans_until(before).rest(text) != 0:
                return None
            text = b"" if before is None or marks is None else text + bytes([byte])
        rest = 0 if marks is None else self._spans_until(marks).rest(text)
        return None if rest is None or rest + states.distance(state) >= self._left else text

    def _spans_until(self, marks: str) -> Spans:
        if marks not in self._spans:
            self._spans[marks] = Spans(self._texts, spelling(marks))
        return self._spans[marks]
