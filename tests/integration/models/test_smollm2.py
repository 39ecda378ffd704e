"""SmolLM2 itself, fetched: its facts, and that it says what others say who read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from base_logits import built, logits_cached, logits_whole
from gguf_files import llama_cpp_logits
from tokenizers import Tokenizer

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.fetch import fetch
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint, save_checkpoint

PROMPT = "<|im_start|>user\nName three primary colors.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return fetch("smollm2-135m")


@pytest.fixture(scope="module")
def loaded(smollm2: Path) -> LoadedBase:
    return load_base(smollm2)


def test_smollm2_facts(smollm2: Path, loaded: LoadedBase) -> None:
    base = loaded
    assert base.config.family == "llama"
    assert (base.config.num_layers, base.config.hidden_size, base.config.vocab_size) == (30, 576, 49152)
    assert (base.config.num_heads, base.config.num_kv_heads, base.config.head_dim) == (9, 3, 64)
    assert (base.config.rope_theta, base.config.rms_norm_eps, base.config.tied_head) == (1e5, 1e-5, True)
    assert (base.eos_ids, base.license) == ((2,), "apache-2.0")
    assert base.chat_template is not None
    assert ChatTemplate.from_json(base.chat_template) == ChatTemplate.preset("smollm2")
    assert "Apache License" in (smollm2 / "LICENSE").read_text()


def test_smollm2_agrees_with_transformers_and_llama_cpp(smollm2: Path, loaded: LoadedBase) -> None:
    """transformers, given these very weights, agrees to rounding; llama.cpp reads the file by itself.

    llama.cpp rounds activations to 8 bits for every quantized matrix, so its logits (of size 20 or so) differ
    by some tenths; a wrong row order, norm or rotation moves them by several units.
    """
    import transformers

    base, tables = built(loaded)
    ids = torch.tensor([Tokenizer.from_file(str(smollm2 / "tokenizer.json")).encode(PROMPT).ids])
    ours = logits_whole(base, tables, ids)
    torch.testing.assert_close(
        logits_cached(base, tables, ids, [9, 1, ids.shape[1] - 10]), ours, atol=1e-3, rtol=0
    )

    config = base.config
    with torch.device("meta"):
        theirs = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                max_position_embeddings=config.context_length,
                rms_norm_eps=config.rms_norm_eps,
                rope_theta=config.rope_theta,
                tie_word_embeddings=True,
            )
        )
    theirs.model.load_state_dict(base.state_dict(), assign=True)
    theirs.tie_weights()
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs.eval()(ids).logits, atol=1e-3, rtol=0)

    stored = llama_cpp_logits(smollm2 / "model.gguf", ids[0])
    assert (ours[0] - stored).abs().mean() < 0.3
    assert ours[0, -1].argmax() == stored[-1].argmax()
    cosine = torch.nn.functional.cosine_similarity(ours[0], stored, dim=-1)
    assert cosine.min() > 0.99


def test_a_checkpoint_on_a_fetched_base(smollm2: Path, loaded: LoadedBase, tmp_path: Path) -> None:
    from hamburger_edge.models.architecture.config import HamburgerConfig
    from hamburger_edge.models.architecture.hamburger import Hamburger

    base = loaded
    config = HamburgerConfig(base.config, taps=(7, 15, 23), eos_ids=base.eos_ids, micro_layers=1)
    model = Hamburger(config)
    digest = json.loads((smollm2 / "fetched.json").read_text())["files"]["model.gguf"]["sha256"]
    for folder, reference in {
        "pinned": {"kind": "fetch", "name": "smollm2-135m", "sha256": digest},
        "other": {"kind": "fetch", "name": "smollm2-135m", "sha256": "0" * 64},
    }.items():
        save_checkpoint(
            tmp_path / folder,
            model,
            base=reference,
            tokenizer=None,
            chat_template=None,
            provenance={},
            license={},
            rows="int8",
        )
    checkpoint = load_checkpoint(tmp_path / "pinned")
    assert torch.equal(checkpoint.model.base.norm.weight, base.state["norm.weight"])
    assert checkpoint.tokenizer == smollm2 / "tokenizer.json"
    assert checkpoint.chat_template == base.chat_template
    with pytest.raises(CheckpointError, match="not the weights"):
        load_checkpoint(tmp_path / "other")
