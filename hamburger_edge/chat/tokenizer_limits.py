"""Limits for a tokenizer.json.

A file of a few lines could make a prompt grow by a factor of a billion. The library ends the process when
memory runs out.

The growth bound of a component is the product of its steps' bounds, in output bytes per input byte.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from hamburger_edge.support.strict import unique_keys

MOST_GROWTH = 100  # factor of a text's growth over all steps of a component; Llama 2: 3
MOST_STEPS = 64
LONGEST_AFFIX = 64  # characters that a model adds to each piece
_PARTS = ("normalizers", "pretokenizers", "processors", "decoders")
_KINDS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")

# The model's tables of thousands of tokens: an object of numbers, and a list of strings or of pairs. They are
# nearly the whole file and contain no step. A quotation mark inside a JSON string is escaped, so a match
# never begins or ends inside one.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TABLES = re.compile(
    rb'("vocab"\s*+:\s*+)\{(?:\s*+%(s)b\s*+:\s*+\d++\s*+,?)*+\s*+\}'
    rb'|("merges"\s*+:\s*+)\[(?:\s*+(?:%(s)b|\[\s*+%(s)b\s*+,\s*+%(s)b\s*+\])\s*+,?)*+\s*+\]'
    % {b"s": _STRING}
)


def tokenizer_description(content: bytes) -> Any:
    """Decode a tokenizer.json with empty tables of tokens and merges, which only the library needs."""
    return json.loads(_TABLES.sub(rb"\1\2null", content), object_pairs_hook=unique_keys)


def check_tokenizer_limits(description: Any) -> None:
    """Raise a ValueError that names the component at fault."""
    if not isinstance(description, dict):
        raise ValueError("no table of settings")
    for kind in _KINDS:
        growth, steps = 1.0, 0
        for step in _steps(description.get(kind)):
            growth, steps = growth * max(1.0, _growth(step)), steps + 1
            if growth > MOST_GROWTH or steps > MOST_STEPS:
                raise ValueError(f"its {kind} makes a text grow beyond {MOST_GROWTH} times: refused")
    model = description.get("model")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        affix = model.get(name) if isinstance(model, dict) else None
        if affix is not None and len(affix) > LONGEST_AFFIX:
            raise ValueError(f"its model has a {name} of {len(affix)} characters: refused")


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a component, nested sequences included."""
    waiting = [component]
    while waiting:
        step = waiting.pop()
        if not isinstance(step, dict):
            continue
        yield step
        for name in _PARTS:
            if isinstance(inner := step.get(name), list):
                waiting += inner


def _growth(step: dict[str, Any]) -> float:
    """Return the most output bytes per input byte of a step."""
    kind = step.get("type")
    if kind == "Replace":
        pattern, content = step.get("pattern"), str(step.get("content", "")).encode()
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        # a regular expression may match the empty string before every byte
        return len(content) / len(literal.encode()) if literal else 1 + len(content)
    if kind == "Prepend":
        return 1 + len(str(step.get("prepend", "")).encode())
    if kind == "Metaspace":
        return 3
    if kind == "ByteLevel":
        return 2
    if kind == "Precompiled":
        return _longest_replacement(step.get("precompiled_charsmap"))
    if kind == "TemplateProcessing":
        return _template_growth(step)
    return 1


def _longest_replacement(charsmap: Any) -> float:
    """Return the longest replacement of a SentencePiece map, in bytes.

    The map: size of the trie (4 bytes, little endian), trie, replacements that end in a zero byte.
    """
    data = base64.b64decode(str(charsmap))
    trie = int.from_bytes(data[:4], "little")
    return max(map(len, data[4 + trie :].split(b"\0")), default=1)


def _template_growth(step: dict[str, Any]) -> float:
    """Return the number of tokens that the template makes of a text of one token."""
    special = step.get("special_tokens")
    sizes = {
        name: len(token.get("ids", ()))
        for name, token in (special.items() if isinstance(special, dict) else ())
        if isinstance(token, dict)
    }
    pieces = step.get("single")
    names = [p["SpecialToken"].get("id") for p in pieces or () if "SpecialToken" in p]
    return len(pieces or ()) - len(names) + sum(sizes.get(name, 1) for name in names)
