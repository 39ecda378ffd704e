"""A checkpoint becomes a bundle or nothing, and what is there already is safe."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from exports import export
from places import environment
from toy_bundles import CHANGES, ONE_LAYER, toy_checkpoint

from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.runtimes.onnx.onnx_backend import open_bundle


def test_targets_that_are_taken(bundles: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint")
    taken = tmp_path / "taken"
    shutil.copytree(bundles(**CHANGES), taken)
    with pytest.raises(InputError, match="--force"):
        export(checkpoint, taken)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not a bundle"):
        export(checkpoint, other, force=True)
    assert (other / "letter.txt").read_text() == "dear"
    (other / "manifest.json").write_text('{"name": "of a browser extension", "manifest_version": 3}')
    with pytest.raises(InputError, match="not a bundle"):
        export(checkpoint, other, force=True)
    (taken / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt, which exporting would delete"):
        export(checkpoint, taken, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "other", "taken"]


def test_only_its_own_leftovers_are_cleared_and_a_link_goes_on_pointing(tmp_path: Path) -> None:
    mine, another, odd = (tmp_path / f".{name}.0123abcd.partial" for name in ("m", "m.int4", "[m]"))
    for folder in (mine, another, odd):
        folder.mkdir()
    checkpoint = toy_checkpoint(tmp_path / "toy", **ONE_LAYER)
    export(checkpoint, tmp_path / "m", formats=["gguf"], precision="f32", verify=False)
    assert not mine.exists()
    assert another.exists()
    assert odd.exists()
    first = load_manifest(tmp_path / "m").gguf_fingerprint
    (tmp_path / "current").symlink_to("m")
    export(checkpoint, tmp_path / "current", formats=["gguf"], precision="f16", verify=False, force=True)
    assert (tmp_path / "current").is_symlink()
    assert load_manifest(tmp_path / "m").gguf_fingerprint != first


def test_a_head_size_the_operator_cannot_take_is_refused(tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", head_dim=12, position_rule="slot")
    with pytest.raises(ConfigError, match=r"12.*--flavor portable"):
        export(checkpoint, tmp_path / "bundle", precision="fp32")


def test_two_exports_to_one_place_do_not_mix(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """Started together: one of them makes the bundle, the other is told that it exists."""
    script = tmp_path / "one.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from toy_bundles import toy_checkpoint\n"
        "from hamburger_edge.errors import InputError\n"
        "from hamburger_edge import export_checkpoint as export\n"
        "checkpoint = toy_checkpoint(Path(sys.argv[1]), num_layers=1, micro_layers=1, taps=(0,))\n"
        "try:\n"
        "    export(checkpoint, sys.argv[2], precision='fp32', verify=False)\n"
        "    print('made')\n"
        "except InputError as error:\n"
        "    print('refused' if '--force' in str(error) else error)\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, script, tmp_path / f"checkpoint{number}", tmp_path / "bundle"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(OMP_NUM_THREADS="1"),
        )
        for number in range(2)
    ]
    said = sorted(process.communicate()[0].strip() for process in both)
    assert said == ["made", "refused"]
    open_bundle(tmp_path / "bundle", verify=True)[0].close()
