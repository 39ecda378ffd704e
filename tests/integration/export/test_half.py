"""A base that is stored in 16 bits is held so while it is exported: half the memory, the same bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from exports import export
from places import contents
from toy_bundles import ONE_LAYER, save_toy, toy_checkpoint
from toy_checkpoints import same_outputs, save, write_hf

from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose base is embedded, in float16."""
    folder = tmp_path_factory.mktemp("half")
    toy = toy_checkpoint(folder, draft_vocab_size=100, head_dim=32, **ONE_LAYER)
    return save_toy(folder / "stored", toy, rows="fp16")


@pytest.fixture(scope="module")
def beside(stored: Path) -> Path:
    """The same, but for its base, which lies beside it as a Hugging Face folder, in bfloat16."""
    toy = load_checkpoint(stored)
    base = write_hf(stored.parent / "base", toy.model.to(torch.bfloat16))
    return save(
        stored.parent / "beside",
        toy.model.float(),
        base={"kind": "path", "path": str(base), "sha256": load_base(base).sha256},
        tokenizer=toy.tokenizer,
        chat_template=toy.chat_template,
    )


def test_it_computes_the_same(stored: Path) -> None:
    whole, half = load_checkpoint(stored).model, load_checkpoint(stored, half=True).model
    matrices = {
        name: tensor for name, tensor in half.base.state_dict().items() if name.endswith("_proj.weight")
    }
    assert {tensor.dtype for tensor in matrices.values()} == {torch.float16}
    others = [
        tensor for name, tensor in half.state_dict().items() if name.removeprefix("base.") not in matrices
    ]
    assert torch.float16 not in {tensor.dtype for tensor in others}
    same_outputs(half, whole)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("stored", {"precision": "int4"}),
        ("beside", {"precision": "int8", "verify": True}),  # the gate accepts it
        ("stored", {"precision": "q4_1", "formats": ["gguf"]}),
    ],
    ids=lambda given: given if isinstance(given, str) else given["precision"],
)
def test_the_bundle_is_the_same(
    kind: str, tmp_path: Path, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """`export` loads a folder itself; a checkpoint that is given is float32 throughout."""
    source = request.getfixturevalue(kind)
    one = export(source, tmp_path / "one", **{"verify": False, **options})
    other = export(load_checkpoint(source), tmp_path / "other", **{**options, "verify": False})
    assert contents(one) == contents(other)


def test_a_base_is_known_by_its_numbers(tmp_path: Path) -> None:
    """Its hash, which a checkpoint records, is that of the weights in float32."""
    folder = write_hf(tmp_path / "base", toy_checkpoint(tmp_path).model.half())
    half = load_base(folder, half=True)
    assert {tensor.dtype for name, tensor in half.state.items() if "_proj" in name} == {torch.float16}
    assert half.sha256 == load_base(folder).sha256


def test_changes_to_a_base_widen_it(tmp_path: Path) -> None:
    toy = toy_checkpoint(tmp_path)
    base = write_hf(tmp_path / "base", toy.model.half())
    name, weight = next((n, w) for n, w in toy.model.base.state_dict().items() if n.endswith("q_proj.weight"))
    change = torch.full_like(weight, 2**-14, dtype=torch.float32)  # below what 16 bits resolve
    folder = save(
        tmp_path / "changed",
        toy.model.float(),
        base={"kind": "path", "path": str(base), "sha256": load_base(base).sha256},
        base_delta={f"{name}.delta": change},
    )
    whole, half = load_checkpoint(folder).model, load_checkpoint(folder, half=True).model
    assert torch.equal(half.base.state_dict()[name], whole.base.state_dict()[name])
    assert half.base.state_dict()[name].dtype == torch.float32
