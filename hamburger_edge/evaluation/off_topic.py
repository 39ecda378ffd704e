"""Off-topic sentences: prompts that are no task of the model, for `--off-topic`.

{"prompt": ...}                   JSON lines; "domain" is for people
{"prompt": ..., "answer": ...}    the right answer of this task, such as {"intent": "none"}
{"licence": ..., "attribution": ...}    the first line of the built-in file

A task may be one of the built-in domains: "builtin-except:Restaurants,Weather" leaves those out.

off_topic.jsonl.gz          "builtin": 3,200 everyday sentences of 16 domains, and fragments; for calibration
                            and training, never for judging a built-in model
off_topic_by_hand.jsonl     60 other fragments, for judging only
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from hamburger_edge.calls.compact_form import NO_CALL
from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.support.strict import decode_line, only_keys, read_lines
from hamburger_edge.support.values import check_text, safe_repr

BUILT_IN = Path(__file__).with_name("off_topic.jsonl.gz")
BY_HAND = Path(__file__).with_name("off_topic_by_hand.jsonl")
EXCEPT = "builtin-except:"
NOTHING = ("", "none", "null", "unknown", "other", "nothing", "no_intent", "off_topic", "out_of_scope")


def read_off_topic(source: str, answer: str = "") -> list[Request]:
    """Read a file, or the built-in one if `source` is "builtin", or "builtin-except:" and domains.

    `answer`: the expected one of lines that have none. "": no answer is right.
    """
    excluded = set(source.removeprefix(EXCEPT).split(",")) if source.startswith(EXCEPT) else set()
    sentences, domains = [], set()
    for where, line in read_lines(BUILT_IN if source == "builtin" or excluded else source):
        data = decode_line(line, where)
        if isinstance(data, dict) and "licence" in data:
            continue
        only_keys(data, ("prompt", "answer", "domain"), where)
        prompt, expected = data.get("prompt"), data.get("answer", answer)
        if not isinstance(prompt, str) or not prompt.strip():
            raise InputError(f"{where}: prompt must be a text, got {safe_repr(prompt)}")
        if not isinstance(expected, str):
            raise InputError(f"{where}: answer must be a text, got {safe_repr(expected)}")
        domains.add(domain := str(data.get("domain")))
        if domain not in excluded:
            sentences.append(Request((), check_text(prompt, where), check_text(expected, where)))
    if unknown := excluded - domains:
        known = ", ".join(sorted(domains))
        raise InputError(f"{source}: {min(unknown)!r} is none of the domains: name some of {known}")
    if not sentences:
        raise InputError(f"{source}: holds no sentences: give some to --off-topic, or builtin")
    return sentences


def off_topic_answer(answers: Iterable[str]) -> str:
    """Return the first answer without content, such as {"intent": "none"} or no call; "" if there is none."""
    return next((answer for answer in dict.fromkeys(answers) if _is_empty(answer)), "")


def _is_empty(answer: str) -> bool:
    try:
        return answer == NO_CALL or _names_nothing(json.loads(answer))
    except (ValueError, RecursionError):
        return False


def _names_nothing(value: object) -> bool:
    if isinstance(value, dict | list):
        return all(map(_names_nothing, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, str) and value.lower() in NOTHING)
