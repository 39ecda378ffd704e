"""Build the draft index of a model from its answers; other answers calibrate its chances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hamburger_edge.drafts.copied_words import COPY, CopyReader, Reading, Words
from hamburger_edge.drafts.draft_index import (
    ENTRY,
    HEADER,
    MOST_BYTES,
    USUAL_RATES,
    DraftIndex,
    Guess,
    Rates,
    begin_key,
    context_keys,
    pack,
    run_keys,
)
from hamburger_edge.drafts.drafting import MOST, Drafter
from hamburger_edge.drafts.lookup import LONGEST_MATCH
from hamburger_edge.tuning.draft_counts import (
    KINDS,
    Entry,
    Kind,
    Pair,
    Tokens,
    beginnings,
    count_answers,
    word_keys,
)

LEAST_ANSWERS = 5  # distinct answers that must share an entry
BUCKETS = 25  # 0.05 wide up to 0.95, then 0.01
DRAFTED = 0.4  # a draft whose probability falls below it ends, to measure the pace


def build_draft_index(
    learned: Iterable[Pair],
    others: Iterable[Pair],
    vocab_size: int,
    words: Words | None = None,
    least: int = LEAST_ANSWERS,
) -> bytes:
    """Return the file's bytes. Pairs are a prompt and its answer; the index is fitted to the `others`.

    An entry of tokens is a context of LENGTHS and the token that most answers continue it with; at least
    `least` different answers do. An entry of places or runs is a context that as many answers share. The
    rarest contexts are left out if the file would exceed MOST_BYTES.
    """
    pairs, fitted = sorted(learned, key=lambda pair: tuple(pair[1])), list(others)
    begins = beginnings(pairs, words, least)
    counted = count_answers(pairs, words, begins, least)
    room = (MOST_BYTES - HEADER) // ENTRY - len(begins)
    kept = dict(sorted(counted.items(), key=lambda item: (-item[1].weight, item[0]))[:room])
    # longer contexts win where two share a key
    raw = {key: entry for (_, key), entry in sorted(kept.items())}
    calibration = _Calibration(raw)
    for prompt, answer in fitted:
        calibration.read(CopyReader(prompt, words, lambda skeleton: begin_key(skeleton) in begins), answer)
    chances = calibration.chances()
    entries = {key: Guess(COPY, 1.0) for key in begins}
    for key, entry in raw.items():
        chance = chances[entry.kind][_bucket(entry)]
        entries[key] = Guess(entry.token, chance, min(chance, entry.floor))
    rates = Rates(word=calibration.word_chance())
    index = DraftIndex(pack([*entries.items()], least, rates), vocab_size)
    rates = rates._replace(copies=_copy_chances(index, fitted, words))
    index = DraftIndex(pack([*entries.items()], least, rates), vocab_size)
    tokens, rows = _pace(index, fitted, words)
    return pack([*entries.items()], least, rates._replace(tokens=tokens, rows=rows))


class _Calibration:
    """The accuracy of entries on answers outside the training set, by kind and bucket."""

    def __init__(self, raw: Mapping[int, Entry]) -> None:
        self.raw = raw
        self.right: dict[Kind, list[int]] = {kind: [0] * BUCKETS for kind in KINDS}
        self.guesses: dict[Kind, list[int]] = {kind: [0] * BUCKETS for kind in KINDS}
        self.in_words = [0, 0]  # tokens after the first of copied words: tried, right

    def read(self, reader: CopyReader, answer: Tokens) -> None:
        reading = Reading()
        for token in answer:
            expected, skeleton = reader.expected(reading), reading.skeleton
            following = reader.read(reading, token)
            if reading.rest:
                self.in_words[0] += 1
                self.in_words[1] += token == expected
            elif expected is not None:
                self._judge(self._first(run_keys(skeleton, expected)), token == expected)
            if token != expected:
                begins = following.place >= 0
                entry = None
                for key in context_keys(skeleton):
                    if key not in self.raw:
                        break
                    entry = self.raw[key]
                self._judge(entry, entry is not None and entry.token == (COPY if begins else token))
                if begins:
                    self._judge_word(reader, skeleton, following.place)
            reading = following

    def _judge_word(self, reader: CopyReader, skeleton: Tokens, behind: int) -> None:
        """Judge the likeliest word alone: a draft takes that one."""
        candidates = [
            (entry.count / (entry.total + 1), -position, entry)
            for position in reader.words
            if (entry := self._first(word_keys(reader, skeleton, position)))
        ]
        if candidates:
            _, position, entry = max(candidates)
            self._judge(entry, reader.words[-position].behind == behind)

    def _first(self, keys: Iterable[int]) -> Entry | None:
        return next((self.raw[key] for key in keys if key in self.raw), None)

    def _judge(self, entry: Entry | None, right: bool) -> None:
        if entry is not None:
            self.right[entry.kind][_bucket(entry)] += right
            self.guesses[entry.kind][_bucket(entry)] += 1

    def chances(self) -> dict[Kind, list[float]]:
        """Return each bucket's accuracy, smoothed toward its training share."""
        middles = [(n + 0.5) / 20 if n < 19 else 0.95 + max(0, n - 19.5) / 100 for n in range(BUCKETS)]
        prior = 2  # weight of the training share, in tokens of other answers
        return {
            kind: [
                (good + prior * middle) / (guesses + prior)
                for good, guesses, middle in zip(self.right[kind], self.guesses[kind], middles, strict=True)
            ]
            for kind in KINDS
        }

    def word_chance(self) -> float:
        prior = 4
        return (self.in_words[1] + prior * USUAL_RATES.word) / (self.in_words[0] + prior)


def _bucket(entry: Entry) -> int:
    share = entry.count / (entry.total + 1)
    return int(share * 20) if share < 0.95 else min(BUCKETS - 1, 20 + int((share - 0.95) * 100))


def _copy_chances(index: DraftIndex, pairs: Sequence[Pair], words: Words | None) -> list[float]:
    """Return the accuracy of copied tokens by match length, where the index has no better guess."""
    right, guesses = [0.0] * LONGEST_MATCH, [0] * LONGEST_MATCH
    for prompt, answer in pairs:
        drafter = Drafter(prompt, index, words)
        for at in range(1, len(answer)):
            guess = drafter.guess(answer[:at])
            if guess and guess.match:
                right[guess.match - 1] += guess.token == answer[at]
                guesses[guess.match - 1] += 1
    prior = 4
    counted = zip(right, guesses, USUAL_RATES.copies, strict=True)
    return [(good + prior * usual) / (all_ + prior) for good, all_, usual in counted]


def _pace(index: DraftIndex, pairs: Sequence[Pair], words: Words | None) -> tuple[float, float]:
    """Return the tokens and rows of a base call in these answers, without a micro decoder."""
    calls = tokens = rows = 0
    for prompt, answer in pairs:
        drafter, at = Drafter(prompt, index, words), 0
        while at < len(answer):
            drafter.begin()
            drafted, stands = list(answer[: at + 1]), 1.0
            while len(drafted) - at <= MOST and (guess := drafter.guess(drafted)):
                stands *= guess.chance
                if stands < DRAFTED:
                    break
                drafted.append(guess.token)
                drafter.add(guess)
            kept = at + 1
            while kept < min(len(drafted), len(answer)) and drafted[kept] == answer[kept]:
                kept += 1
            drafter.settle(kept - at - 1)
            calls, tokens, rows = calls + 1, tokens + kept - at, rows + len(drafted) - at
            at = kept
    return (tokens / calls, rows / calls) if calls else (1.0, 1.0)
