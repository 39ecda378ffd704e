"""Answers of bundles on this processor, and sessions made on another one: the core alone is needed.

    python answers.py FOLDER HERE [THERE]

FOLDER holds bundles. Answers and sessions go to FOLDER.HERE.json and FOLDER.HERE/; what was saved THERE is
resumed, and what is said next stands in the JSON beside what this processor's own conversation says.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import hamburger_edge
from hamburger_edge.errors import HamburgerError
from hamburger_edge.model import Model

QUESTIONS = ("What is 7 plus 8?", "Count from 3 to 9.")
NEXT = "And what is 2 plus 2?"
OPTIONS = {"mode": "merge", "confidence": 0.8, "max_tokens": 24}


def answers(model: Model, session: Path) -> list[list[int]]:
    """Of a question asked plainly, and of a conversation, saved before its last turn."""
    said = [model.generate(QUESTIONS[0], confidence=1.0, max_tokens=24).tokens]
    chat = model.chat(**OPTIONS)  # type: ignore[arg-type]
    said += [[token for chunk in chat.send(each) for token in chunk.tokens] for each in QUESTIONS]
    chat.save(session)
    return [*said, [token for chunk in chat.send(NEXT) for token in chunk.tokens]]


def resumed(model: Model, session: Path) -> list[int] | str:
    try:
        chat = model.resume(session)
    except HamburgerError as error:
        return str(error)
    return [token for chunk in chat.send(NEXT) for token in chunk.tokens]


def main(folder: Path, here: str, there: str | None) -> None:
    sessions = folder.with_name(f"{folder.name}.{here}")
    sessions.mkdir(exist_ok=True)
    found: dict[str, dict[str, object]] = {}
    for bundle in sorted(path for path in folder.iterdir() if (path / "manifest.json").exists()):
        try:
            opened = hamburger_edge.load(bundle, "onnx", threads=1)
        except hamburger_edge.BundleError as error:
            found[bundle.name] = {"refused": str(error)}
            continue
        with contextlib.closing(opened) as model:
            found[bundle.name] = {"answers": answers(model, sessions / bundle.name)}
            if there is not None:
                other = folder.with_name(f"{folder.name}.{there}") / bundle.name
                found[bundle.name]["resumed"] = resumed(model, other)
        print(bundle.name, found[bundle.name], flush=True)
    folder.with_name(f"{folder.name}.{here}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
