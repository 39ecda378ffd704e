"""The kinds of mistakes: the weight of each, and the function that makes it.

A reader can undo every mistake. A slip never makes another word, nor a spelling as near to a more frequent
word. Words are confused only where their neighbours decide. Names, numbers and rare words are never touched
(`Sites.plain`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hamburger_edge.models.zoo.proofread.making.tables import (
    AMBIGUOUS_APOSTROPHES,
    CONFUSIONS,
    NEIGHBOURS,
    TEXT_SPEAK,
)
from hamburger_edge.models.zoo.proofread.making.words import CLOSED_NAMES, Words

CORE = re.compile(r"([A-Za-z]+(?:'[A-Za-z]+)?)([.,!?:]*)")
QUESTION = re.compile(
    r"(?:What|Where|When|Why|How|Who|Which|Whose)(?:'s)? (?:is|are|was|were|do|does|did|can|could|would|"
    r"should|will|much|many|long|often|the|your|a|kind|time|one)\b|(?:Do|Does|Did|Is|Are|Was|Were|Can|Could|"
    r"Would|Will|Should|Have|Has|Isn't|Aren't|Don't|Didn't|Shouldn't) (?:I|you|he|she|it|we|they|there|"
    r"this|that|the|your|my|any)\b"
)
TITLES = ("Mr.", "Mrs.", "Ms.", "Dr.")
PRONOUNS_WITH_S = ("he's", "she's", "that's", "what's", "let's", "who's")


@dataclass(frozen=True)
class Sites:
    """A text's words, and what the kinds of mistakes ask about them."""

    words: tuple[str, ...]  # with their punctuation
    draw: Random
    vocabulary: Words
    undoable: Callable[[str, str], bool]  # (right word, wrong word), both lower-case

    def starts(self, i: int) -> bool:
        return i == 0 or (self.words[i - 1][-1:] in (".", "!", "?") and self.words[i - 1] not in TITLES)

    def near(self, i: int) -> str:
        """The word there in lower case without punctuation; empty beyond the ends, or past a mark."""
        return self.words[i].lower().strip(".,!?:") if 0 <= i < len(self.words) else ""

    def core(self, i: int) -> tuple[str, str]:
        """A word and its punctuation; both empty if there is more than letters."""
        found = CORE.fullmatch(self.words[i])
        return (found[1], found[2]) if found else ("", "")

    def plain(self, i: int) -> bool:
        """Whether the word there is an ordinary one, as opposed to a name, a number or a rare word."""
        core, _ = self.core(i)
        if not core:
            return False
        if core[0].isupper() and not (self.starts(i) or (core[0] == "I" and (core == "I" or core[1] == "'"))):
            return False
        return core[1:].islower() + (len(core) == 1) > 0 and self.vocabulary.common(core.lower())

    def apostrophe(self, i: int) -> bool:
        """Whether an apostrophe stands in an ordinary word, as opposed to a name's."""
        core, _ = self.core(i)
        if "'" not in core:
            return False
        stem = core.lower().removesuffix("'s")
        return (core[0].islower() or self.starts(i) or core[0] == "I") and self.vocabulary.common(stem)


Change = tuple[int, str]  # words taken in, what stands there instead
Maker = Callable[[Sites, int], Change | None]  # the mistake of a kind at a word, if it has room there


def spelled(change: Callable[[Random, str, int], str], shortest: int) -> Maker:
    """A slip of the fingers at one letter; the first letter goes wrong least often."""

    def make(sites: Sites, i: int) -> Change | None:
        core, tail = sites.core(i)
        if len(core) < shortest or "'" in core or not sites.plain(i):
            return None
        for _ in range(3):
            at = 0 if sites.draw.random() < 0.08 else sites.draw.randrange(1, len(core))
            wrong = change(sites.draw, core, at)
            if wrong.lower() != core.lower() and sites.undoable(core.lower(), wrong.lower()):
                return 1, wrong + tail
        return None

    return make


def near_key(draw: Random, letter: str) -> str:
    key = draw.choice(NEIGHBOURS[letter.lower()])
    return key.upper() if letter.isupper() else key


def neighbour_key(draw: Random, core: str, at: int) -> str:
    return core[:at] + near_key(draw, core[at]) + core[at + 1 :]


def swapped_letters(draw: Random, core: str, at: int) -> str:
    at = max(1, at)  # the first letter stays: its capital would move
    return core[: at - 1] + core[at] + core[at - 1] + core[at + 1 :] if at > 1 else core


def dropped_letter(draw: Random, core: str, at: int) -> str:
    return core[:at] + core[at + 1 :] if at else core


def doubled_letter(draw: Random, core: str, at: int) -> str:
    return core[:at] + core[at].lower() + core[at:] if at else core


