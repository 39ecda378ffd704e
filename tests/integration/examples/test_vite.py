"""The example that Vite builds answers in a browser, with one file of WebAssembly."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.browsing import browsing, needs_browser, site
from helpers.nodejs import JAVASCRIPT, NODE, PACKAGES, needs_packages
from helpers.places import ROOT

from hamburger_edge.loading import find_bundle

pytestmark = [
    needs_browser,
    needs_packages,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PACKAGES / "vite").exists(),
        reason="vite is missing: cd runtimes/javascript && npm install --ignore-scripts",
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with `tiny` as its bundle."""
    app = tmp_path_factory.mktemp("vite") / "app"
    source = ROOT / "examples" / "vite"
    shutil.copytree(source, app, ignore=shutil.ignore_patterns("node_modules", "dist", "public"))
    shutil.copytree(find_bundle("tiny"), app / "public" / "my-bundle")
    (app / "node_modules").mkdir()
    for name, place in (("hamburger-edge", JAVASCRIPT), ("vite", PACKAGES / "vite")):
        (app / "node_modules" / name).symlink_to(place.resolve())
    vite = [str(NODE), "node_modules/vite/bin/vite.js", "build"]
    subprocess.run(vite, cwd=app, check=True, capture_output=True, timeout=600)
    return app / "dist"


def test_build_holds_one_webassembly_file(built: Path) -> None:
    """Without the alias it also holds WebGPU's, of 27 MB."""
    [webassembly] = built.rglob("ort-*.wasm")
    assert 10e6 < webassembly.stat().st_size < 20e6


def test_built_page_answers(built: Path) -> None:
    with site(built) as address, browsing() as browser:
        browser.driver.get(address)
        browser.until(lambda: browser.find("button").is_enabled())
        browser.find("input").send_keys("What is the capital of Norway?", "\ue007")
        browser.until(lambda: browser.find("#answer").text == "The capital of Norway is Oslo.")
        assert not [line for line in browser.complaints() if "favicon" not in line]
