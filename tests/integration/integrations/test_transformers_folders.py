"""A HAMburger in transformers is read from and saved to folders that load everywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.toys.toy_bundles import PLAIN, save_toy, saved_toy, toy_checkpoint
from helpers.toys.toy_checkpoints import same_weights
from helpers.toys.toy_tasks import write_base

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[optimum]'")

from transformers import AutoModelForCausalLM, AutoTokenizer

from hamburger_edge.errors import CheckpointError, InputError
from hamburger_edge.integrations.transformers import (
    HamburgerForCausalLM,
    HamburgerHFConfig,
    HamburgerTokenizer,
)
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    read_calibration,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.facts import write_into

TINY = ZOO / "tiny"
CHAT = [{"role": "user", "content": "What is 7 plus 8?"}]


@pytest.fixture(scope="module")
def model() -> HamburgerForCausalLM:
    return HamburgerForCausalLM.from_pretrained(TINY)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random weights: it generates groups of each length and no end token."""
    folder = tmp_path_factory.mktemp("toy")
    return save_toy(folder / "checkpoint", toy_checkpoint(folder / "parts", draft_vocab_size=100))


def test_folder_and_built_in_name_load_the_same_model(model: HamburgerForCausalLM) -> None:
    assert not model.training
    named = HamburgerForCausalLM.from_pretrained("tiny")
    same_weights(named.hamburger, model.hamburger)
    same_weights(load_checkpoint("tiny").model, model.hamburger)
    config = HamburgerHFConfig.from_pretrained(TINY)
    assert (config.vocab_size, config.num_hidden_layers, config.max_position_embeddings) == (1024, 4, 512)
    assert config.shape == model.hamburger.config
    with pytest.raises(AttributeError, match="num_experts"):
        _ = config.num_experts


def test_saved_model_is_complete_and_loads_everywhere(toy: Path, tmp_path: Path) -> None:
    """It keeps what the checkpoint stores of its answers, and the calibration text."""
    tuned, folder = Path(shutil.copytree(toy, tmp_path / "tuned")), tmp_path / "saved"
    recommended = {"mode": "verify", "confidence": 0.6}
    certainty = {"slope": 1.5, "offset": 0.5}
    facts = {"recommended": recommended, "certainty": certainty, "edits_prompt": True}
    write_into(tuned, **facts)
    text = [CalibrationExample("Play jazz", "Jazz it is.")]
    write_calibration(tuned / CALIBRATION, text)
    model, tokenizer = HamburgerForCausalLM.from_pretrained(tuned), HamburgerTokenizer.from_pretrained(tuned)
    assert (model.generation_config.mode, model.generation_config.confidence) == ("verify", 0.6)
    model.generation_config.confidence = 0.7
    tokenizer.save_pretrained(folder)
    for _ in range(2):  # the second call replaces the first
        model.save_pretrained(folder)
    assert not list(folder.glob(".saving*"))
    again = AutoModelForCausalLM.from_pretrained(folder)
    same_weights(again.hamburger, model.hamburger)
    assert again.generation_config.confidence == 0.7
    assert again.generation_config.eos_token_id == [2]
    assert json.loads((folder / "config.json").read_text())["model_type"] == "hamburger"
    same_weights(load_checkpoint(folder).model, model.hamburger)  # as `export` loads it
    assert (folder / "tokenizer.json").read_bytes() == (toy / "tokenizer.json").read_bytes()
    manifest = json.loads((folder / "hamburger.json").read_text())
    assert {name: manifest[name] for name in facts} == facts
    assert read_calibration(folder / CALIBRATION) == text
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "up to 4 tokens" in card
    reread = AutoTokenizer.from_pretrained(folder)
    assert reread.apply_chat_template(CHAT) == tokenizer.apply_chat_template(CHAT)
    assert reread.eos_token == tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("options", [{"torch_dtype": "float16"}, {"device_map": "cuda"}, {"speed": 3}])
def test_unsupported_loading_option_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        HamburgerForCausalLM.from_pretrained(TINY, **options)


def test_configuration_of_another_model_is_refused(toy: Path) -> None:
    with pytest.raises(CheckpointError, match="configuration"):
        HamburgerForCausalLM.from_pretrained(TINY, config=HamburgerHFConfig.from_pretrained(toy))


def test_plain_model_is_saved_with_a_card_of_its_own(tmp_path: Path) -> None:
    folder = saved_toy(tmp_path / "plain", **PLAIN)
    model, tokenizer = (kind.from_pretrained(folder) for kind in (HamburgerForCausalLM, HamburgerTokenizer))
    tokenizer.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "without a graft" in card
    assert "micro-step" not in card
    assert not (tmp_path / "saved" / "graft.safetensors").exists()
    same_weights(AutoModelForCausalLM.from_pretrained(tmp_path / "saved").hamburger, model.hamburger)
    with pytest.raises(CheckpointError, match="not a HAMburger checkpoint"):
        HamburgerForCausalLM.from_pretrained(write_base(tmp_path / "ordinary"))
