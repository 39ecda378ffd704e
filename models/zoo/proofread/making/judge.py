"""Ask a bundle for all cases of a set made by sets.py, and count what it kept, mended and spoiled.

    python -m hamburger_edge.models.zoo.proofread.making.judge BUNDLE judge.jsonl.gz [--mode MODE]

Counted by kind of text and kind of mistake: answers that are right as a whole, answers in which every wrong
word is mended, and words lacking or added for every 1,000 others (spoiled).
`--free` lifts the rule of `edits_prompt`.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import hamburger_edge
from hamburger_edge.support.strict import decode_line, read_lines


@dataclass
class Count:
    cases: int = 0
    whole: int = 0
    mended: int = 0
    words: int = 0
    spoiled: int = 0

    def add(self, case: Mapping[str, Any], answer: str) -> None:
        right, said = case["answer"].split(" "), answer.split(" ")
        blocks = difflib.SequenceMatcher(None, right, said, autojunk=False).get_matching_blocks()
        kept = {index for block in blocks for index in range(block.a, block.a + block.size)}
        touched = changed(case["prompt"].split(" "), right)
        self.cases += 1
        self.whole += answer == case["answer"]
        self.mended += touched <= kept
        self.words += len(right) - len(touched)
        self.spoiled += len(set(range(len(right))) - touched - kept) + max(0, len(said) - len(right))

    def row(self) -> str:
        whole, mended = (f"{100 * share / self.cases:.1f}" for share in (self.whole, self.mended))
        return f"{whole} | {mended} | {1000 * self.spoiled / max(1, self.words):.1f} | {self.cases}"


def changed(prompt: list[str], right: list[str]) -> set[int]:
    """Words of the right text that the prompt does not have."""
    blocks = difflib.SequenceMatcher(None, prompt, right, autojunk=False).get_matching_blocks()
    return set(range(len(right))) - {i for block in blocks for i in range(block.b, block.b + block.size)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("bundle")
    parser.add_argument("cases", type=Path)
    parser.add_argument("--mode", choices=("plain", "verify", "hybrid", "merge"))
    parser.add_argument("--confidence", type=float)
    parser.add_argument("--each", type=int, default=0, help="cases of a kind (all)")
    parser.add_argument("--free", action="store_true", help="without the rule of edits_prompt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wrong", type=Path, help="file for the answers that are not right")
    options = parser.parse_args()
    cases = [decode_line(line, where) for where, line in read_lines(options.cases)]
    asked = {name: value for name in ("mode", "confidence") if (value := getattr(options, name)) is not None}
    counts: dict[tuple[str, str], Count] = defaultdict(Count)
    tokens = steps = 0
    seconds = 0.0
    wrong = []
    with hamburger_edge.load(options.bundle, threads=options.threads) as model:
        if options.free:
            free(model)
        for case in cases:
            count = counts[case["text"], case["mistake"]]
            if options.each and count.cases >= options.each:
                continue
            began = perf_counter()
            result = model.generate(case["prompt"], max_tokens=400, reuse_prefix=False, **asked)
            seconds += perf_counter() - began
            tokens, steps = tokens + result.stats.tokens, steps + result.stats.macro_steps
            count.add(case, result.text)
            if result.text != case["answer"]:
                wrong.append({**case, "said": result.text})
    print("| text | mistake | whole % | mended % | spoiled per 1,000 | cases |\n|---|---|---|---|---|---|")
    for (text, mistake), count in sorted(counts.items()):
        print(f"| {text} | {mistake} | {count.row()} |")
    requests = sum(count.cases for count in counts.values())
    print(f"{tokens / steps:.2f} tokens a step, {1000 * seconds / requests:.0f} ms a request")
    if options.wrong:
        lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in wrong)
        options.wrong.write_text("".join(lines), "utf-8")


def free(model: hamburger_edge.Model) -> None:
    """Let answers be whatever the weights prefer."""
    info = replace(model.info, edits_prompt=False)
    model.inference.engine.info = info  # what no application may change


if __name__ == "__main__":
    main()
