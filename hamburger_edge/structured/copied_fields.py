"""A constraint on JSON answers: the strings of some fields are spans of the prompt.

    prompt   play Jersey Boys
    answer   {"album": "Jer        -> "ry" is refused, "sey" is allowed; then " Boys", or the closing quote

A span begins and ends at word boundaries. Everything outside these strings is free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from hamburger_edge.structured.json_fields import LOST, Phase, Position
from hamburger_edge.support.constraint import Constraint

# JSON's spelling of bytes, as json.dumps(..., ensure_ascii=False) writes them
_SPELLED = {code: json.dumps(chr(code), ensure_ascii=False)[1:-1].encode() for code in range(0x80)}
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')  # bytes that neither end a string nor begin an escape
_BLANKS = b" \t\n\r"
_CONTINUES = range(0x80, 0xC0)  # later bytes of a UTF-8 character
_WORD_LEADS = range(0xC3, 0xE0)  # first bytes of U+00C0 to U+07FF: scripts that write blanks between words


class Spans:
    """The spans of some texts, spelled as in JSON strings, without blanks at their ends.

    A word boundary is any place between two characters, except between two word characters. These are ASCII
    letters and digits, and the characters from U+00C0 to U+07FF.
    """

    def __init__(self, texts: Iterable[bytes]) -> None:
        spelled = bytearray()
        starts, ends = (
            bytearray([0]),
            bytearray([0]),
        )  # [bytes + 1] whether a span may start, end before a byte
        for text in texts:
            is_word = is_blank = False
            for byte in text.rstrip(_BLANKS):
                if byte not in _CONTINUES:
                    was_word, was_blank = is_word, is_blank
                    is_word = byte in _WORD_LEADS or (byte < 0x80 and chr(byte).isalnum())
                    is_blank = byte in _BLANKS
                    if not (was_word and is_word):
                        starts[-1], ends[-1] = not is_blank, not was_blank
                piece = _SPELLED.get(byte) or bytes([byte])
                spelled += piece
                starts += bytes(len(piece))
                ends += bytes(len(piece))
            ends[-1] = 1
            spelled += b"\n"  # no string holds this byte unescaped
            starts.append(0)
            ends.append(0)
        self._text, self._starts, self._ends = bytes(spelled), bytes(starts), bytes(ends)

    def begin_with(self, start: bytes) -> bool:
        """Whether a span begins with these bytes."""
        return not start or any(True for _ in self._places(start))

    def include(self, value: bytes) -> bool:
        """Whether this is a span; an empty one, too."""
        return not value or any(self._ends[start + len(value)] for start in self._places(value))

    def _places(self, start: bytes) -> Iterator[int]:
        index = self._text.find(start)
        while index >= 0:
            if self._starts[index]:
                yield index
            index = self._text.find(start, index + 1)


class CopiedFields(Constraint):
    """The JSON of one answer, and the spans of its prompt. Follows the sampler's choices and rewinds."""

    def __init__(
        self, fields: Collection[str], token_bytes: Callable[[int], bytes], eos_ids: Sequence[int]
    ) -> None:
        self._fields, self._token_bytes, self._eos_ids = frozenset(fields), token_bytes, frozenset(eos_ids)
        self._positions = [Position()]  # after each token
        self._spans = Spans([])

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        self._spans = Spans(self._texts(prompt))
        self._positions = [Position()]
        for token in answer:
            self.consume(token)

    def _texts(self, prompt: Sequence[int]) -> Iterator[bytes]:
        """Yield the prompt's runs of tokens with non-empty text."""
        text = b""
        for token in prompt:
            piece = self._token_bytes(token)
            if not piece and text:
                yield text
            text = text + piece if piece else b""
        if text:
            yield text

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
            if ends and (position == LOST or not self._spans.include(before.text)):
                return None
        if self._copies(position) and not self._spans.begin_with(position.text):
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
