"""The example for React Native runs in Node.js: download, resume, hashes, load, ask, free."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.nodejs import PACKAGES, needs_node, node
from helpers.places import PROGRAMS, ROOT
from helpers.toys.toy_bundles import CHANGES

import hamburger_edge

APP = ROOT / "examples" / "react-native"
PROMPT = "Name a fruit."
PIECE = 4 << 20  # as in bundle.js

pytestmark = needs_node


def test_app_passes_the_type_checker() -> None:
    node(PACKAGES / "typescript" / "bin" / "tsc", "-p", APP / "tsconfig.json")
    node(PACKAGES / "esbuild" / "bin" / "esbuild", "--loader:.jsx=jsx", "--log-level=error", APP / "App.jsx")


@pytest.mark.slow
def test_app_resumes_verifies_answers_and_frees(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """The bundle has weights of three pieces; the connection breaks after the first."""
    bundle = bundles(**CHANGES, hidden_size=512, intermediate_size=2048)
    size = (bundle / "weights.bin").stat().st_size
    assert size > 2 * PIECE
    report = json.loads(node(PROGRAMS / "phone_app.mjs", bundle, tmp_path / "store", PROMPT))
    assert re.match(
        r"FetchError: .*weights.bin: the connection broke .* it goes on from there", report["broken"]
    )
    assert re.match(r"BundleError: .*weights.bin: its content differs from the manifest's", report["damaged"])
    starts = list(range(0, size, PIECE))
    assert report["requests"] == [
        0,
        PIECE,
        *starts[1:],
    ]  # the second piece is asked for again, the first is not
    assert report["refetched"] == starts  # the damaged file was deleted
    assert report["progress"] == [report["progress"][1]] * 2
    assert report["second"] == []
    with hamburger_edge.load(bundle, threads=1) as model:
        expected = model.generate(PROMPT, max_tokens=200).text
    assert report["answer"] == report["offline"] == "".join(report["pieces"])
    assert re.sub("\ufffd+", "\ufffd", report["answer"]) == re.sub("\ufffd+", "\ufffd", expected)
    assert len(report["files"]) == 2  # the manifest and one version's folder