def inserted_letter(draw: Random, core: str, at: int) -> str:
    """A neighbouring key was struck as well."""
    return core[:at] + near_key(draw, core[at]).lower() + core[at:] if at else core


def with_capital(like: str, word: str) -> str:
    return word[0].upper() + word[1:] if like[0].isupper() else word


def misspelling(sites: Sites, i: int) -> Change | None:
    """As people were seen to misspell it; rarer words than a slip may hit, but no names."""
    misspelled = sites.vocabulary.misspelled
    core, tail = sites.core(i)
    if core.lower() not in misspelled:
        return None
    if len(core) < 4 and sites.draw.random() < 0.8:  # short words are typed right more often
        return None
    if core.lower() in sites.vocabulary.names or not (
        core.islower() or (sites.starts(i) and core[1:].islower())
    ):
        return None
    return 1, with_capital(core, sites.draw.choice(misspelled[core.lower()])) + tail


def text_speak(sites: Sites, i: int) -> Change | None:
    core, tail = sites.core(i)
    if core.lower() not in TEXT_SPEAK:
        return None
    return 1, with_capital(core, sites.draw.choice(TEXT_SPEAK[core.lower()])) + tail


def confusion(kind: str) -> Maker:
    rows = [row[1:] for row in CONFUSIONS if row[0] == kind]

    def make(sites: Sites, i: int) -> Change | None:
        core, tail = sites.core(i)
        fitting = [
            wrong
            for right, wrong, after, before in rows
            if core.lower() == right
            and (not after or sites.near(i - 1) in after.split())
            and (not before or (not tail and sites.near(i + 1) in before.split()))
        ]
        return (1, with_capital(core, sites.draw.choice(fitting)) + tail) if fitting else None

    return make


def missing_apostrophe(sites: Sites, i: int) -> Change | None:
    if not sites.apostrophe(i):
        return None
    core, tail = sites.core(i)
    following = "" if tail else sites.near(i + 1)
    if core.lower() in AMBIGUOUS_APOSTROPHES:
        if following not in AMBIGUOUS_APOSTROPHES[core.lower()].split() or not following:
            return None
        if core.lower() == "we're" and not (sites.starts(i) and sites.words[-1].endswith((".", "!"))):
            return None
    elif core.lower().endswith("'s") and core.lower() not in PRONOUNS_WITH_S:
        owns = following.isalpha() and len(following) > 3  # a thing is owned, most likely
        if not owns:
            return None
    wrong = core.replace("'", "")
    if (core[0] == "I" or sites.starts(i)) and sites.draw.random() < 0.5:
        wrong = wrong.lower()
    return 1, wrong + tail


def moved_apostrophe(sites: Sites, i: int) -> Change | None:
    if not sites.apostrophe(i):
        return None
    core, tail = sites.core(i)
    at = core.index("'")
    wrong = core.replace("'", "")
    moved = at - 1 if core.lower().endswith("n't") else at + 1
    return (1, wrong[:moved] + "'" + wrong[moved:] + tail) if 0 < moved < len(core) else None


def lower_start(sites: Sites, i: int) -> Change | None:
    word = sites.words[i]
    if (
        not sites.starts(i)
        or not sites.plain(i)
        or not word[0].isupper()
        or sites.near(i).split("'")[0] == "i"
    ):
        return None
    return 1, word[0].lower() + word[1:]


def lower_i(sites: Sites, i: int) -> Change | None:
    return (1, "i" + sites.words[i][1:]) if re.match(r"I\b", sites.words[i]) else None


def lower_name(sites: Sites, i: int) -> Change | None:
    """A day, a month, a country: a name that is one by its spelling alone."""
    word = sites.words[i]
    if sites.starts(i) or not word[0].isupper() or sites.near(i).removesuffix("'s") not in CLOSED_NAMES:
        return None
    return 1, word[0].lower() + word[1:]


def two_capitals(sites: Sites, i: int) -> Change | None:
    """The shift key is held for too long."""
    word = sites.words[i]
    return (1, word[:2].upper() + word[2:]) if re.match(r"[A-Z][a-z]{2}", word) and sites.plain(i) else None


def _joined(sites: Sites, i: int, mark: str) -> Change | None:
    if i + 1 == len(sites.words) or not re.fullmatch(rf"[A-Za-z']+{mark}", sites.words[i]):
        return None
    if not (sites.plain(i) and sites.plain(i + 1)):
        return None
    return 2, sites.words[i] + sites.words[i + 1]


def run_together(sites: Sites, i: int) -> Change | None:
    joined = _joined(sites, i, "")
    if not joined or not (found := CORE.fullmatch(joined[1])) or found[1] != found[1].lower():
        return None
    return joined if sites.undoable("", found[1]) else None


