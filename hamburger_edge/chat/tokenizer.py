"""Encoding and decoding with a tokenizer.json, and incremental decoding of streamed tokens."""

from __future__ import annotations

import codecs
import functools
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import tokenizers

from hamburger_edge.chat.tokenizer_limits import check_tokenizer_limits, tokenizer_description
from hamburger_edge.drafts.copied_words import Words
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.support.files import read_regular
from hamburger_edge.support.values import check_text


class Tokenizer:
    """A tokenizer.json, read from `path` unless its content is given. Safe to use from several threads."""

    def __init__(self, path: str | PathLike[str], content: bytes | None = None) -> None:
        try:
            content = read_regular(path) if content is None else content
        except OSError as error:
            raise BundleError(
                f"{path}: there is no tokenizer here ({error.strerror}); export the bundle again"
            ) from error
        self._path = path
        with _typed(f"{path}: not a tokenizer.json"):
            check_tokenizer_limits(tokenizer_description(content))
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._lock = threading.Lock()
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = {token.content: index for index, token in added.items() if token.special}
        self._special = _any_of(self.special_ids)
        self._piece_bytes, self.strips_first_space = _byte_decoder(self._tokenizer.decoder, str(path))
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @functools.cached_property
    def longest(self) -> int:
        """Characters of the longest token: an upper bound of characters per token."""
        return max(map(len, self._tokenizer.get_vocab()), default=1)

    def to_json(self) -> str:
        """Return the contents of tokenizer.json."""
        return str(self._tokenizer.to_str())

    def encode(self, text: str | bytes) -> list[int]:
        """Encode a text; special tokens are recognised, and the tokenizer adds its usual special tokens."""
        return self._encode(check_text(text), special=True)

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Encode (text, trusted) parts; special tokens are recognised in trusted parts only.

        Text between special tokens is encoded as one run, across parts. The result therefore equals the
        encoding of the joined text, apart from special tokens in untrusted parts.
        """
        ids: list[int] = []
        run = ""
        for text, trusted in parts:
            for piece in self._special.split(check_text(text)) if trusted else [check_text(text)]:
                if trusted and piece in self.special_ids:
                    ids += self._encode(run, special=False) if run else []
                    ids.append(self.special_ids[piece])
                    run = ""
                else:
                    run += piece
        return ids + (self._encode(run, special=False) if run else [])

    def encode_text(self, text: str) -> list[int]:
        """Encode a text without special tokens, also where their names are written in it."""
        return self._encode(check_text(text), special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text without special tokens."""
        try:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
        except (TypeError, OverflowError) as error:
            raise InputError(f"expected token ids to decode ({error})") from error

    def token_bytes(self, token: int) -> bytes:
        """Return the UTF-8 bytes of a token; empty if it is special or unknown."""
        text_bytes = self._bytes.get(token)
        if text_bytes is None:
            piece = self._tokenizer.id_to_token(token)
            silent = piece is None or piece in self.special_ids
            text_bytes = self._bytes[token] = b"" if silent else self._piece_bytes(piece)
        return text_bytes

    def words(self) -> Words:
        """Return what cuts prompts into words, for drafts that copy them."""
        return Words(self.token_bytes, lambda word: self._encode(word, special=False))

    def _encode(self, text: str, *, special: bool) -> list[int]:
        with self._lock, _typed(f"{self._path}: cannot encode a text"):
            self._tokenizer.encode_special_tokens = not special
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)


class TextStream:
    """Incremental text of a token stream, in whole characters, up to a stop string.

    The stream holds back the bytes of an unfinished character, and text that may begin a stop string.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        silent: Iterable[int] = (),
        *,
        whole: bool = False,  # keep the first space, which otherwise counts as the tokenizer's prefix
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._silent = frozenset(silent)  # tokens without text, such as the end tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._strip = tokenizer.strips_first_space and not whole

    def push(self, tokens: Sequence[int]) -> tuple[str, int | None]:
        """Return the new text, and how many of these tokens complete a stop string (None: no stop string)."""
        if not self._stop:  # a restored state may still hold back text for earlier stop strings
            text, self._held = self._held + self._decode(tokens), ""
            return text, None
        for count, token in enumerate(tokens, 1):
            self._held += self._decode((token,))
            positions = [position for stop in self._stop if (position := self._held.find(stop)) >= 0]
            if positions:
                text, self._held = self._held[: min(positions)], ""
                self._utf8.reset()
                return text, count
        keep = max(_overlap(self._held, stop) for stop in self._stop)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text, None

    def flush(self) -> str:
        """Return all held-back text; an unfinished character becomes U+FFFD."""
        text, self._held = self._held + self._utf8.decode(b"", final=True), ""
        self._utf8.reset()
        return text

    def state(self) -> dict[str, Any]:
        """Return the state as plain JSON; `restore` continues from exactly this state."""
        return {"bytes": self._utf8.getstate()[0].hex(), "held": self._held, "strip": self._strip}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._utf8.setstate((bytes.fromhex(state["bytes"]), 0))
        self._held, self._strip = str(state["held"]), bool(state["strip"])

    def _decode(self, tokens: Iterable[int]) -> str:
        data = b"".join([self._tokenizer.token_bytes(token) for token in tokens if token not in self._silent])
        if self._strip and data:
            data, self._strip = data.removeprefix(b" "), False
        return self._utf8.decode(data)


@contextmanager
def _typed(what: str) -> Iterator[None]:
    """Raise BundleError for errors of the library: bare exceptions, and panics, which are BaseExceptions."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        raise BundleError(f"{what} ({error}); export the bundle again") from error


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")" if longest_first else r"(?!)")


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)


def _byte_decoder(decoder: Any, path: str) -> Any:
    """Return the function from a vocabulary piece to bytes, and whether decoding strips the first space."""
    described = json.loads(decoder.__getstate__()) if decoder is not None else {"type": "none"}
    steps = {step["type"]: step for step in described.get("decoders", [described])}
    if "ByteLevel" in steps:
        return _byte_level, False
    if "ByteFallback" in steps or "Metaspace" in steps:
        strips = "Strip" in steps or steps.get("Metaspace", {}).get("prepend_scheme", "never") != "never"
        return _byte_fallback, strips
    raise BundleError(
        f"{path}: decoder {described['type']!r} is not supported (byte-level and byte-fallback are)"
    )


def _byte_alphabet() -> dict[str, int]:
    """Map each character of a byte-level vocabulary to its byte; a printable byte is its own character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes([_BYTE_OF[character] for character in piece])
    except KeyError:  # an added token is stored as plain text
        return piece.encode()


def _byte_fallback(piece: str) -> bytes:
    if match := re.fullmatch("<0x([0-9A-Fa-f]{2})>", piece):
        return bytes.fromhex(match[1])
    return piece.replace("▁", " ").encode()
