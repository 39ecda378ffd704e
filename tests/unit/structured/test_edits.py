"""Edits of a prompt: names and numbers stay, other words change within a budget."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refusals import END, refused
from helpers.scripted_backend import ScriptedBackend

from hamburger_edge.loop.answer_run import AnswerRun
from hamburger_edge.loop.cached_text import CachedText
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.turns import Flag
from hamburger_edge.structured.edits import Edits, kept_words

# the same for the JavaScript runtime
GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "edits.json").read_text("utf-8"))


def token_bytes(token: int) -> bytes:
    return bytes([token]) if token < END else b""


def sampler(**settings: Any) -> Sampler:
    """At the answer to a prompt whose number it may not change."""
    made = Sampler(SamplingSettings(**settings), END + 1, constraint=Edits(token_bytes, [END]))
    made.begin([END, *b"Call 55", END])
    return made


def edits_of(prompt: str) -> Edits:
    edits = Edits(token_bytes, [END])
    edits.begin([END, *prompt.encode(), END])
    return edits


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["answer"])
def test_what_an_answer_may_become(case: dict[str, str]) -> None:
    assert refused(edits_of(case["prompt"]), case["answer"]) == case["refused"]
    assert refused(edits_of(case["answer"]), case["answer"]) is None


@pytest.mark.parametrize("case", GOLDEN["words"], ids=lambda case: case["text"][:12])
def test_kept_words(case: dict[str, Any]) -> None:
    text = case["text"]
    assert [text[start:stop] for start, stop in kept_words(text)] == case["kept"]


def test_an_answer_never_gets_stuck_and_keeps_words_in_their_order() -> None:
    """No kept word has a letter next to it, even in answers that differ much from the prompt."""
    draw = np.random.default_rng(1)
    prompt = "Well, Ann O'Hara and Bill, Cate, gave 2 tickets ( $5 ) to silver.io"
    kept = ["Ann", "OHara", "Bill", "Cate", "2", "5", "silver", "io"]
    ended = 0
    for _ in range(6):
        edits, answer = edits_of(prompt), bytearray()
        while len(answer) < 200 and not (edits.allows(END) and draw.random() < 0.5):
            strays = [byte for byte in b"on, ." if edits.allows(byte)]
            if not strays or draw.random() < 0.4:
                strays = [byte for byte in range(32, 127) if edits.allows(byte)]
            if not strays:
                assert edits.allows(END)
                break
            answer.append(int(draw.choice(strays)))
            edits.consume(answer[-1])
        if edits.allows(END):
            ended += 1
            said = iter(re.findall(r"[A-Za-z0-9]+", answer.decode().replace("'", "")))
            assert all(word in said for word in kept), answer
    assert ended > 1


def test_an_answer_without_max_tokens_takes_its_length_from_the_text_that_it_edits() -> None:
    """The rules let an answer insert letters for ever: it went on for 256 tokens."""

    def length(source: Sampler, **decoding: Any) -> int:
        text = CachedText(ScriptedBackend())
        more: dict[str, Any] = {"words": None, "stats": Stats(), "cancel": Flag(), "eos_ids": ()}
        return AnswerRun(text, Decoding(**decoding), source, [5], **more).max_tokens

    editing = sampler()
    assert length(editing) == 2 * len("Call 55") + 8
    assert length(editing, max_tokens=40) == 40
    editing.begin([*b"Earlier text", END, *(300 * b"a "), END])  # longer than other answers
    assert length(editing) == 2 * 600 + 8
    restored = sampler()
    restored.restore(editing.state())
    restored.follow()
    assert length(restored) == 2 * 600 + 8
    assert length(Sampler(SamplingSettings(), END + 1)) == 256


def test_the_sampler_takes_the_likeliest_that_is_allowed() -> None:
    source = sampler()
    scores = np.zeros(END + 1, dtype=np.float32)
    for wished, said in zip(b"Call 66", b"Call 55", strict=True):
        scores[:] = 0
        scores[wished], scores[said] = 2, 1
        assert source.choose(scores).token == said
    assert bytes(source.answer) == b"Call 55"
    assert not source.propose(ord("5"))
    assert source.propose(END)
    source.rewind(2)
    scores[:] = 0
    scores[ord("9")] = 2
    assert source.choose_micro(scores) is None
    assert bytes(source.answer) == b"Call 5"
    assert source.propose(ord("5"))
    assert source.propose(END)


def test_state_of_an_older_session_restores_the_prompt_in_order() -> None:
    """It held the prompt's tokens twice: sorted, and in order for the edits."""
    state = sampler().state()
    older = {**state, "prompt": sorted(set(state["prompt"])), "edited": state["prompt"]}
    restored = sampler()
    restored.begin([])
    restored.restore(older)
    restored.follow()
    assert restored.state() == state
    assert restored.propose(ord("C"))
    assert not restored.propose(ord("5"))


def test_a_restored_sampler_goes_on_with_its_prompt() -> None:
    first, second = sampler(seed=1, temperature=1), sampler(seed=1, temperature=1)
    second.begin([])
    scores = np.zeros(END + 1, dtype=np.float32)
    scores[list(b"Cal 5")] = 8
    for _ in range(3):
        first.choose(scores)
    second.restore(first.state())
    second.follow()
    for _ in range(4):
        assert first.choose(scores).token == second.choose(scores).token
