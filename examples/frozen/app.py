"""Answer one prompt with the bundle beside this program; docs/guide/desktop.md freezes it with PyInstaller.

python examples/frozen/app.py "What is the capital of Norway?" [--json-schema TEXT]
python examples/frozen/app.py --licences
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import hamburger_edge

HERE = Path(__file__).resolve().parent  # in a frozen app: the folder of its data
BUNDLE, LICENCES = HERE / "bundle", HERE / "LICENCES.txt"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Answer one prompt.", allow_abbrev=False)
    parser.add_argument("prompt", nargs="?", help="what to answer")
    parser.add_argument("--json-schema", metavar="TEXT", help="the answer is JSON that follows this schema")
    parser.add_argument("--licences", action="store_true", help="print the licences of all parts")
    options = parser.parse_args(arguments)
    if options.licences:
        print(LICENCES.read_text(encoding="utf-8"))
        return
    if options.prompt is None:
        parser.error("nothing to answer: give a prompt")
    try:
        with hamburger_edge.load(BUNDLE) as model:
            for chunk in model.stream(options.prompt, json_schema=options.json_schema):
                print(chunk.text, end="", flush=True)
            print()
    except hamburger_edge.HamburgerError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
