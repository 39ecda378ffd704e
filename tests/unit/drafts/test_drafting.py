"""Drafts without a model: where guesses come from, and that the base keeps only what it would choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.engine_runs import Entry, along, check_the_books, packed_index, run, said
from helpers.scripted_backend import EOS, ScriptedBackend, info

from hamburger_edge.drafts.copied_words import COPY, NEWEST, START, CopyReader, Reading, Words
from hamburger_edge.drafts.draft_index import (
    DraftIndex,
    Guess,
    Rates,
    begin_key,
    context_keys,
    pack,
    place_keys,
    read_draft_index,
    run_keys,
)
from hamburger_edge.drafts.drafting import Costs, Drafter, worth_of_token
from hamburger_edge.drafts.lookup import WEIGHT
from hamburger_edge.errors import BundleError
from hamburger_edge.loop.backend import Floats, MicroReadout
from hamburger_edge.loop.modes.engine import Engine


def token(guess: Guess | None) -> int | None:
    return guess and guess.token


def test_copy_continues_the_longest_match() -> None:
    drafter = Drafter([5, 9, 1, 7, 9, 2, 8, 9, 3], None)
    assert token(drafter.guess([4, 7, 9])) == 2
    assert token(drafter.guess([8, 9])) == 3
    for nothing in ([6], []):  # not in it; no answer yet
        assert drafter.guess(nothing) is None


def test_an_answer_is_copied_from_itself() -> None:
    drafter = Drafter([5, 9], None)
    assert token(drafter.guess([30, 31, 32, 30])) == 31
    assert drafter.guess([30, 31, 32, 33]) is None
    assert token(drafter.guess([30, 31, 33, 9, 30, 31])) == 33  # the rejected 32 is forgotten
    assert token(drafter.guess([9])) == 9  # behind the prompt comes the answer


def test_a_rejected_draft_leaves_nothing_in_the_text() -> None:
    rng = np.random.default_rng(4)
    followed, answer = Drafter([3, 4, 5, 3], None), list[int]()
    for _ in range(300):
        del answer[len(answer) - rng.integers(0, min(3, len(answer)) + 1) :]
        answer += rng.integers(3, 7, rng.integers(1, 4)).tolist()
        assert followed.guess(answer) == Drafter([3, 4, 5, 3], None).guess(answer)
    assert len(answer) > 50


def test_next_of_equal_matches_is_copied() -> None:
    drafter = Drafter([1, 50, 1, 51, 1, 52], None)
    guess = drafter.guess([1])
    assert token(guess) == 50
    drafter.add(guess)
    assert token(drafter.guess([61, 60, 1])) == 51  # behind the last copy of this draft
    drafter.settle(1)
    drafter.begin()
    assert token(drafter.guess([61, 60, 1])) == 51  # and of the text


def test_failed_copies_lower_the_chance_of_such_a_match() -> None:
    drafter = Drafter([1, 2, 3, 4, 5], None)
    guess, longer = drafter.guess([2]), drafter.guess([1, 2])
    drafter.add(guess)
    drafter.settle(0)
    assert drafter.guess([2]).chance == guess.chance * WEIGHT / (WEIGHT + 1)
    assert drafter.guess([1, 2]) == longer
    for copied, kept in [(guess, 1)] * 10 + [(None, 0)]:  # None: a token of the micro decoder
        drafter.begin()
        drafter.add(copied)
        drafter.settle(kept)
    assert drafter.guess([2]).chance > 0.7


def index_of(*entries: Entry) -> DraftIndex:
    return DraftIndex(packed_index(*entries), 40)


def test_longest_known_context_predicts() -> None:
    index = index_of(([0, 9, 7], 3, 1.0, 0.9), ([8, 7], 6, 0.5, 0.4), ([7], 4, 0.3, 0.2))
    assert token(index.guess([START, 9, 7])) == 3
    assert token(index.guess([3, 8, 7])) == 6
    assert token(index.guess([3, 3, 7])) == 4
    assert index.guess([7, 3]) is None
    assert len(index) == 4


def test_likelier_of_index_and_copy_is_drafted() -> None:
    index = index_of(([8, 7], 6, 0.3, 0.0))
    assert token(Drafter([8, 7, 5, 1], index).guess([8, 7])) == 5
    assert token(Drafter([3, 5, 1], index).guess([8, 7])) == 6
    sure = index_of(([8, 7], 6, 0.9, 0.0))
    assert token(Drafter([7, 5, 1], sure).guess([8, 7])) == 6


# "Col" and " Col" are tokens, " Sen" too, but "Sen" is two
PIECES = {1: b"", 2: b"", 5: b"rain", 6: b" in", 7: b" Col", 8: b"fax", 9: b",", 10: b" Sen", 11: b"egal"}
SPELLED = {
    "rain": (5,),
    "in": (12,),
    "Col": (20,),
    "Senegal": (21, 22, 11),
    "Colfax,": (20, 8, 9),
    "Colfax": (20, 8),
    "Col,": (20, 9),
    "Colegal": (20, 11),
}
PROMPT = [1, 5, 6, 7, 8, 9, 10, 11, 2]
WORDS = Words({**PIECES, 23: b"\xff", 24: b" \xff"}.__getitem__, SPELLED.__getitem__)


def test_words_are_spelled_without_the_space_before_them() -> None:
    words = WORDS.of(PROMPT)
    assert {place: word.tokens for place, word in words.items()} == {
        1: (5,),
        2: (12,),
        3: (20, 8, 9),
        6: (21, 22, 11),
    }
    assert [word.behind for word in words.values()] == [2, 3, 6, 8]


def test_words_without_text_are_excluded() -> None:
    assert list(WORDS.of([24, 7])) == [1]
    assert list(WORDS.of([23])) == []
    assert min(WORDS.of([7] + [6] * NEWEST)) == 1  # only the newest tokens are cut


def read(reader: CopyReader, answer: list[int]) -> Reading:
    reading = Reading()
    for each in answer:
        reading = reader.read(reading, each)
    return reading


def test_a_copied_run_is_one_mark_of_the_skeleton() -> None:
    reader = CopyReader(PROMPT, WORDS, lambda skeleton: skeleton[-1] == 30)
    assert read(reader, [30, 20]).skeleton == (START, 30, COPY)
    assert reader.expected(read(reader, [30, 20])) == 8
    assert read(reader, [30, 20, 8, 9]).skeleton == (START, 30, COPY)
    assert reader.expected(read(reader, [30, 20, 8, 9])) == 10  # the prompt's own token, with its space
    assert reader.expected(read(reader, [30, 20, 8, 9, 10])) == 11
    assert reader.expected(read(reader, [30, 21, 22, 11])) is None  # the prompt's next token is no text
    assert read(reader, [30, 20, 31]).skeleton == (START, 30, COPY, 31)  # cut short
    assert read(reader, [31, 20]).skeleton == (START, 31, 20)  # no run begins behind 31
    assert read(CopyReader(PROMPT, None, lambda _: True), [30, 20]).skeleton == (START, 30, 20)


def test_of_equal_words_the_next_one_is_copied() -> None:
    reader = CopyReader([7, 8, 7, 9, 7, 11], WORDS, lambda skeleton: skeleton[-1] == 30)
    assert reader.expected(read(reader, [30, 20])) == 8
    assert reader.expected(read(reader, [30, 20, 8, 31, 30, 20])) == 9
    assert reader.expected(read(reader, [30, 20, 8, 31, 30, 20, 9, 31, 30, 20, 11, 31, 30, 20])) == 11


def copying_index() -> DraftIndex:
    """After 30 an answer copies the word after " in", and ends the run before a second word."""
    entries = {begin_key([START, 30]): Guess(COPY, 1.0)}
    for skeleton, follows in (((START, 30), COPY), ((START, 30, COPY), 31)):
        for key in list(context_keys(skeleton))[:-1]:
            entries[key] = Guess(follows, 0.9, 0.8)
    after, other = place_keys((START, 30), 6, 7)[1], place_keys((START, 30), 9, 10)[1]
    entries |= {after: Guess(COPY, 0.8, 0.7), other: Guess(COPY, 0.1)}
    specific, general = run_keys((START, 30, COPY), 10)
    entries |= {specific: Guess(COPY, 0.25), general: Guess(COPY, 0.9)}
    return DraftIndex(pack([*entries.items()], 5, Rates(word=0.95, tokens=4.0, rows=5.0)), 40)


def test_the_index_names_the_word_that_is_copied() -> None:
    drafter = Drafter(PROMPT, copying_index(), WORDS)
    for answer, expected in (
        ([30], (20, 0.9 * 0.8)),
        ([30, 20], (8, 0.95)),
        ([30, 20, 8, 9], (31, 0.75 * 0.9)),  # seldom a second word
        ([30, 21], (22, 0.95)),  # the base chose another word than the draft before
    ):
        assert drafter.guess(answer)[:2] == pytest.approx(expected, abs=1e-3)
    assert drafter.guess([30]).floor == pytest.approx(0.8 * 0.7, abs=1e-3)
    assert token(Drafter(PROMPT, copying_index(), None).guess([30])) is None


def test_a_token_is_worth_its_share_of_a_call() -> None:
    assert worth_of_token(None, Costs(row=0.1)) == pytest.approx(1.3 / 1.8)
    assert worth_of_token(copying_index(), Costs(row=0.1)) == pytest.approx(1.5 / 4)
    assert worth_of_token(copying_index(), Costs(row=1.0)) == 1


@pytest.mark.parametrize("damage", ["magic", "version", "cut", "long", "order", "token", "chance", "pace"])
def test_a_damaged_index_is_refused(damage: str, tmp_path: Path) -> None:
    good = pack([(1, Guess(3, 0.5)), (2, Guess(4, 0.5))], 5)
    assert len(DraftIndex(good, 40)) == 2
    bad = {
        "magic": b"X" + good[1:],
        "version": good[:4] + b"\1" + good[5:],
        "cut": good[:-1],
        "long": good + b"\0",
        "order": good[:64] + good[68:72] + good[64:68] + good[72:],
        "token": good[:72] + b"\50" + good[73:],
        "chance": good[:16] + b"\0\0\0\x7f" + good[20:],
        "pace": good[:40] + b"\0\0\0\0" + good[44:],
    }[damage]
    (tmp_path / "draft_index.bin").write_bytes(bad)
    with pytest.raises(BundleError, match="export the bundle again"):
        read_draft_index(tmp_path / "draft_index.bin", 40)
    assert read_draft_index(tmp_path / "none", 40) is None


class Repeating(ScriptedBackend):
    """Repeat the prompt with some tokens changed, then end."""

    def __init__(self, shape: Any, prompt: list[int], mistakes: float, p_stop: float | None) -> None:
        super().__init__(shape, agreement=0.0, eos_rate=0.0, p_stop=p_stop)
        self.prompt, self.mistakes = prompt, mistakes

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Floats:
        scores = super().scores(text, salt)
        place = len(text) - len(self.prompt)
        slips = np.random.default_rng([5, *text]).random() < self.mistakes
        if not salt and place >= 0 and not slips:
            scores[self.prompt[place] if place < len(self.prompt) else EOS] = 9.0
        return scores


# one match of 0.45 begins a copy, and each kept token makes the next draft longer
@pytest.mark.parametrize(("mistakes", "most_calls"), [(0.0, 5), (0.1, 12), (0.5, 20)])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5, "seed": 3, "repetition_penalty": 1.3}])
def test_an_answer_that_repeats_its_prompt_takes_few_calls(
    mistakes: float, most_calls: int, sampling: dict[str, Any]
) -> None:
    prompt = [*range(3, 24)]
    texts = []
    for decoding in ({"confidence": 1.0}, {"mode": "verify", "confidence": 0.8, "top_probabilities": 0}):
        engine = Engine(Repeating(info(cache_slots=41), prompt, mistakes, p_stop=1.0))
        steps, stats = run(engine, prompt, sampling, max_tokens=40, **decoding)
        check_the_books(engine, prompt, steps)
        texts.append((said(steps), steps[-1].finish_reason))
    assert texts[0] == texts[1]
    assert stats.micro_steps == 0  # none is worth trying
    assert stats.base_calls <= most_calls
    assert all(0 <= p <= 1 for step in steps for p in step.probabilities)


def test_an_answer_that_repeats_itself_takes_few_calls() -> None:
    script = [*range(10, 30)] * 3 + [EOS]
    backend = ScriptedBackend(info(cache_slots=80, context_length=80), p_stop=1.0)
    backend.say(script, prompt=3)
    steps, stats = run(Engine(backend), [5, 6, 7], max_tokens=70, mode="verify", confidence=0.8)
    assert said(steps) == script
    assert stats.micro_steps == 0
    assert stats.base_calls <= 20 + 8


SCRIPT = [30, 31, 32, 33, EOS]


def test_certain_tokens_are_merged_unchecked_in_hybrid_mode() -> None:
    """Of the same guesses, one with enough answers behind it needs no row, until a slot is full; one without
    does."""
    texts = []
    for floor, most, slots in ((1.0, 4, 1), (1.0, 3, 2), (0.9, 4, 4)):
        shape = info(draft_index=index_of(*along(SCRIPT[:4], floor)), max_group_tokens=most)
        backend = ScriptedBackend(shape, p_stop=1.0)  # no micro step is tried
        backend.say(SCRIPT, prompt=3)
        engine = Engine(backend)
        steps, _ = run(engine, [5, 6, 7], max_tokens=9, mode="hybrid", confidence=0.95)
        check_the_books(engine, [5, 6, 7], steps)
        texts.append(said(steps))
        merged = [group for group in backend.context[3:] if set(group) & set(SCRIPT[:4])]
        assert len(merged) == slots
    assert texts == [SCRIPT] * 3


def test_guess_that_settings_may_forbid_is_not_merged() -> None:
    backend = ScriptedBackend(info(draft_index=index_of(*along(SCRIPT[:4]))), p_stop=1.0)
    backend.say(SCRIPT, prompt=3)
    steps, _ = run(
        Engine(backend), [5, 6, 7], {"logit_bias": {32: -100}}, max_tokens=4, mode="hybrid", confidence=0.95
    )
    assert said(steps)[:2] == SCRIPT[:2]
    assert 32 not in said(steps)


def test_the_micro_decoder_reads_every_token_once() -> None:
    """Behind a guess that needs no micro step it reads two tokens, and then goes on with the third."""
    read = [list[int]()]

    class Recording(ScriptedBackend):
        def micro_begin(self, features: Any) -> None:
            super().micro_begin(features)
            read.append([])

        def micro(self, token: int) -> MicroReadout:
            read[-1].append(token)
            return super().micro(token)

    backend = Recording(info(draft_index=index_of(([0, 30], 31, 0.95, 0.5))), p_stop=0.02)
    backend.say(SCRIPT, prompt=3)
    steps, _ = run(Engine(backend), [5, 6, 7], max_tokens=9, mode="verify", confidence=0.8)
    assert said(steps) == SCRIPT
    assert read[1] == SCRIPT[:3]
