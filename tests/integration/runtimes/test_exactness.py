"""At every precision the answer is a function of the text alone.

Drafts, chunks of the prompt, reused slots and saved sessions change how many tokens share a call of the base,
and never the answer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hamburger_edge
from hamburger_edge.evaluation.checks import BUILT_IN, read_prompts
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.built_in import ZOO

PRECISIONS = ("fp32", "int8", "int4")
PROMPTS = (
    "Count from 3 to 9.",
    "Write JSON for a cat named Mia who is 3 years old.",
    "Tell me a story about a fox and a bell.",
    "What is 7 plus 5?",
    "Write a Python function that adds 5 to a number.",
)
DIALS: tuple[dict[str, Any], ...] = (
    {"mode": "plain"},
    *({"mode": mode, "confidence": 0.8} for mode in ("verify", "hybrid", "merge")),
)
SAMPLED: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95}


@pytest.fixture(params=PRECISIONS)
def model(request: pytest.FixtureRequest, exported_tiny: Callable[..., Path]) -> Iterator[Model]:
    with hamburger_edge.load(exported_tiny(request.param), threads=1) as loaded:
        yield loaded


def answer(model: Model, prompt: str, **settings: Any) -> list[int]:
    return model.generate(prompt, **{"max_tokens": 64, "reuse_prefix": False, **settings}).tokens


def test_verify_equals_plain_decoding(model: Model) -> None:
    for prompt in PROMPTS:
        for seed, sampling in ((0, {}), (1, SAMPLED), (2, SAMPLED)):
            plain, verified = (
                answer(model, prompt, mode=mode, seed=seed, **sampling) for mode in ("plain", "verify")
            )
            assert verified == plain


def test_answer_is_independent_of_cache_and_chunks(model: Model) -> None:
    for dial in DIALS:
        fresh = answer(model, PROMPTS[2], **dial)
        model.generate(PROMPTS[2] + " Or about a dog?", max_tokens=9, **dial)
        assert answer(model, PROMPTS[2], reuse_prefix=True, **dial) == fresh
        for chunk in (1, 7):
            model.inference.engine.chunk = chunk
            assert answer(model, PROMPTS[2], **dial) == fresh
        model.inference.engine.chunk = 256


def test_resumed_conversation_continues_to_same_text(model: Model, tmp_path: Path) -> None:
    for dial in DIALS:
        chat = model.chat(max_tokens=40, **dial)
        chat.send(PROMPTS[2]).result()
        chat.save(tmp_path / "saved")
        unbroken = chat.send(PROMPTS[0]).result().tokens
        model.generate("Name four fruits.", max_tokens=5)  # the cache holds something else
        assert model.resume(tmp_path / "saved").send(PROMPTS[0]).result().tokens == unbroken


@pytest.mark.slow
@pytest.mark.parametrize("name", ["voice-commands", "proofread", "smollm2-135m"])
def test_built_in_models_verify_equals_plain_decoding(name: str) -> None:
    """At int8, as they are assembled."""
    with hamburger_edge.load(name) as model:
        for prompt in built_in_prompts(name):
            assert answer(model, prompt, mode="verify") == answer(model, prompt, mode="plain"), prompt


def built_in_prompts(name: str) -> list[str]:
    """20 prompts of the model's task."""
    files = {"voice-commands": "by-hand.jsonl.gz", "proofread": "making/judge.jsonl.gz"}
    if name not in files:
        return [prompt.text for prompt in read_prompts(BUILT_IN)][::3][:20]
    with gzip.open(ZOO / name / files[name], "rt", encoding="utf-8") as file:
        return [json.loads(line)["prompt"] for line in file][::4][:20]
