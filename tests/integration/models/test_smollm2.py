"""SmolLM2 itself, fetched: its facts, and that llama.cpp computes the same from the same file."""

from __future__ import annotations

import pytest
import torch
from helpers.base_logits import built, logits_cached, logits_whole
from helpers.toys.gguf_files import llama_cpp_logits
from tokenizers import Tokenizer

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.sources.fetch import fetch

pytestmark = pytest.mark.slow

PROMPT = "<|im_start|>user\nName three primary colors.<|im_end|>\n<|im_start|>assistant\n"


def test_smollm2_agrees_with_llama_cpp() -> None:
    """llama.cpp rounds activations to 8 bits for every quantized matrix, so its logits (of size 20 or so)
    differ by some tenths. A wrong row order, norm or rotation moves them by several units.
    """
    folder = fetch("smollm2-135m")
    loaded = load_base(folder)
    assert loaded.config.family == "llama"
    assert (loaded.eos_ids, loaded.license) == ((2,), "apache-2.0")
    assert loaded.chat_template is not None
    assert ChatTemplate.from_json(loaded.chat_template) == ChatTemplate.preset("smollm2")
    assert "Apache License" in (folder / "LICENSE").read_text()

    base, tables = built(loaded)
    ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT).ids])
    ours = logits_whole(base, tables, ids)
    cached = logits_cached(base, tables, ids, [9, 1, ids.shape[1] - 10])
    torch.testing.assert_close(cached, ours, atol=1e-3, rtol=0)

    theirs = llama_cpp_logits(folder / "model.gguf", ids[0])
    assert (ours[0] - theirs).abs().mean() < 0.3
    assert ours[0, -1].argmax() == theirs[-1].argmax()
    assert torch.nn.functional.cosine_similarity(ours[0], theirs, dim=-1).min() > 0.99
