"""List the external weight files of an ONNX graph, without the package `onnx`.

A protobuf message is a list of fields. A field is a number and a wire type, then a value: a number, or a
length and bytes. The bytes may be another message. Only messages that contain the word `location`, on the
path to a tensor's `external_data`, are parsed.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from hamburger_edge.errors import BundleError
from hamburger_edge.support.files import open_regular

LARGEST = 1 << 31  # bytes of a graph: the limit of protobuf

# message -> field number -> the nested message
_INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_KEY, _VALUE = 1, 2  # field numbers of an entry
_LOCATION = b"location"  # the key of a file's name
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types


def external_files(path: Path) -> set[str]:
    """Return every `location` of external data in a graph, unchanged."""
    try:
        with open_regular(path, limit=LARGEST) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with data:
            return set(_locations(data))
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): copy the bundle again") from error
    except (ValueError, IndexError) as error:  # ValueError: also for an empty file
        raise BundleError(f"{path}: not an ONNX graph: copy the bundle again") from error


def _locations(data: mmap.mmap) -> Iterator[str]:
    waiting = [("model", 0, len(data))]
    while waiting:
        message, start, stop = waiting.pop()
        inside = _INSIDE.get(message, {})
        texts = {_KEY: b"", _VALUE: b""}
        for field, begin, end in _fields(data, start, stop):
            if field in inside and data.find(_LOCATION, begin, end) >= 0:
                waiting.append((inside[field], begin, end))
            elif message == "entry" and field in texts:
                texts[field] = data[begin:end]
        if texts[_KEY] == _LOCATION:
            yield texts[_VALUE].decode()


def _fields(data: mmap.mmap, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, begin, end) of the length-delimited fields of a message."""
    while at < stop:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if at + size > stop:
                raise ValueError("a field that is longer than its message")
            yield tag >> 3, at, at + size
            at += size
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"wire type {kind}")
    if at != stop:
        raise ValueError("a message that ends inside a field")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
