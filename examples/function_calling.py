"""Call functions: the model's answer is JSON by a schema of three tools, and the program calls the tool.

A second answer of the model puts the result into words.

    python examples/function_calling.py BUNDLE ["What is 12 plus 30?"]

BUNDLE is an exported bundle or `tiny`. Needs the extra `structured`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import hamburger_edge

UNITS = {"seconds": 1, "minutes": 60, "hours": 3600}


def add(a: int, b: int) -> dict[str, Any]:
    return {"sum": a + b}


def set_timer(amount: int, unit: str) -> dict[str, Any]:
    end = datetime.now(UTC) + timedelta(seconds=amount * UNITS[unit])
    return {"rings at": f"{end:%H:%M:%S}"}


def take_note(text: str) -> dict[str, Any]:
    return {"noted": text}


def closed(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, in this order.

    The loop does not have to choose its names and punctuation: the schema forces them.
    """
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
TOOLS: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "add": (add, closed(a=NUMBER, b=NUMBER)),
    "set_timer": (set_timer, closed(amount=NUMBER, unit={"enum": list(UNITS)})),
    "take_note": (take_note, closed(text={"type": "string", "maxLength": 60})),
}
CALL = {"anyOf": [closed(name={"const": name}, arguments=schema) for name, (_, schema) in TOOLS.items()]}


def dispatch(call: dict[str, Any]) -> dict[str, Any]:
    function, _ = TOOLS[call["name"]]
    return function(**call["arguments"])


def converse(model: hamburger_edge.Model, question: str) -> str:
    chat = model.chat(f"You call one of the functions {', '.join(TOOLS)}.", max_tokens=120)
    stream = chat.send(question, json_schema=CALL)
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    print()
    if not stream.complete:
        raise SystemExit("the call was cut: give it more tokens or a larger cache_slots")
    result = json.dumps(dispatch(json.loads(stream.text)))
    print(f"-> {result}")
    answer = chat.send(f"The result is {result}. Say so in one sentence.", max_tokens=40)
    for chunk in answer:
        print(chunk.text, end="", flush=True)
    print()
    return answer.text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("bundle")
    parser.add_argument("question", nargs="?", default="What is 12 plus 30?")
    options = parser.parse_args()
    try:
        with hamburger_edge.load(options.bundle) as model:
            converse(model, options.question)
    except hamburger_edge.HamburgerError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
