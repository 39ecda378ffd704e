"""The field and the string that a JSON text has come to, byte by byte.

    {"slots": {"album": "Jer       field "slots.album", string b"Jer"

A field is the path of keys to a value, joined by dots; the items of a list share a path with "[]" behind it.
Keys and strings stay as the text spells them, with its escapes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    VALUE = 0  # a value may begin
    KEY = 1  # a key may begin, or the object may end
    NAME = 2  # inside a key
    COLON = 3  # behind a key
    STRING = 4  # inside a string that is a value
    OTHER = 5  # inside a number or a word
    END = 6  # behind a value
    LOST = 7  # the text is not JSON


_BLANKS = b" \t\n\r"
_OPENS = {ord("{"): Phase.KEY, ord("["): Phase.VALUE}
_CLOSES = {ord("}"): ord("{"), ord("]"): ord("[")}
_QUOTE, _BACKSLASH, _COMMA, _COLON, _LIST = b'"\\,:['


class Position(NamedTuple):
    phase: Phase = Phase.VALUE
    field: str = ""  # of the value here, or of the newest key
    text: bytes = b""  # of the key or string so far
    escapes: bool = False  # whether the next byte belongs to an escape
    around: tuple[tuple[int, str], ...] = ()  # opening byte and field of each container

    def after(self, byte: int) -> Position:
        phase = self.phase
        if phase in (Phase.NAME, Phase.STRING):
            return self._in_string(byte)
        if phase == Phase.LOST or byte in _BLANKS:
            return self if phase != Phase.OTHER else self._ended()
        if phase == Phase.KEY and byte == _QUOTE:
            return self._replace(phase=Phase.NAME, text=b"")
        if phase == Phase.COLON:
            return self._replace(phase=Phase.VALUE) if byte == _COLON else LOST
        if phase == Phase.VALUE and byte == _QUOTE:
            return self._replace(phase=Phase.STRING, text=b"")
        if phase == Phase.VALUE and byte in _OPENS:
            return self._opened(byte)
        if byte in _CLOSES:
            return self._closed(byte)
        if byte == _COMMA and phase in (Phase.OTHER, Phase.END):
            return self._next()
        return self._replace(phase=Phase.OTHER) if phase in (Phase.VALUE, Phase.OTHER) else LOST

    def _in_string(self, byte: int) -> Position:
        if byte < 0x20:
            return LOST
        if self.escapes or byte != _QUOTE:
            escapes = byte == _BACKSLASH and not self.escapes
            return Position(self.phase, self.field, self.text + bytes([byte]), escapes, self.around)
        if self.phase == Phase.STRING:
            return self._ended()
        outer = self.around[-1][1]
        key = self.text.decode(errors="replace")
        return self._replace(phase=Phase.COLON, field=f"{outer}.{key}" if outer else key)

    def _ended(self) -> Position:
        return self._replace(phase=Phase.END, text=b"")

    def _opened(self, byte: int) -> Position:
        field = f"{self.field}[]" if byte == _LIST else self.field
        return Position(_OPENS[byte], field, around=(*self.around, (byte, self.field)))

    def _closed(self, byte: int) -> Position:
        """Leave the container; a comma before its end is no error."""
        if not self.around or self.around[-1][0] != _CLOSES[byte]:
            return LOST
        return Position(Phase.END, self.around[-1][1], around=self.around[:-1])

    def _next(self) -> Position:
        if not self.around:
            return LOST
        opening, field = self.around[-1]
        if opening == _LIST:
            return self._replace(phase=Phase.VALUE, field=f"{field}[]")
        return self._replace(phase=Phase.KEY)


LOST = Position(Phase.LOST)
