"""Clean texts that people wrote: everyday utterances, spoken commands, WordNet's examples and definitions."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

from hamburger_edge.models.zoo.proofread.making.grammar import broken_rule
from hamburger_edge.models.zoo.proofread.making.lists import LISTS
from hamburger_edge.models.zoo.proofread.making.names import Names, title
from hamburger_edge.models.zoo.proofread.making.numbers import other_numbers
from hamburger_edge.models.zoo.proofread.making.words import Words, wordnet

Side = Literal["train", "dev", "judge"]
DEV, JUDGE = 8, 8  # of 256 texts, by their hash

QUESTION = re.compile(
    r"(?:what|when|where|who|whose|which|how|why|is|are|am|was|were|do|does|did|can|could|would|will|should|"
    r"has|have)\b(?!.*, (?:please|thanks))",
    re.IGNORECASE,
)
CAPITALS = re.compile(  # a name of one or more words behind a comma, a bracket or a quotation mark
    r"(?<![.!?\w'-] )(?<!^)(?<![\w'.-])[A-Z][\w'’]*(?:(?: & | of the | of | )(?:[A-Z][\w'’]*))*"
)
KEPT_CAPITALS = re.compile(  # what stands large and is no name that another could replace
    r"(?:I\b|I'|A\.?M\b|P\.?M\b|OK\b|Ok\b|TV|R&B|ID\b|Mr|Mrs|Ms|Dr|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|"
    r"Thu|Fri|Sat|Sun|Yes|No\b|Ave|St\b|Street|Wi|WiFi|ATM|American|Christmas|The\b)"
)


JUNK = re.compile(
    r"  | [,.!?;:]|[,;!?][A-Za-z]|\bi\b|[.!?] [a-z]|[A-Z]{2,}[a-z]|[a-z][A-Z]|[,.]{2}|\( | \)|`|"
    r"[^\x20-\x7eé’£€]"
)
ASKS = re.compile(r"(?:What|When|Where|Who|How|Is|Are|Do|Does|Did|Can|Could|Would|Will)\b")


def side(text: str) -> Side:
    """By a hash of the text without its names and numbers, so that its like is on the same side."""
    skeleton = re.sub(r"[A-Z][\w']*|\d[\d:.,]*|\W+", " ", text)
    bucket = hashlib.sha256(" ".join(skeleton.lower().split()).encode()).digest()[0]
    return "dev" if bucket < DEV else "judge" if bucket < DEV + JUDGE else "train"


class Cleaner:
    """Tells texts that can be called clean from others."""

    def __init__(self, words: Words):
        self.words = words

    def faulty(self, text: str) -> bool:
        if not re.fullmatch(r"[\"'A-Z0-9$].*[.!?][\"']?", text) or len(text) > 400 or not text.isprintable():
            return True
        if JUNK.search(text):
            return True
        if text.count('"') % 2 or text.count("(") != text.count(")"):
            return True
        for sentence in re.split(r"(?<=[.!?]) ", text):
            asked = ASKS.match(sentence) and not re.search(r"\b(?:that|please|if)\b", sentence)
            if asked and not sentence.endswith("?"):
                return True
        if any(self.odd(word) for word in re.findall(r"(?<![\w'@./&-])[a-z][a-z']*(?![\w@/])", text)):
            return True
        rule = broken_rule(text)
        return rule is not None and not rule.startswith("comma") and rule != "mark without a question"

    def odd(self, word: str) -> bool:
        """Whether a word that stands small is unknown, misspelled or a name."""
        stem = re.sub(r"'s?$", "", word)
        if word in self.words.counts and word not in self.words.names:
            return word in self.words.wrong or (self.words.counts[word] < 30_000 and len(word) < 4)
        return stem not in self.words.counts or stem in self.words.names or stem in self.words.wrong


def other_names(text: str, names: Names, draw: Random, share: float = 0.7) -> str:
    """The text with other names inside its sentences."""

    def other(found: re.Match[str]) -> str:
        if (
            KEPT_CAPITALS.match(found[0])
            or draw.random() > share
            or text[found.end() : found.end() + 1] == "-"
        ):
            return found[0]
        owner = "'s" if found[0].endswith("'s") else ""
        return names.any(draw).removesuffix(".") + owner

    return CAPITALS.sub(other, text)


def refilled(text: str, names: Names, draw: Random) -> str:
    return other_names(other_numbers(text, draw), names, draw)


def everyday(path: Path, cleaner: Cleaner) -> Iterator[str]:
    for line in path.read_text("utf-8").splitlines():
        text = json.loads(line)["text"].strip()
        if not cleaner.faulty(text):
            yield text


NAMES_IN_COMMANDS = frozenset(LISTS["name slots"])


def commands(path: Path, cleaner: Cleaner, names: Names) -> Iterator[str]:
    """Spoken commands, with capitals and marks where they are certain: names come from the pools instead."""
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        text, draw = row["text"].strip().rstrip(".?!").strip(), Random(line)
        rest, filled = text, ""
        for kind, value in row["slots"]:
            if kind not in NAMES_IN_COMMANDS:
                continue
            before, found, rest_after = rest.partition(value)
            if not found:
                break
            name = (
                title(draw)
                if kind in ("object_name", "playlist", "movie_name", "track", "album")
                else names.any(draw)
            )
            filled, rest = filled + before + name, rest_after
        else:
            text = filled + rest
            ends = "?" if QUESTION.match(text) else "."
            text = text[:1].upper() + text[1:] + ends
            if not re.search(r"\b(?:a|p)m\b|[_/]", text) and not cleaner.faulty(text):
                yield text


SUBJECT = re.compile(
    r"(?:[Hh]e|[Ss]he|[Tt]hey|[Ww]e|I|[Yy]ou|[Ii]t|[Tt]his|[Tt]here|[Mm]y|[Hh]is|[Hh]er|[Oo]ur|[Tt]heir|[Tt]he|[Aa]n?)\b"
)
VERB = re.compile(
    r"\b(?:is|are|was|were|am|be|been|has|have|had|do|does|did|can|could|will|would|should|must|may|might|"
    r"\w+'(?:s|re|m|ve|ll|d)|\w+n't|went|came|got|made|took|gave|saw|said|told|knew|felt|found|left|kept|lost|"
    r"ran|sat|stood|began|grew|fell|held|met|sent|spent|taught|thought|brought|bought|broke|wrote|rose|sang|won|wore)\b"
)


def examples(folder: Path, cleaner: Cleaner) -> Iterator[str]:
    """Sentences by which WordNet shows how a word is used."""
    for entry in wordnet(folder):
        for quoted in re.findall(r'"([^"]+)"', entry.gloss):
            text = " ".join(quoted.split()).strip(" .,;")
            pronoun = re.match(
                r"(?:he|she|they|we|i|you|it|this|there|don't|please|let's)\b", text, re.IGNORECASE
            )
            if (
                not (pronoun or (SUBJECT.match(text) and VERB.search(text)) or text[:1].isupper())
                or " " not in text
            ):
                continue
            if QUESTION.match(text) and not text.endswith("?"):
                continue  # a question without its mark, or a clause
            text = text[0].upper() + text[1:] + ("" if text[-1] in "?!" else ".")
            if not cleaner.faulty(text) and len(text.split()) > 2:
                yield text


def definitions(folder: Path, cleaner: Cleaner) -> Iterator[str]:
    """Sentences of WordNet's definitions of things."""
    for part, _, lemmas, gloss in wordnet(folder):
        first = re.sub(r" ?\([^)]*\)", "", gloss.split(";")[0].split('"')[0]).strip()
        lemma = lemmas[0].replace("_", " ")
        if part != "noun" or not re.match(r"(?:an?|the|any|one|someone) ", first) or not lemma.islower():
            continue
        article = "An" if lemma[0] in "aeio" else "A"
        text = f"{article} {lemma} is {first}."
        if len(text.split()) <= 30 and not re.search(r"[^\w ,.'$-]", text) and not cleaner.faulty(text):
            yield text


def written(path: Path, cleaner: Cleaner) -> Iterator[str]:
    """Sentences that the base wrote."""
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        if not cleaner.faulty(line):
            yield line
