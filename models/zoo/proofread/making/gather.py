"""Gather all that examples are made of, once: the training reads one file and needs no other package.

    python -m hamburger_edge.models.zoo.proofread.making.gather OUT.json.gz \\
        --everyday FILE --commands FILE --wordnet FOLDER

--everyday   JSON lines with "text": utterances of the Schema-Guided Dialogue training set
--commands   JSON lines with "text" and "slots": training commands of the Snips benchmark
--wordnet    folder of WordNet 3.0's files data.noun, data.verb, data.adj and data.adv (Debian: wordnet-base)
Names are faker's, words symspellpy's, misspellings codespell's: `pip install faker symspellpy codespell`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hamburger_edge.models.zoo.proofread.making import sources
from hamburger_edge.models.zoo.proofread.making.gathered import Gathered
from hamburger_edge.models.zoo.proofread.making.names_by_faker import make_names
from hamburger_edge.models.zoo.proofread.making.sources import side
from hamburger_edge.models.zoo.proofread.making.templates import PATTERNS, THINGS, nouns
from hamburger_edge.models.zoo.proofread.making.words import load_words

WRITTEN = Path(__file__).parent / "written.txt.gz"


def gather(everyday: Path, commands: Path, wordnet: Path) -> Gathered:
    words = load_words(wordnet)
    names = {of: make_names(judging=of == "judge") for of in ("train", "judge")}
    cleaner = sources.Cleaner(words)
    found = {
        "everyday": sources.everyday(everyday, cleaner),
        "commands": sources.commands(commands, cleaner, names["train"]),
        "examples": sources.examples(wordnet, cleaner),
        "definitions": sources.definitions(wordnet, cleaner),
        "written": sources.written(WRITTEN, cleaner),
    }
    texts: dict[str, dict[str, dict[str, None]]] = {"train": {}, "dev": {}, "judge": {}}
    for source, those in found.items():
        for text in those:
            texts[side(text)].setdefault(source, {})[text] = None
    for number, pattern in enumerate(PATTERNS):  # too few for a hash
        of = {0: "judge", 4: "dev"}.get(number % 8, "train")
        texts[of].setdefault("patterns", {})[pattern] = None
    return Gathered(
        words,
        names,
        {kind: nouns(wordnet, number, words) for kind, number in THINGS.items()},
        {of: {source: list(each) for source, each in kinds.items()} for of, kinds in texts.items()},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, metavar="OUT.json.gz")
    for name in ("everyday", "commands", "wordnet"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    gathered = gather(options.everyday, options.commands, options.wordnet)
    gathered.save(options.out)
    print({of: {source: len(each) for source, each in kinds.items()} for of, kinds in gathered.texts.items()})


if __name__ == "__main__":
    main()
