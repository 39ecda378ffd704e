"""A constraint on JSON answers: the strings of some fields are spans of the prompt.

    prompt   play Jersey Boys
    answer   {"album": "Jer        -> "ry" is refused, "sey" is allowed; then " Boys", or the closing quote

Everything outside these strings is free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from hamburger_edge.structured.json_fields import LOST, Phase, Position
from hamburger_edge.support.constraint import Constraint
from hamburger_edge.support.spans import Spans, texts_of

# JSON's spelling of bytes, as json.dumps(..., ensure_ascii=False) writes them
SPELLED = {code: json.dumps(chr(code), ensure_ascii=False)[1:-1].encode() for code in range(0x80)}
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')  # bytes that neither end a string nor begin an escape


class CopiedFields(Constraint):
    """The JSON of one answer, and the spans of its prompt. Follows the sampler's choices and rewinds."""

    def __init__(
        self, fields: Collection[str], token_bytes: Callable[[int], bytes], eos_ids: Sequence[int]
    ) -> None:
        self._fields, self._token_bytes, self._eos_ids = frozenset(fields), token_bytes, frozenset(eos_ids)
        self._positions = [Position()]  # after each token
        self._spans = Spans([], SPELLED)

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        self._spans = Spans(texts_of(prompt, self._token_bytes), SPELLED)
        self._positions = [Position()]
        for token in answer:
            self.consume(token)

    def allows(self, token: int) -> bool:
        return self._following(token) is not None

    def consume(self, token: int) -> None:
        """Follow one more token; after a refused one, the rest of the answer is free."""
        self._positions.append(self._following(token) or LOST)

    def rewind(self, tokens: int) -> None:
        if tokens:
            del self._positions[-tokens:]

    def _following(self, token: int) -> Position | None:
        """Return the position after a token; None if a copied string would be no span."""
        position = self._positions[-1]
        text = self._token_bytes(token)
        if not text or token in self._eos_ids:
            return None if self._copies(position) else position
        for byte in text:
            before, position = position, position.after(byte)
            ends = self._copies(before) and not self._copies(position)
            if ends and (position == LOST or self._spans.rest(before.text) != 0):
                return None
        if self._copies(position) and self._spans.rest(position.text) is None:
            return None
        return position

    def _copies(self, position: Position) -> bool:
        return position.phase == Phase.STRING and position.field in self._fields


def string_values(answer: str) -> Iterator[tuple[str, bytes]]:
    """Yield field and spelling of every string that is a value in JSON; of a broken one, those before."""
    text, index, position = answer.encode(), 0, Position()
    while index < len(text):
        if position.phase in (Phase.NAME, Phase.STRING) and not position.escapes:
            letters = _PLAIN.match(text, index)
            assert letters is not None
            position, index = position._replace(text=position.text + letters[0]), letters.end()
        before, position = position, position.after(text[index]) if index < len(text) else LOST
        index += 1
        if before.phase == Phase.STRING and position.phase == Phase.END:
            yield before.field, before.text
