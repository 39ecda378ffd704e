"""What a tokenizer.json may ask of the library: a file of a few lines could make a prompt grow a billionfold,
and a library that finds no memory ends the process.

Growth is bounded by multiplying what each step can at most make of one byte.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

MOST_GROWTH = 100  # of a text, over all steps of a kind; Llama 2's is 3
MOST_STEPS = 64
LONGEST_AFFIX = 64  # characters that a model puts to each piece
_PARTS = ("normalizers", "pretokenizers", "processors", "decoders")
_KINDS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def check_tokenizer_limits(description: Any) -> None:
    """A ValueError that names the step at fault."""
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
    """The steps of a component, out of sequences inside each other."""
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
    """Bytes that one byte can become."""
    kind = step.get("type")
    if kind == "Replace":
        pattern, content = step.get("pattern"), str(step.get("content", "")).encode()
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        # a regular expression may match nothing, before every byte
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
    """Of a SentencePiece map: the size of a trie, the trie, replacements that end in zero bytes."""
    data = base64.b64decode(str(charsmap))
    trie = int.from_bytes(data[:4], "little")
    return max(map(len, data[4 + trie :].split(b"\0")), default=1)


def _template_growth(step: dict[str, Any]) -> float:
    """Tokens that a text of one becomes."""
    special = step.get("special_tokens")
    sizes = {
        name: len(token.get("ids", ()))
        for name, token in (special.items() if isinstance(special, dict) else ())
        if isinstance(token, dict)
    }
    pieces = step.get("single")
    names = [p["SpecialToken"].get("id") for p in pieces or () if "SpecialToken" in p]
    return len(pieces or ()) - len(names) + sum(sizes.get(name, 1) for name in names)
