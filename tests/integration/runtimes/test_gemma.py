"""A base of Gemma's shape says in every runtime what PyTorch says, for several windows of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toy_bundles import MERGING_GEMMA as SHAPE
from toy_bundles import toy_checkpoint

from hamburger_edge import Model
from hamburger_edge import export_checkpoint as export
from hamburger_edge import load as open_model
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import BundleError, ConfigError
from hamburger_edge.loop.dial import Mode
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

PROMPT = "the cat sat on the mat, and the hat"
MODES: tuple[tuple[Mode, float], ...] = (("plain", 1.0), ("merge", 0.2), ("verify", 0.3), ("hybrid", 0.6))


@contextmanager
def reference(folder: Path, **changes: object) -> Iterator[Model]:
    checkpoint = toy_checkpoint(folder, **changes)  # type: ignore[arg-type]
    template = ChatTemplate.from_json(checkpoint.chat_template)
    with Model(TorchBackend(checkpoint.model), Tokenizer(checkpoint.tokenizer), template) as model:
        yield model


@pytest.mark.parametrize(
    "others", [{}, {"flavor": "portable", "position_rule": "slot"}], ids=["token", "portable-slot"]
)
def test_every_mode_says_the_same_as_pytorch(
    others: dict[str, str], bundles: Callable[..., Path], tmp_path: Path
) -> None:
    weights = {**SHAPE, **{name: value for name, value in others.items() if name != "flavor"}}
    with (
        open_model(bundles(**SHAPE, **others), threads=1) as ours,
        reference(tmp_path, **weights) as theirs,
    ):
        for mode, confidence in MODES:
            got, want = (
                model.generate(PROMPT, mode=mode, confidence=confidence, max_tokens=60, ignore_eos=True)  # type: ignore[call-arg]
                for model in (ours, theirs)
            )
            assert got.groups == want.groups
            assert got.stats.slots == want.stats.slots > 3 * SHAPE["window"]
            assert any(len(group) > 1 for group in got.groups) == (mode in ("merge", "hybrid"))


def test_a_saved_conversation_goes_on_beyond_its_window(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """Its cache has 8 bits, and windows."""
    bundle = bundles(precision="int8", **SHAPE)
    assert load_manifest(bundle).kv.dtype == "int8"
    with open_model(bundle, threads=1) as model:
        chat = model.chat(mode="merge", confidence=0.2, max_tokens=40)
        list(chat.send(PROMPT))
        assert len(chat.groups) > 3 * SHAPE["window"]
        chat.save(tmp_path / "saved")
        went_on = [chunk.tokens for chunk in chat.send("And then?")]
    with open_model(bundle, threads=1) as model:
        chat = model.resume(tmp_path / "saved")
        assert [chunk.tokens for chunk in chat.send("And then?")] == went_on


def test_llama_cpp_is_refused_by_name(bundles: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", **SHAPE)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"normalises queries and keys.*not written to GGUF: .* onnx  inst"):
        export(checkpoint, tmp_path / "bundle", formats=("gguf",))
    assert not (tmp_path / "bundle").exists()
    with pytest.raises(BundleError, match="holds no GGUF files"):
        open_model(bundles(precision="int8", **SHAPE), "llamacpp")
