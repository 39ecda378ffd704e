"""Sets to choose by (dev) and to judge by, of texts and misspellings that training has not seen.

    python -m hamburger_edge.models.zoo.proofread.making.sets GATHERED OUT [--stories FILE] [--tokenizer FILE]

OUT/dev.jsonl     texts kept for it, with misspellings of the half that is learned from
OUT/judge.jsonl   other texts, names of their own, and sentences of arithmetic stories, with the other half

A line: {"text": kind of text, "mistake": kind of mistake or "clean", "prompt", "answer", "index"}. The index
is that of the spoiled word.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from hamburger_edge.models.zoo.proofread.making.examples import Maker
from hamburger_edge.models.zoo.proofread.making.gathered import Gathered
from hamburger_edge.models.zoo.proofread.making.mistake_kinds import CORE, with_capital
from hamburger_edge.models.zoo.proofread.making.tokens import encode

SLIPS = ("neighbour_key", "swapped_letters", "dropped_letter", "doubled_letter", "inserted_letter")
EACH = 300  # texts of a kind, clean and with a misspelling; a third as many with each other kind of mistake


@dataclass(frozen=True)
class Case:
    text: str
    mistake: str
    prompt: str
    answer: str
    index: int = -1


class SetMaker:
    def __init__(self, maker: Maker, misspelled: Mapping[str, Sequence[str]], count: int):
        self.maker, self.misspelled, self.count = maker, misspelled, count

    def cases(self, kind: str, texts: Sequence[str]) -> Iterator[Case]:
        """Clean texts, then others of the same with a misspelling, a slip of a finger, several mistakes."""
        draw = Random(f"cases/{kind}")
        texts = draw.sample(list(texts), len(texts))
        for text in texts[: self.count]:
            yield Case(kind, "clean", text, text)
        made = {"misspelling": 0, "slip": 0, "several": 0}
        for text in reversed(texts):
            if made["misspelling"] < self.count and (case := self.misspell(kind, text, draw)):
                made["misspelling"] += 1
                yield case
            if made["slip"] < self.count // 3:
                noisy = self.maker.noise.with_mistakes(text, 1, draw, SLIPS)
                if noisy.mistakes:
                    made["slip"] += 1
                    yield Case(kind, "slip", noisy.text, text, noisy.mistakes[0].index)
            if made["several"] < self.count // 3:
                noisy = self.maker.noise.with_mistakes(text, draw.randint(2, 4), draw)
                if len(noisy.mistakes) > 1:
                    made["several"] += 1
                    yield Case(kind, "several", noisy.text, text)

    def misspell(self, kind: str, text: str, draw: Random) -> Case | None:
        """One word as people misspell it."""
        words = text.split(" ")
        for index in draw.sample(range(len(words)), len(words)):
            found = CORE.fullmatch(words[index])
            if not found or len(found[1]) < 4 or found[1].lower() not in self.misspelled:
                continue
            core, tail = found[1], found[2]
            if core.lower() in self.maker.words.names or not (core.islower() or index == 0):
                continue
            wrong = with_capital(core, draw.choice(self.misspelled[core.lower()]))
            spoiled = " ".join([*words[:index], wrong + tail, *words[index + 1 :]])
            return Case(kind, "misspelling", spoiled, text, index)
        return None


def patterns_filled(maker: Maker, count: int) -> list[str]:
    draw = Random("patterns")
    patterns = maker.texts["patterns"]
    return [maker.filler.fill(draw.choice(patterns), draw) for _ in range(count)]


def story_sentences(path: Path) -> list[str]:
    """Sentences of the questions, as they stand."""
    found: dict[str, None] = {}
    for line in path.read_text("utf-8").splitlines():
        text = " ".join(json.loads(line)["prompt"].split())
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])(?<!Mr\. )(?<!Mrs\. )(?<!Ms\. )(?<!Dr\. )", text):
            if 4 <= len(sentence.split()) <= 30 and re.fullmatch(r"[A-Z].*[.!?]", sentence):
                found[sentence] = None
    return list(found)


def write(path: Path, cases: Iterable[Case]) -> list[Case]:
    cases = list(cases)
    path.write_text("".join(json.dumps(asdict(case), ensure_ascii=False) + "\n" for case in cases), "utf-8")
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("gathered", type=Path, metavar="GATHERED", help="file made by gather.py")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--stories", type=Path, help='JSON lines with "prompt": arithmetic stories')
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json: dev sets as tokens, too")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    gathered = Gathered.load(options.gathered)

    maker = Maker(gathered, of="dev")
    dev = SetMaker(maker, maker.words.misspelled, EACH)
    texts = {
        "everyday": maker.texts["everyday"],
        "names": patterns_filled(maker, 4 * EACH),
        "others": (*maker.texts["examples"], *maker.texts["definitions"]),
    }
    cases = write(
        options.out / "dev.jsonl", (c for kind, found in texts.items() for c in dev.cases(kind, found))
    )
    if options.tokenizer:
        tokenizer = Tokenizer.from_file(str(options.tokenizer))
        for mistake in ("clean", "misspelling", "slip", "several"):
            for kind in texts:
                pairs = [(c.prompt, c.answer) for c in cases if (c.text, c.mistake) == (kind, mistake)]
                encode(pairs, tokenizer).save(options.out / f"dev-{mistake}-{kind}.npz")

    maker = Maker(gathered, of="judge")
    judge = SetMaker(maker, maker.words.reserved, EACH)
    texts = {"everyday": maker.texts["everyday"], "names": patterns_filled(maker, 4 * EACH)}
    if options.stories:
        texts["stories"] = story_sentences(options.stories)
    write(options.out / "judge.jsonl", (c for kind, found in texts.items() for c in judge.cases(kind, found)))


if __name__ == "__main__":
    main()
