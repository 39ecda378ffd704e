"""Write examples of a corrector without end: one text with mistakes and the right text on each line of JSON.

    python models/zoo/proofread/making/generate.py [--texts FILE ...] [--misspellings FILE]

--texts          right texts, one on each line, besides the sentences of written.txt.gz
--misspellings   a dictionary with lines such as  recieve->receive  (codespell's has this form)

Line n is the same in every run. 44% of the texts stay as they are, the others have one to four mistakes.
Names, numbers and rare words have none, and no slip of a finger makes another word of the texts. Numbers and
names inside sentences are drawn anew, so that no name is learned by heart.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent
CLEAN = 0.44  # share of the texts without a mistake
COUNTS = (1, 1, 2, 4)  # mistakes of the others, equally often
WORDS_PER_MISTAKE = 2.5  # at least
COMMON = 3  # uses in the texts from which a word may be misspelled
KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
LETTERS = re.compile(r"([A-Za-z]+(?:'[a-z]+)?)([.,!?:]*)")
NUMBER = re.compile(r"(?<![\w.,/:-])[2-9]\d{0,4}(?![\w/:-]|[.,]\d)")
NAME = re.compile(r"(?<=[a-z,] )(?!I\b|I')[A-Z][a-z]+\b")  # inside a sentence
SYLLABLES = ("ba", "dra", "fen", "go", "hil", "ja", "kro", "li", "mun", "no", "pri", "ra", "sel", "to", "vi")


@dataclass(frozen=True)
class MisspellingVocabulary:
    """Counts of lower-case words in the texts, and misspellings of words."""

    counts: Mapping[str, int]
    misspellings: Mapping[str, Sequence[str]]
    confusions: Sequence[Sequence[str]]  # right, wrong, words before, words after; no words: any

    def common(self, word: str) -> bool:
        return self.counts.get(word, 0) >= COMMON


@dataclass(frozen=True)
class Site:
    """A word of a text, where a mistake may be."""

    words: Sequence[str]  # of the text, with their marks
    index: int
    vocabulary: MisspellingVocabulary
    draw: Random

    @property
    def core(self) -> str:
        """The word without marks; empty for numbers, codes and other tokens."""
        match = LETTERS.fullmatch(self.words[self.index])
        return match[1] if match else ""

    @property
    def marks(self) -> str:
        return self.words[self.index].removeprefix(self.core)

    @property
    def first(self) -> bool:
        """Whether the word begins a sentence."""
        return self.index == 0 or self.words[self.index - 1][-1:] in (".", "!", "?")

    @property
    def ordinary(self) -> bool:
        """Whether the word is common, and no name."""
        core = self.core
        return bool(core) and (core.islower() or self.first) and self.vocabulary.common(core.lower())

    def neighbour(self, step: int) -> str:
        """Return the word before or after in lower case; empty beyond the ends of the text."""
        index = self.index + step
        return self.words[index].lower().strip(".,!?:") if 0 <= index < len(self.words) else ""


Mistake = Callable[[Site], str | None]  # returns the typed word; None: this mistake does not fit the word


def _near_keys() -> dict[str, str]:
    near: dict[str, set[str]] = {letter: set() for row in KEY_ROWS for letter in row}
    for number, row in enumerate(KEY_ROWS):
        below = KEY_ROWS[number + 1] if number + 1 < len(KEY_ROWS) else ""
        for i, letter in enumerate(row):
            for other in {*row[max(0, i - 1) : i], *below[max(0, i - 1) : i + 1]}:
                near[letter].add(other)
                near[other].add(letter)
    return {letter: "".join(sorted(keys)) for letter, keys in near.items()}


NEAR_KEYS = _near_keys()


def slip(change: Callable[[str, str], str]) -> Mistake:
    """Type one letter, not the first, wrongly: `change` takes the letter and a key beside it."""

    def mistake(site: Site) -> str | None:
        core = site.core
        if len(core) < 4 or "'" in core or not site.ordinary:
            return None
        i = site.draw.randrange(1, len(core))
        typed = core[:i] + change(core[i], site.draw.choice(NEAR_KEYS[core[i]])) + core[i + 1 :]
        return None if typed.lower() in site.vocabulary.counts else typed + site.marks

    return mistake


def swapped_letters(site: Site) -> str | None:
    core = site.core
    if len(core) < 4 or "'" in core or not site.ordinary:
        return None
    i = site.draw.randrange(1, len(core) - 1)
    typed = core[:i] + core[i + 1] + core[i] + core[i + 2 :]
    return None if typed.lower() in site.vocabulary.counts or typed == core else typed + site.marks


def misspelling(site: Site) -> str | None:
    core, spellings = site.core, site.vocabulary.misspellings
    if core.lower() not in spellings or not (core.islower() or site.first):
        return None
    return _like(core, site.draw.choice(spellings[core.lower()])) + site.marks


def confusion(site: Site) -> str | None:
    """Type another word that sounds alike, where the neighbours show the right one."""
    typed = [
        wrong
        for right, wrong, before, after in site.vocabulary.confusions
        if site.core.lower() == right
        and (not before or site.neighbour(-1) in before.split())
        and (not after or (not site.marks and site.neighbour(1) in after.split()))
    ]
    return _like(site.core, site.draw.choice(typed)) + site.marks if typed else None


def missing_apostrophe(site: Site) -> str | None:
    core, vocabulary = site.core, site.vocabulary
    typed = core.replace("'", "")
    stem = core.lower().removesuffix("'s")
    if typed == core or not (core.startswith("I'") or vocabulary.common(stem)):
        return None
    return None if typed.lower() in vocabulary.counts else typed + site.marks


def small_letter(site: Site) -> str | None:
    if not re.match(r"I\b", site.core) and not (site.first and site.ordinary and site.core[0].isupper()):
        return None
    return site.words[site.index][0].lower() + site.words[site.index][1:]


def split_word(site: Site) -> str | None:
    core = site.core
    if len(core) < 5 or "'" in core or not site.ordinary:
        return None
    i = site.draw.randrange(2, len(core) - 1)
    return f"{core[:i]} {core[i:]}{site.marks}"


def doubled_word(site: Site) -> str | None:
    twice = site.core.lower() in ("very", "so", "had", "that", "no", "really", "yes", "bye")
    return None if site.marks or twice or not site.ordinary else f"{site.core} {site.core.lower()}"


def space_before_mark(site: Site) -> str | None:
    return f"{site.core} {site.marks}" if site.core and site.marks else None


def missing_end(site: Site) -> str | None:
    last = site.index + 1 == len(site.words)
    return site.core if last and site.core and site.marks == "." else None


def _like(word: str, typed: str) -> str:
    """Write `typed` with the capital of `word`."""
    return typed[0].upper() + typed[1:] if word[0].isupper() else typed


MISTAKES: dict[Mistake, float] = {  # and how often each is made, relative to the others
    misspelling: 40,
    slip(lambda letter, key: key): 10,
    slip(lambda letter, key: ""): 9,
    slip(lambda letter, key: letter + letter): 5,
    slip(lambda letter, key: key + letter): 5,
    swapped_letters: 9,
    confusion: 40,
    missing_apostrophe: 14,
    small_letter: 9,
    split_word: 2,
    doubled_word: 2.5,
    space_before_mark: 1,
    missing_end: 3,
}


def with_mistakes(text: str, vocabulary: MisspellingVocabulary, draw: Random) -> str:
    """Return the text as someone might type it."""
    words = text.split(" ")
    if draw.random() < CLEAN:
        return text
    typed = list(words)
    count = min(draw.choice(COUNTS), max(1, int(len(words) / WORDS_PER_MISTAKE)))
    for mistake in draw.choices(list(MISTAKES), list(MISTAKES.values()), k=3 * count):
        for i in draw.sample(range(len(words)), len(words)):
            if typed[i] == words[i] and (change := mistake(Site(words, i, vocabulary, draw))) is not None:
                typed[i], count = change, count - 1
                break
        if not count:
            break
    return " ".join(typed)


def with_other_names(text: str, draw: Random) -> str:
    """Return the text with other numbers and, inside its sentences, mostly other names."""
    text = NUMBER.sub(lambda number: str(draw.randint(2, 10 ** len(number[0]))), text)

    def name(match: re.Match[str]) -> str:
        return match[0] if draw.random() < 0.3 else "".join(draw.choices(SYLLABLES, k=2)).capitalize()

    return NAME.sub(name, text)


def vocabulary_of(texts: Iterable[str], misspellings: Iterable[str]) -> MisspellingVocabulary:
    """Count the words of the texts, and read lines of a dictionary of misspellings."""
    counts = Counter(re.findall(r"(?<![\w'])[a-z]+(?:'[a-z]+)?(?![\w'])", "\n".join(texts)))
    spellings: dict[str, list[str]] = {}
    for line in misspellings:
        wrong, _, right = line.strip().lower().partition("->")
        if wrong not in counts and re.fullmatch(r"[a-z']+", right):
            spellings.setdefault(right, []).append(wrong)
    with open(FOLDER / "confusions.csv", encoding="utf-8", newline="") as file:
        confusions = [row[1:] for row in csv.reader(file)][1:]
    return MisspellingVocabulary(counts, spellings, confusions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--texts", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--misspellings", type=Path, metavar="FILE")
    options = parser.parse_args()
    texts = gzip.decompress((FOLDER / "written.txt.gz").read_bytes()).decode().splitlines()
    texts += [line for path in options.texts for line in path.read_text("utf-8").splitlines() if line.strip()]
    dictionary = options.misspellings.read_text("utf-8").splitlines() if options.misspellings else ()
    vocabulary = vocabulary_of(texts, dictionary)
    for number in itertools.count():
        draw = Random(number)
        text = with_other_names(draw.choice(texts), draw)
        example = {"prompt": with_mistakes(text, vocabulary, draw), "answer": text}
        try:
            print(json.dumps(example, ensure_ascii=False))
        except BrokenPipeError:  # the reader has enough lines
            os._exit(0)


if __name__ == "__main__":
    main()
