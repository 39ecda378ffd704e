"""Run the loop once on a scripted backend, and check its invariants afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from hamburger_edge.drafts.copied_words import START
from hamburger_edge.drafts.draft_index import Guess, context_keys, pack
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import Step
from helpers.scripted_backend import ScriptedBackend, info

PROMPT = [5, 6, 7]
PROMPTS = st.lists(st.integers(3, 39), min_size=1, max_size=12)


def shapes(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[ModelInfo]:
    """Models of both position rules and both stop rules."""
    rules = {"position_rule": ["token", "slot"], "stop_rule": ["before", "after"]}
    return st.builds(info, **{name: st.sampled_from(values) for name, values in rules.items()}, **more)


def sampler(backend: ScriptedBackend, **options: Any) -> Sampler:
    return Sampler(SamplingSettings(**options), backend.info.vocab_size, backend.info.draft_vocab)


def run(
    engine: Engine,
    prompt: Sequence[int | Group] = PROMPT,
    sampling: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[list[Step], Stats]:
    passed = {name: options.pop(name) for name in ("cancel", "reuse", "driver") if name in options}
    groups = [(each,) if isinstance(each, int) else each for each in prompt]
    source = sampler(engine.backend, **(sampling or {}))
    source.top_probabilities = options.get("top_probabilities")
    source.begin(token for group in groups for token in group)
    stats = Stats()
    return list(engine.run(groups, Decoding(**options), source, stats=stats, **passed)), stats


def said(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def check_the_books(engine: Engine, prompt: list[int], steps: list[Step]) -> None:
    """The ledger and the backend hold prompt and answer, slot by slot."""
    assert engine.ledger.groups == engine.backend.context
    assert [t for g in engine.sequence for t in g] == prompt + said(steps)
    assert engine.ledger.tokens + sum(map(len, engine.unread)) == len(prompt) + len(said(steps))
    assert max(map(len, engine.sequence)) <= engine.info.max_group_tokens


Entry = tuple[list[int], int, float, float]  # context, next token, its chance, its floor


def packed_index(*entries: Entry) -> bytes:
    """Contexts with all their own endings, as a builder makes them; 0 stands for an answer's start."""
    found: dict[int, Guess] = {}
    for context, follows, chance, floor in entries:
        skeleton = [START, *context[1:]] if context[0] == 0 else context
        *endings, whole = context_keys(skeleton)
        for key in endings:
            found.setdefault(key, Guess(0, 0.0))
        found[whole] = Guess(follows, chance, floor)
    return pack([*found.items()], 5)


def along(answer: Sequence[int], floor: float = 1.0, first: int = 1) -> list[Entry]:
    """Entries that are certain of an answer, from this token of it on."""
    return [([0, *answer[:place]], answer[place], 1.0, floor) for place in range(first, len(answer))]