def missing_space(sites: Sites, i: int) -> Change | None:
    return _joined(sites, i, "[.,!?]")


def doubled_space(sites: Sites, i: int) -> Change | None:
    return (1, sites.words[i] + " ") if i + 1 < len(sites.words) else None


def space_before_mark(sites: Sites, i: int) -> Change | None:
    core, tail = sites.core(i)
    return (1, f"{core} {tail}") if tail else None


def split_word(sites: Sites, i: int) -> Change | None:
    core, tail = sites.core(i)
    if len(core) < 5 or "'" in core or not sites.plain(i):
        return None
    at = sites.draw.randrange(2, len(core) - 1)
    parts = core[:at].lower(), core[at:].lower()
    return (1, f"{core[:at]} {core[at:]}{tail}") if any(sites.undoable("", part) for part in parts) else None


def shifted_space(sites: Sites, i: int) -> Change | None:
    """The space comes a letter too late: "th ecat" or too early."""
    joined = _joined(sites, i, "")
    if not joined or min(len(sites.core(i + 1)[0]), len(sites.words[i])) < 3:
        return None
    first, second = sites.words[i], sites.words[i + 1]
    if sites.draw.random() < 0.5:
        first, second = first[:-1], first[-1] + second
    else:
        first, second = first + second[0], second[1:]
    if not sites.undoable("", first.lower()) or not sites.undoable("", second.lower().strip(".,!?:")):
        return None
    return 2, f"{first} {second}"


def doubled_word(sites: Sites, i: int) -> Change | None:
    core, tail = sites.core(i)
    said_twice = core.lower() in ("very", "so", "had", "that", "no", "really", "yes", "bye")
    if tail or said_twice or not sites.plain(i):
        return None
    return 1, f"{core} {core if core[0] == 'I' else core.lower()}"


def missing_end(sites: Sites, i: int) -> Change | None:
    word = sites.words[i]
    if word[-1] not in ".?" or word in TITLES:
        return None
    if i + 1 < len(sites.words) and not (sites.words[i + 1][0].isupper() and sites.plain(i + 1)):
        return None
    return (1, word[:-1]) if word[-1] == "." or _asks(sites, i) else None


def wrong_end(sites: Sites, i: int) -> Change | None:
    return (1, sites.words[i][:-1] + ".") if sites.words[i].endswith("?") and _asks(sites, i) else None


def _asks(sites: Sites, end: int) -> bool:
    """Whether the sentence that ends there is a question by its first words."""
    start = end
    while not sites.starts(start):
        start -= 1
    return bool(QUESTION.match(" ".join(sites.words[start : end + 1])))


def doubled_mark(sites: Sites, i: int) -> Change | None:
    return (1, sites.words[i] + sites.words[i][-1]) if re.search(r"[a-z][.,?!]$", sites.words[i]) else None


# How often each kind is made, beside the others that have room in a text.
KINDS: dict[str, tuple[float, Maker]] = {
    "misspelling": (40, misspelling),
    "neighbour_key": (10, spelled(neighbour_key, 3)),
    "swapped_letters": (9, spelled(swapped_letters, 3)),
    "dropped_letter": (9, spelled(dropped_letter, 4)),
    "doubled_letter": (5, spelled(doubled_letter, 3)),
    "inserted_letter": (5, spelled(inserted_letter, 3)),
    "missing_apostrophe": (14, missing_apostrophe),
    "moved_apostrophe": (2, moved_apostrophe),
    "lower_start": (4, lower_start),
    "lower_i": (5, lower_i),
    "lower_name": (2, lower_name),
    "two_capitals": (1, two_capitals),
    "its_it's": (12, confusion("its_it's")),
    "your_you're": (12, confusion("your_you're")),
    "their_there": (12, confusion("their_there")),
    "there's_theirs": (3, confusion("there's_theirs")),
    "to_too": (6, confusion("to_too")),
    "then_than": (12, confusion("then_than")),
    "lose_loose": (8, confusion("lose_loose")),
    "of_have": (10, confusion("of_have")),
    "whose_who's": (8, confusion("whose_who's")),
    "sound_alike": (8, confusion("sound_alike")),
    "run_together": (3, run_together),
    "split_word": (2, split_word),
    "shifted_space": (1, shifted_space),
    "missing_space": (1.5, missing_space),
    "doubled_space": (1, doubled_space),
    "space_before_mark": (1, space_before_mark),
    "missing_end": (3, missing_end),
    "wrong_end": (1, wrong_end),
    "doubled_mark": (1, doubled_mark),
    "text_speak": (1.5, text_speak),
    "doubled_word": (2.5, doubled_word),
}
HURRIED = (
    "lower_start",
    "lower_i",
    "lower_name",
    "missing_apostrophe",
    "missing_end",
    "text_speak",
    "missing_space",
)
