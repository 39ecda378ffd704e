"""A bundle in optimum behaves like its other decoders, and says what it says elsewhere."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[optimum]'")
pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed: pip install '.[optimum]'")

from optimum.onnxruntime import ORTModel, ORTModelForCausalLM, pipeline
from transformers import AutoTokenizer, TextIteratorStreamer
from transformers import pipeline as plain_pipeline

import hamburger_edge
from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import InputError, MissingExtraError
from hamburger_edge.integrations.optimum import ORTHamburgerForCausalLM
from hamburger_edge.integrations.transformers import HamburgerHFConfig, HamburgerTokenizer

PROMPT = torch.tensor([[5, 6, 7]])
OPTIONS: list[dict[str, Any]] = [
    {"mode": "merge", "confidence": 0.0},
    {"mode": "plain"},
    {"mode": "verify", "confidence": 0.0},
    {"no_repeat_ngram_size": 2, "mode": "verify"},
    {"do_sample": True, "temperature": 0.8, "seed": 5},
]


@pytest.fixture(scope="module")
def model(bundle: Path) -> Iterator[ORTHamburgerForCausalLM]:
    model = ORTHamburgerForCausalLM.from_pretrained(bundle, threads=1)
    yield model
    model.close()


@pytest.fixture(scope="module")
def tokenizer(bundle: Path) -> Any:
    return HamburgerTokenizer.from_pretrained(bundle)


def test_it_is_one_of_optimum_s_models(model: ORTHamburgerForCausalLM, bundle: Path) -> None:
    assert isinstance(model, ORTModelForCausalLM | ORTModel)
    config = HamburgerHFConfig.from_pretrained(bundle)
    assert config.model_type == model.config.model_type == "hamburger"
    assert config.max_position_embeddings == 512
    assert model.to("cpu") is model
    with pytest.raises(InputError, match="provider="):
        model.to("cuda")


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_it_says_what_the_bundle_says(
    options: dict[str, Any], model: ORTHamburgerForCausalLM, bundle: Path
) -> None:
    found = model.generate(PROMPT, max_new_tokens=20, return_dict_in_generate=True, **options)
    with hamburger_edge.load(bundle, threads=1) as ours:
        expected = ours.generate(PROMPT[0].tolist(), max_tokens=20, **options)
    assert found.groups == [expected.groups]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_says_what_the_checkpoint_says(
    options: dict[str, Any], model: ORTHamburgerForCausalLM, bundle: Path, tmp_path: Path
) -> None:
    """Float32 graphs beside the modules they were made of."""
    from toy_bundles import save_toy, toy_checkpoint

    from hamburger_edge.integrations.transformers import HamburgerForCausalLM

    toy = save_toy(tmp_path / "checkpoint", toy_checkpoint(tmp_path / "made", draft_vocab_size=100))
    reference = HamburgerForCausalLM.from_pretrained(toy)
    for one, other in zip(
        *(m.generate(PROMPT, max_new_tokens=20, **options) for m in (model, reference)), strict=True
    ):
        assert one.tolist() == other.tolist()
    with torch.no_grad():
        mask = torch.tensor([[0, 1, 1, 1]])
        padded = torch.tensor([[0, 5, 6, 7]])
        scores = (m(padded, attention_mask=mask).logits[:, 1:] for m in (model, reference))
        torch.testing.assert_close(*scores, atol=2e-3, rtol=1e-3)


def test_pipelines_of_both_say_what_generate_says(
    model: ORTHamburgerForCausalLM,
    tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    chat = [{"role": "user", "content": "hello world"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
    answer = model.generate(ids, max_new_tokens=12)[0, ids.shape[1] :]
    expected = [*chat, {"role": "assistant", "content": tokenizer.decode(answer, skip_special_tokens=True)}]
    for made in (pipeline, plain_pipeline):
        talk = made("text-generation", model=model, tokenizer=tokenizer)
        [found] = talk(chat, max_new_tokens=12, do_sample=False)
        assert found["generated_text"] == expected
    assert "is not supported" not in caplog.text  # which transformers says of classes that it cannot name


def test_a_streamer_hears_groups_as_they_come(model: ORTHamburgerForCausalLM, tokenizer: Any) -> None:
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
    options = {"streamer": streamer, "max_new_tokens": 16, "mode": "merge", "confidence": 0.0}
    thread = threading.Thread(target=model.generate, args=(PROMPT,), kwargs=options)
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert text == tokenizer.decode(
        model.generate(PROMPT, max_new_tokens=16, mode="merge", confidence=0.0)[0, 3:]
    )


def test_what_is_saved_is_the_bundle(model: ORTHamburgerForCausalLM, bundle: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    HamburgerTokenizer.from_pretrained(bundle).save_pretrained(tmp_path)
    check_files(tmp_path / "onnx", load_manifest(tmp_path / "onnx"), hashes=True)
    again = ORTHamburgerForCausalLM.from_pretrained(tmp_path, threads=1)
    options: dict[str, Any] = {"max_new_tokens": 12, "mode": "merge", "confidence": 0.5}
    assert torch.equal(again.generate(PROMPT, **options), model.generate(PROMPT, **options))
    again.close()
    reread = AutoTokenizer.from_pretrained(tmp_path)
    chat = [{"role": "user", "content": "hello"}]
    assert reread.apply_chat_template(chat) == model.preprocessors[0].apply_chat_template(chat)


@pytest.mark.parametrize("options", [{"export": True}, {"subfolder": "x"}, {"speed": 3}])
def test_what_a_bundle_cannot_do_is_refused_by_name(options: dict[str, Any], bundle: Path) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ORTHamburgerForCausalLM.from_pretrained(bundle, **options)


def test_without_optimum_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("optimum", "optimum.onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "hamburger_edge.integrations.optimum")
    with pytest.raises(MissingExtraError, match=r"optimum is not installed: .*\.\[optimum\]"):
        importlib.import_module("hamburger_edge.integrations.optimum")
