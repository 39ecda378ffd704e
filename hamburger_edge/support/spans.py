"""Spans of a prompt: pieces of its text that begin and end at word boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_BLANKS = b" \t\n\r"
_CONTINUES = range(0x80, 0xC0)  # later bytes of a UTF-8 character
_WORD_LEADS = range(0xC3, 0xE0)  # first bytes of U+00C0 to U+07FF: scripts that write blanks between words


class Spans:
    """The spans of some texts, without blanks at their ends, in the spelling of answers.

    A word boundary is any place between two characters, except between two word characters. These are ASCII
    letters and digits, and the characters from U+00C0 to U+07FF.
    """

    def __init__(self, texts: Iterable[bytes], spelling: Mapping[int, bytes]) -> None:
        """`spelling` has the bytes that an answer spells otherwise."""
        spelled = bytearray()
        starts, ends = bytearray([0]), bytearray([0])  # [bytes + 1] a span may start, end before a byte
        for text in texts:
            is_word = is_blank = False
            for byte in text.rstrip(_BLANKS):
                if byte not in _CONTINUES:
                    was_word, was_blank = is_word, is_blank
                    is_word = byte in _WORD_LEADS or (byte < 0x80 and chr(byte).isalnum())
                    is_blank = byte in _BLANKS
                    if not (was_word and is_word):
                        starts[-1], ends[-1] = not is_blank, not was_blank
                piece = spelling.get(byte) or bytes([byte])
                spelled += piece
                starts += bytes(len(piece))
                ends += bytes(len(piece))
            ends[-1] = 1
            spelled += b"\n"  # no value holds this byte unescaped
            starts.append(0)
            ends.append(0)
        self._text, self._starts, self._ends = bytes(spelled), bytes(starts), bytes(ends)

    def rest(self, start: bytes) -> int | None:
        """Return the number of bytes that are missing to the nearest end of a span; None: no span begins so.

        0: these bytes are a span, as none are.
        """
        if not start:
            return 0
        ends = [self._ends.index(1, place + len(start)) - place - len(start) for place in self._places(start)]
        return min(ends, default=None)

    def _places(self, start: bytes) -> Iterator[int]:
        index = self._text.find(start)
        while index >= 0:
            if self._starts[index]:
                yield index
            index = self._text.find(start, index + 1)


def texts_of(prompt: Sequence[int], token_bytes: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the prompt's runs of tokens with non-empty text."""
    text = b""
    for token in prompt:
        piece = token_bytes(token)
        if not piece and text:
            yield text
        text = text + piece if piece else b""
    if text:
        yield text
