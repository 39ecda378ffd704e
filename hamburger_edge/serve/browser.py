"""Files for running a model in the browser: the page, the JavaScript packages, and the bundles.

A table built at the start maps each URL path to a file. No file path is derived from a request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import InputError

PAGE = Path(__file__).resolve().parent / "page"
# Module name -> URL path. `script` replaces the names, because web workers do not support import maps and
# there is no build step.
NAMES = {
    "hamburger-edge": "/hamburger-edge/index.js",
    "hamburger-edge/web": "/hamburger-edge/adapters/onnxruntime-web.js",
    "@huggingface/tokenizers": "/packages/@huggingface/tokenizers/dist/tokenizers.min.mjs",
    "@mlc-ai/web-xgrammar": "/packages/@mlc-ai/web-xgrammar/lib/index.js",
    "onnxruntime-web/wasm": "/packages/onnxruntime-web/dist/ort.wasm.bundle.min.mjs",
    "onnxruntime-web/webgpu": "/packages/onnxruntime-web/dist/ort.webgpu.bundle.min.mjs",
}
OWN = ("browser.js", "browser.css", "worker.js", "service-worker.js", "app.webmanifest")
SHARED = ("/page.css", "/parts.js", "/icon.svg")  # with the server's page
FOR_GPUS = ("webgpu", "asyncify")  # in names of files that only WebGPU loads: large, and not kept
_IMPORTED = re.compile(r'(\bfrom\s*|\bimport\s*\(?\s*)"([^"\n]+)"')
LOADED = ("ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.asyncify.wasm")  # loaded by onnxruntime-web
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",
}
HEADERS = {
    # The first two make the page cross-origin isolated, which WebAssembly threads require.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class InBrowser:
    """The files that a server offers for running models in the browser."""

    code: Mapping[str, Path]  # URL path -> file of the page or a package
    files: Mapping[str, Path]  # URL path -> file of a bundle
    names: Sequence[str]  # of bundles

    @classmethod
    def of(cls, package: Path, bundles: Mapping[str, Path]) -> InBrowser:
        return cls(code(package), bundle_files(bundles), list(bundles))


NOTHING = InBrowser({}, {}, [])


def code(package: Path) -> dict[str, Path]:
    """Return URL path -> file for the page and its imports.

    `package` is the folder of our JavaScript package, with its installed `node_modules`.
    """
    installed = package / "node_modules"
    if not (installed / "onnxruntime-web").is_dir():
        raise InputError(f"{package}: lacks packages: run  npm install --ignore-scripts --prefix {package}")
    paths = {"/browser": PAGE / "browser.html"}
    paths |= {f"/{name}": PAGE / name for name in OWN}
    for path in sorted(package.rglob("*.js")):
        if path.relative_to(package).parts[0] not in ("node_modules", "tests"):
            paths[f"/hamburger-edge/{path.relative_to(package).as_posix()}"] = path
    packages = [name for name in NAMES.values() if name.startswith("/packages/")]
    for name in (*packages, *(f"/packages/onnxruntime-web/dist/{name}" for name in LOADED)):
        paths[name] = installed / name.removeprefix("/packages/")
    return {address: path for address, path in paths.items() if path.is_file()}


def bundle_files(bundles: Mapping[str, Path]) -> dict[str, Path]:
    """Return URL path -> file for each bundle: its manifest and the files that the manifest lists."""
    paths = {}
    for name, folder in bundles.items():
        manifest = load_manifest(folder)
        check_files(folder, manifest)
        for file in (FILE_NAME, *(entry.path for entry in manifest.files)):
            paths[f"/bundles/{name}/{file}"] = folder / file
    return paths


def kept(addresses: Iterable[str]) -> list[str]:
    """Return the URL paths that the page's service worker keeps, so that the page works without a network."""
    return sorted(path for path in {*addresses, *SHARED} if not any(name in path for name in FOR_GPUS))


def script(path: Path, addresses: Iterable[str] = ()) -> bytes:
    """Return a module's text with imported names replaced by URL paths.

    In the service worker `addresses` are the page's files.
    """
    text = path.read_text(encoding="utf-8")
    text = _IMPORTED.sub(lambda match: f'{match[1]}"{NAMES.get(match[2], match[2])}"', text)
    return text.replace('["@kept"]', json.dumps(kept(addresses))).encode()
