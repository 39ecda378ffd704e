"""Plain data of the noise model: the keyboard, what people misspell, confuse and shorten."""

from __future__ import annotations

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """letter -> the keys around it; a row is half a key further right than the one above."""
    around: dict[str, set[str]] = {letter: set() for row in _ROWS for letter in row}
    for number, row in enumerate(_ROWS):
        for i, letter in enumerate(row):
            near = set(row[max(0, i - 1) : i + 2])
            if number + 1 < len(_ROWS):
                near |= set(_ROWS[number + 1][max(0, i - 1) : i + 1])
            for other in near - {letter}:
                around[letter].add(other)
                around[other].add(letter)
    return {letter: "".join(sorted(keys)) for letter, keys in around.items()}


NEIGHBOURS = _neighbours()


def _table(text: str) -> dict[str, tuple[str, ...]]:
    entries = (entry.split() for entry in text.split(",") if entry.strip())
    return {right: tuple(wrong) for right, *wrong in entries}


# (kind, right, wrong, only after one of, only before one of); empty: anywhere
CONFUSIONS: tuple[tuple[str, str, str, str, str], ...] = (
    ("its_it's", "it's", "its", "", ""),
    ("its_it's", "its", "it's", "", ""),
    ("your_you're", "you're", "your", "", ""),
    ("your_you're", "your", "you're", "", ""),
    ("their_there", "they're", "their", "", ""),
    ("their_there", "they're", "there", "", ""),
    ("their_there", "their", "there", "", ""),
    ("their_there", "their", "they're", "", ""),
    ("their_there", "there", "their", "", "is are was were will would must has have isn't aren't"),
    ("there's_theirs", "there's", "theirs", "", "a an no nothing something always the so"),
    ("to_too", "too", "to", "", "much many late early bad expensive loud small big tired cold far hot long"),
    ("to_too", "to", "too", "", "be go have do get make take come see the a me you him her them us my your"),
    ("then_than", "than", "then", "", ""),
    ("then_than", "then", "than", "and since until by just", ""),
    ("lose_loose", "lose", "loose", "to will i'll don't can't would not we'll you'll", ""),
    ("of_have", "have", "of", "could should would must might", ""),
    ("whose_who's", "who's", "whose", "", "the a an going coming always been got not your"),
    ("whose_who's", "whose", "who's", "", ""),
    ("sound_alike", "hear", "here", "to you i we and can can't didn't", ""),
    ("sound_alike", "here", "hear", "over from in out right it's is are", ""),
    ("sound_alike", "know", "no", "i you we they don't didn't to", ""),
    ("sound_alike", "where", "were", "", "is are do did does can should i"),
    ("sound_alike", "buy", "by", "to i we can you", "a the some it new one your my"),
    ("sound_alike", "weather", "whether", "the nice bad good", ""),
    ("sound_alike", "whether", "weather", "know sure decide wonder ask", ""),
    ("sound_alike", "piece", "peace", "a every one this last", "of"),
    ("sound_alike", "break", "brake", "a to take will", ""),
    ("sound_alike", "quiet", "quite", "very so a too and", ""),
    ("sound_alike", "quite", "quiet", "", "a good nice sure so well different often hard busy small easy"),
    ("sound_alike", "passed", "past", "have has had he she we they i", ""),
    ("sound_alike", "wear", "where", "to i you can", ""),
    ("sound_alike", "right", "write", "you're all the that's is", ""),
    ("sound_alike", "write", "right", "to i please can could", ""),
    ("sound_alike", "week", "weak", "a this last next every per the", ""),
    ("sound_alike", "hole", "whole", "a", "in"),
    ("sound_alike", "advice", "advise", "some your my for good the", ""),
    ("sound_alike", "affect", "effect", "will can doesn't may to", ""),
    ("sound_alike", "accept", "except", "to can't can i we", ""),
)  # fmt: skip

TEXT_SPEAK = _table("""
you u, your ur, please pls plz, thanks thx, tomorrow tmrw tmr, because cuz bc, people ppl, about abt,
though tho, really rly, what wat, tonight tonite, birthday bday, weekend wknd, minutes mins,
message msg
""")

# Without its apostrophe each of these is another word: only before words that decide what was meant.
_VERBS = "be have need see get make take go come meet call send bring find do try ask tell let give help show"
AMBIGUOUS_APOSTROPHES = {
    "i'll": _VERBS,
    "we'll": _VERBS,
    "he'll": "",
    "she'll": "",
    "she'd": "",
    "we'd": "",
    "i'd": "love like rather have be",
    "we're": "not all so very going having looking getting planning both also here",
    "it's": "",  # a kind of its own
}
