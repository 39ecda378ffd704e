"""Score calls for the commands written by hand, which are for judging only.

    python -m hamburger_edge.models.zoo.home_commands.making.judge --parser
    python -m hamburger_edge.models.zoo.home_commands.making.judge --bundle BUNDLE [--mode MODE]
    python -m hamburger_edge.models.zoo.home_commands.making.judge --calls CALLS.jsonl

`--parser` is Home Assistant's own (hassil), with the names in home.json. The table has a row for commands
that the parser answers rightly, a row for the others, and one for sentences that are no command. Its columns
are the share of rows with the right functions; with the right values, too, but for `domain` and
`device_class`; and with all of the calls right. Letter case does not count. Without a command all three mean
no call.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hamburger_edge
from hamburger_edge.models.zoo.home_commands.making.generate import BY_HAND, read_rows
from hamburger_edge.models.zoo.home_commands.making.parser import HomeParser

HOME = Path(__file__).with_name("home.json")
IMPLIED = ("domain", "device_class")  # follow from the kind of device, which a sentence need not name
Calls = Sequence[Mapping[str, Any]]


@dataclass
class Score:
    rows: int = 0
    function: int = 0
    values: int = 0
    whole: int = 0

    def add(self, expected: Calls, calls: Calls) -> None:
        self.rows += 1
        self.function += functions(calls) == functions(expected)
        self.values += keys(calls, IMPLIED) == keys(expected, IMPLIED)
        self.whole += keys(calls) == keys(expected)

    def line(self) -> str:
        shares = (
            f"{100 * count / max(1, self.rows):.1f}" for count in (self.function, self.values, self.whole)
        )
        return f"{' | '.join(shares)} | {self.rows}"


def functions(calls: Calls) -> list[str]:
    return sorted(call["name"] for call in calls)


def keys(calls: Calls, without: Sequence[str] = ()) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return calls in a form that can be compared: values in small letters, 21.0 as 21."""
    return sorted(
        (
            call["name"],
            sorted((name, text(value)) for name, value in call["arguments"].items() if name not in without),
        )
        for call in calls
    )


def text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value).lower()


def read_home() -> dict[str, Any]:
    return dict(json.loads(HOME.read_text("utf-8")))


def scores(
    rows: Sequence[Mapping[str, Any]], answers: Sequence[Calls], parser: HomeParser
) -> dict[str, Score]:
    found: dict[str, Score] = defaultdict(Score)
    for row, calls in zip(rows, answers, strict=True):
        understood = keys(parser.calls(row["prompt"])) == keys(row["calls"])
        kind = "parser understands" if understood else "other commands"
        found[kind if row["calls"] else "no command"].add(row["calls"], calls)
    return found


def table(found: Mapping[str, Score]) -> str:
    lines = [f"| {kind} | {score.line()} |" for kind, score in sorted(found.items())]
    return "\n".join(
        [
            "| sentences | functions, % | and values, % | whole calls, % | rows |",
            "|---|---|---|---|---|",
            *lines,
        ]
    )


def bundle_calls(
    bundle: str, mode: str | None, rows: Sequence[Mapping[str, Any]], home: Mapping[str, Any] | None
) -> list[Calls]:
    """Return a bundle's calls, with the names of `home` as the only values if it is given."""
    names = limits(home) if home else None
    dial: dict[str, Any] = {"mode": mode} if mode else {}
    with hamburger_edge.load(bundle) as model:
        answers = [model.call(row["prompt"], names=names, **dial) for row in rows]
    return [[{"name": call.name, "arguments": call.arguments} for call in calls] for calls in answers]


def limits(home: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the rooms and floors of a home, and its devices for the functions that take any of them."""
    devices = [name for names in home["name"].values() for name in names]
    functions = ("HassTurnOn", "HassTurnOff", "HassGetState")
    return {"area": home["area"], "floor": home["floor"], **{f"{name}.name": devices for name in functions}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--parser", action="store_true", help="judge Home Assistant's parser")
    source.add_argument("--bundle", help="judge a bundle tuned to the rows of generate.py")
    source.add_argument("--calls", type=Path, help="judge lines of calls, one for each row")
    parser.add_argument("--mode", choices=("plain", "verify", "hybrid", "merge"))
    parser.add_argument(
        "--names", action="store_true", help="limit a bundle's rooms and devices to those in home.json"
    )
    parser.add_argument("--rows", type=Path, default=BY_HAND, help="other rows of prompt and calls")
    parser.add_argument("--wrong", type=Path, help="file for the rows that are not right")
    options = parser.parse_args()
    rows, home = read_rows(options.rows), read_home()
    rival = HomeParser(home)
    if options.parser:
        answers: list[Calls] = [rival.calls(row["prompt"]) for row in rows]
    elif options.calls:
        answers = [row["calls"] for row in read_rows(options.calls)]
    else:
        answers = bundle_calls(options.bundle, options.mode, rows, home if options.names else None)
    print(table(scores(rows, answers, rival)))
    if options.wrong:
        wrong = (
            {**row, "answer": calls}
            for row, calls in zip(rows, answers, strict=True)
            if keys(row["calls"]) != keys(calls)
        )
        options.wrong.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in wrong), "utf-8"
        )


if __name__ == "__main__":
    main()
