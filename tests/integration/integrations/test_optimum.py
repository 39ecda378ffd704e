"""A bundle in optimum behaves like its other decoders, and `optimum-cli` writes the same bundle."""

from __future__ import annotations

import importlib
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.places import contents, environment
from helpers.toys.toy_bundles import saved_toy

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[optimum]'")
pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed: pip install '.[optimum]'")

from optimum.onnxruntime import ORTModel, ORTModelForCausalLM, pipeline
from transformers import AutoTokenizer
from transformers import pipeline as plain_pipeline

import hamburger_edge
from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.cli.commands.export import OPTIONS
from hamburger_edge.cli.main import main
from hamburger_edge.errors import InputError, MissingExtraError
from hamburger_edge.integrations.optimum import ORTHamburgerForCausalLM
from hamburger_edge.integrations.transformers import HamburgerHFConfig, HamburgerTokenizer

PROMPT = torch.tensor([[5, 6, 7]])


@pytest.fixture(scope="module")
def model(bundle: Path) -> Iterator[ORTHamburgerForCausalLM]:
    model = ORTHamburgerForCausalLM.from_pretrained(bundle, threads=1)
    yield model
    model.close()


def test_model_is_an_optimum_decoder(model: ORTHamburgerForCausalLM, bundle: Path) -> None:
    assert isinstance(model, ORTModelForCausalLM | ORTModel)
    config = HamburgerHFConfig.from_pretrained(bundle)
    assert config.model_type == model.config.model_type == "hamburger"
    assert config.max_position_embeddings == 512
    assert model.to("cpu") is model
    with pytest.raises(InputError, match="provider="):
        model.to("cuda")


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "merge", "confidence": 0.0},
        {"mode": "plain"},
        {"mode": "verify", "confidence": 0.0, "temperature": 0.8, "seed": 5},
    ],
    ids=str,
)
def test_generate_equals_the_bundle(
    options: dict[str, Any], model: ORTHamburgerForCausalLM, bundle: Path
) -> None:
    lengths = {"max_new_tokens": 20, "return_dict_in_generate": True, "do_sample": "seed" in options}
    output = model.generate(PROMPT, **lengths, **options, top_k=0)
    with hamburger_edge.load(bundle, threads=1) as bundle_model:
        expected = bundle_model.generate(PROMPT[0].tolist(), max_tokens=20, **options)
    assert output.groups == [expected.groups]


def test_forward_ignores_padding(model: ORTHamburgerForCausalLM) -> None:
    padded, mask = torch.tensor([[0, 5, 6, 7]]), torch.tensor([[0, 1, 1, 1]])
    alone = model(PROMPT).logits
    torch.testing.assert_close(model(padded, attention_mask=mask).logits[:, 1:], alone)
    assert alone[0, -1].argmax() == model.generate(PROMPT, max_new_tokens=1)[0, -1]


def test_pipelines_of_optimum_and_transformers_equal_generate(
    model: ORTHamburgerForCausalLM,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    tokenizer = HamburgerTokenizer.from_pretrained(bundle)
    chat = [{"role": "user", "content": "hello world"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
    answer = model.generate(ids, max_new_tokens=12)[0, ids.shape[1] :]
    expected = [*chat, {"role": "assistant", "content": tokenizer.decode(answer, skip_special_tokens=True)}]
    for make_pipeline in (pipeline, plain_pipeline):
        generator = make_pipeline("text-generation", model=model, tokenizer=tokenizer)
        [output] = generator(chat, max_new_tokens=12, do_sample=False)
        assert output["generated_text"] == expected
    assert "is not supported" not in caplog.text  # transformers logs this for an unknown class


def test_saved_model_is_the_bundle(model: ORTHamburgerForCausalLM, bundle: Path, tmp_path: Path) -> None:
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
def test_unsupported_loading_option_is_refused_by_name(options: dict[str, Any], bundle: Path) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ORTHamburgerForCausalLM.from_pretrained(bundle, **options)


def test_missing_optimum_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("optimum", "optimum.onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "hamburger_edge.integrations.optimum")
    with pytest.raises(MissingExtraError, match=r"optimum is not installed: .*\.\[optimum\]"):
        importlib.import_module("hamburger_edge.integrations.optimum")


# -- optimum-cli export hamburger --------------------------------------------------------------------------


def optimum_cli(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("optimum-cli")), "export", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(OMP_NUM_THREADS="1"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--format", "gguf", "--precision", "int8"]], ids=["onnx", "gguf"])
def test_optimum_cli_writes_the_bundle_of_our_export(options: list[str], tmp_path: Path) -> None:
    checkpoint = saved_toy(tmp_path / "checkpoint")
    done = optimum_cli("hamburger", "--model", checkpoint, tmp_path / "theirs", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == str(tmp_path / "theirs")
    assert main(["export", str(checkpoint), "-o", str(tmp_path / "ours"), *options]) == 0
    ours = contents(tmp_path / "ours")
    assert "manifest.json" in ours
    assert ours == contents(tmp_path / "theirs")


def test_optimum_cli_error_is_one_line(tmp_path: Path) -> None:
    done = optimum_cli("hamburger", "--model", tmp_path / "nowhere", tmp_path / "bundle")
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "nowhere" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "bundle").exists()


def test_optimum_cli_lists_our_options_and_keeps_onnx() -> None:
    help_text = optimum_cli("hamburger", "--help").stdout
    assert not [option.flags[0] for option in OPTIONS if option.flags[0] not in help_text]
    assert {"onnx", "hamburger"} <= set(re.findall(r"\w+", optimum_cli("--help").stdout))
