"""Answers of bundles on this processor, and sessions made on another one: the core alone is needed.

    python answers.py FOLDER HERE [THERE]

FOLDER holds bundles. Answers and sessions go to FOLDER.HERE.json and FOLDER.HERE/; what was saved THERE is
resumed, and what is said next stands in the JSON beside what this processor's own conversation says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hamburger_edge
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.errors import HamburgerError
from hamburger_edge.model import Model

QUESTIONS = ("What is 7 plus 8?", "Count from 3 to 9.")
NEXT = "And what is 2 plus 2?"


def say(chat: Chat, text: str) -> list[int]:
    return [token for chunk in chat.send(text) for token in chunk.tokens]


def answers(model: Model, session: Path) -> list[list[int]]:
    """Of a question asked plainly, and of a conversation, saved before its last turn."""
    plain = model.generate(QUESTIONS[0], confidence=1.0, max_tokens=24).tokens
    chat = model.chat(mode="merge", confidence=0.8, max_tokens=24)
    said = [say(chat, question) for question in QUESTIONS]
    chat.save(session)
    return [plain, *said, say(chat, NEXT)]


def resumed(model: Model, session: Path) -> list[int] | str:
    try:
        return say(model.resume(session), NEXT)
    except HamburgerError as error:
        return str(error)


def main(folder: Path, here: str, there: str | None = None) -> None:
    sessions = folder.with_name(f"{folder.name}.{here}")
    sessions.mkdir(exist_ok=True)
    found: dict[str, dict[str, object]] = {}
    for bundle in sorted(path.parent for path in folder.glob("*/manifest.json")):
        try:
            with hamburger_edge.load(bundle, "onnx", threads=1) as model:
                found[bundle.name] = {"answers": answers(model, sessions / bundle.name)}
                if there is not None:
                    other = folder.with_name(f"{folder.name}.{there}") / bundle.name
                    found[bundle.name]["resumed"] = resumed(model, other)
        except hamburger_edge.BundleError as error:
            found[bundle.name] = {"refused": str(error)}
        print(bundle.name, found[bundle.name], flush=True)
    folder.with_name(f"{folder.name}.{here}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
