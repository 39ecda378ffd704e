"""`hamburger-edge eval`: what is compared with what, and wrong command lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_bundles import toy_checkpoint
from toy_checkpoints import save, write_hf
from toy_models import toy_model

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.base_judge import prompt_ids
from hamburger_edge.evaluation.models import reference_base, sources
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

TINY = str(ZOO / "tiny")

Run = Callable[..., tuple[int, str, str]]


def test_quick_takes_the_built_in_prompts(run_eval: Run) -> None:
    code, out, err = run_eval(TINY, "--quick", "--max-tokens", "8", "--threads", "1")
    assert code == 0, err
    assert re.search(r"prompts: 1[4-6] of the built-in set", out)  # two of a kind, the long ones if they fit
    assert "  0.8  " in out


def test_the_reference_is_the_base_without_the_graft_s_changes(tmp_path: Path) -> None:
    """A checkpoint with a delta: judged by what the base was before."""
    checkpoint = toy_checkpoint(tmp_path / "toy")
    model = checkpoint.model
    write_hf(tmp_path / "base", model)
    generator = torch.Generator().manual_seed(1)
    weight = "layers.1.self_attn.q_proj.weight"
    rows, columns = model.base.state_dict()[weight].shape
    delta = {
        f"{weight}.lora_a": torch.randn(2, columns, generator=generator),
        f"{weight}.lora_b": torch.randn(rows, 2, generator=generator),
        "norm.weight.delta": torch.randn(columns, generator=generator),
    }
    described = {"tokenizer": checkpoint.tokenizer, "chat_template": checkpoint.chat_template}
    base = {"kind": "path", "path": "../base"}
    folder = save(tmp_path / "changed", model, base=base, base_delta=delta, **described)
    changed, unchanged = load_checkpoint(folder).model, toy_model(**_shape(model))
    base = reference_base(str(folder), cache_slots=64)
    assert "without what training the graft changed in it" in base.description
    found = base.model.backend.model.base.state_dict()  # type: ignore[attr-defined]
    for name, expected in unchanged.base.state_dict().items():
        torch.testing.assert_close(found[name], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(changed.base.state_dict()[weight], found[weight], atol=0.1)
    ids = prompt_ids(base.model, "the cat")
    assert base.read(ids, ids).nll.shape == (len(ids),)
    assert base.model.info.cache_slots == 64


def _shape(model: Any) -> dict[str, Any]:
    base = model.config.base
    return {"vocab_size": base.vocab_size, "head_dim": base.head_dim, "context_length": base.context_length}


def test_every_runtime_that_a_bundle_has_files_for(tmp_path: Path) -> None:
    for name, files in {"both": ("a.onnx", "b.gguf"), "one": ("a.gguf",), "none": ()}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    paths = [str(tmp_path / name) for name in ("both", "one", "none")]
    backends = [(source.path.name, source.backend) for source in sources(paths, "all")]
    assert backends == [("both", "onnx"), ("both", "llamacpp"), ("one", "llamacpp"), ("none", "auto")]
    assert [source.backend for source in sources(paths, "onnx")] == ["onnx"] * 3
    (tmp_path / "other" / "one").mkdir(parents=True)
    labels = [
        source.label for source in sources([paths[0], paths[1], str(tmp_path / "other" / "one")], "auto")
    ]
    assert labels == ["both", paths[1], str(tmp_path / "other" / "one")]
    with pytest.raises(InputError, match="given twice"):
        sources([paths[0], paths[0]], "auto")
