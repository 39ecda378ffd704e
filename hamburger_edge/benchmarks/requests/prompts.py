"""Read a prompt file: one JSON object per line, with optional fields `answer` and `system`.

{"prompt": "Wake me at seven.", "answer": "{\\"intent\\": \\"SetAlarm\\"}", "system": "You call functions."}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from hamburger_edge.benchmarks.contender import BenchmarkRequest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import parse_lines
from hamburger_edge.support.strict import decode_line, only_keys
from hamburger_edge.support.values import check_text, safe_repr

KNOWN = ("prompt", "answer", "system")


@dataclass(frozen=True)
class BenchmarkPrompt:
    text: str
    answer: str | None = None  # the expected answer
    system: str | None = None


def read_prompts(path: str | PathLike[str]) -> list[BenchmarkPrompt]:
    """Read the prompts. An error contains the number of its line."""
    return parse_lines(path, _parse)


def _parse(line: str, where: str) -> BenchmarkPrompt:
    data = decode_line(line, where)
    only_keys(data, KNOWN, where)
    if not _text(data, "prompt", where):
        raise InputError(f"{where}: prompt must be a text, got {safe_repr(data.get('prompt'))}")
    return BenchmarkPrompt(data["prompt"], _text(data, "answer", where), _text(data, "system", where))


def _text(data: dict[str, Any], name: str, where: str) -> str | None:
    text = data.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InputError(f"{where}: {name} must be a text, got {safe_repr(text)}")
    try:
        return check_text(text)
    except InputError as error:
        raise InputError(f"{where}: {name}: {error}") from error


def requests(
    prompts: Sequence[BenchmarkPrompt],
    tokenizer: Tokenizer,
    template: ChatTemplate,
    *,
    max_tokens: int,
    eos_ids: tuple[int, ...],
    schema: str | None,
) -> list[BenchmarkRequest]:
    """Encode the prompts as token ids, so that every program reads the same ids."""
    return [
        BenchmarkRequest(
            tuple(tokenizer.encode_parts(template.first_turn(prompt.text, prompt.system))),
            max_tokens,
            eos_ids,
            schema,
        )
        for prompt in prompts
    ]
