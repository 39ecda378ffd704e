"""A bundle stores the rotations of as many positions as it is for, and says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from toy_bundles import ONE_LAYER, save_toy, toy_checkpoint

import hamburger_edge
from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import ContextFullError, InputError, ParityError
from hamburger_edge.export.options import ExportOptions
from hamburger_edge.export.parity.gate import verify
from hamburger_edge.export.pipeline import _for_context

WIDTH = 8  # of a rotary table: half of a head


def tables(bundle: Path) -> list[int]:
    """Rows of the base's rotary tables."""
    graph = onnx.load(bundle / "base.onnx", load_external_data=False).graph
    return [int(t.dims[0]) for t in graph.initializer if list(t.dims[1:]) == [WIDTH]]


def test_a_shorter_bundle_says_the_same_up_to_its_end(tmp_path: Path) -> None:
    """All 131,072 positions of a base were 33 MB of weights, whatever the bundle was for."""
    toy = toy_checkpoint(tmp_path / "toy", **ONE_LAYER)
    checkpoint = save_toy(tmp_path / "checkpoint", toy)
    short, long = (
        export(checkpoint, tmp_path / name, precision="fp32", context_length=positions, verify=False)
        for name, positions in (("short", 128), ("long", None))
    )
    assert load_manifest(short).model.context_length == 128
    assert load_manifest(long).model.context_length == 512
    assert tables(short) == [128, 128]
    assert tables(long) == [512, 512]
    saved = 2 * (512 - 128) * WIDTH * 4
    assert (long / "weights.bin").stat().st_size - (short / "weights.bin").stat().st_size == saved
    with hamburger_edge.load(short, threads=1) as ours, hamburger_edge.load(long, threads=1) as theirs:
        assert ours.generate("Hi", max_tokens=40).tokens == theirs.generate("Hi", max_tokens=40).tokens
        with pytest.raises(ContextFullError, match="has 128"):
            ours.generate([5] * 129)
    assert verify(short, checkpoint).identical
    another = toy_checkpoint(tmp_path / "another", context_length=64, **ONE_LAYER)
    shorter = save_toy(tmp_path / "less", another)
    with pytest.raises(ParityError, match="context_length is 128, the checkpoint's 64"):
        verify(short, shorter)


@pytest.mark.parametrize(
    ("rule", "options", "positions"),
    [
        ("token", {"flavor": "portable", "cache_slots": 64}, 256),  # groups of four in every slot
        ("slot", {"flavor": "portable", "cache_slots": 64}, 64),
        ("token", {"flavor": "portable"}, 512),
        ("token", {"flavor": "portable", "cache_slots": 64, "formats": ("onnx", "gguf")}, 512),
        ("slot", {"flavor": "portable", "context_length": 100}, 100),
        ("token", {"formats": ("gguf",), "context_length": 64}, 64),
    ],
)
def test_no_more_positions_than_the_cache_can_come_to(
    rule: str, options: dict[str, object], positions: int, tmp_path: Path
) -> None:
    checkpoint = toy_checkpoint(tmp_path / "toy", position_rule=rule)
    model = _for_context(checkpoint, ExportOptions(**options)).model  # type: ignore[arg-type]
    assert model.config.base.context_length == len(model.base_cos) == len(model.base_sin) == positions
    assert checkpoint.model.config.base.context_length == 512  # as it was
    np.testing.assert_array_equal(model.base_cos, checkpoint.model.base_cos[:positions])


@pytest.mark.parametrize(
    ("option", "wrong"), [("context_length", (0, 63, 513, "100")), ("cache_slots", (-5, 0, 16, 10**9))]
)
def test_a_length_that_cannot_be_is_refused(option: str, wrong: tuple[object, ...], tmp_path: Path) -> None:
    toy = toy_checkpoint(tmp_path / "toy")
    for length in wrong:
        with pytest.raises(InputError, match=f"{option} must be a whole number, 64 or more and at most 512"):
            export(toy, tmp_path / "m", flavor="portable", **{option: length})
    assert not (tmp_path / "m").exists()
