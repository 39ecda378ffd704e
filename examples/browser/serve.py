"""Serves the page, the package that it imports, and bundles: python serve.py FOLDER_OF_BUNDLES [--port N]

Nothing is looked up by what a request says: all addresses stand in one table, made at the start.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "runtimes" / "javascript"
PAGE = {
    "/": HERE / "index.html",
    "/page.js": HERE / "page.js",
    "/worker.js": HERE / "worker.js",
    "/own.css": HERE / "own.css",
    "/page.css": ROOT / "serve" / "page" / "page.css",  # as the server's page looks
    "/parts.js": ROOT / "serve" / "page" / "parts.js",
    "/icon.svg": ROOT / "serve" / "page" / "icon.svg",
}
# Where browsers find what modules import by name: workers know no import maps, and there is no build step.
NAMES = {
    "hamburger-edge/web": "/hamburger-edge/adapters/onnxruntime-web.js",
    "@huggingface/tokenizers": "/packages/@huggingface/tokenizers/dist/tokenizers.min.mjs",
    "@mlc-ai/web-xgrammar": "/packages/@mlc-ai/web-xgrammar/lib/index.js",
    "onnxruntime-web/wasm": "/packages/onnxruntime-web/dist/ort.wasm.bundle.min.mjs",
    "onnxruntime-web/webgpu": "/packages/onnxruntime-web/dist/ort.webgpu.bundle.min.mjs",
}
LOADED = ("ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.asyncify.wasm")  # by those two
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
HEADERS = {
    # The first two make the page cross-origin isolated: threads of WebAssembly need it.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def addresses(bundles: dict[str, Path]) -> dict[str, Path]:
    """Every address, and the file that it stands for."""
    found = dict(PAGE)
    for path in sorted(PACKAGE.rglob("*.js")):
        if path.relative_to(PACKAGE).parts[0] not in ("node_modules", "tests"):
            found[f"/hamburger-edge/{path.relative_to(PACKAGE).as_posix()}"] = path
    packages = [name for name in NAMES.values() if name.startswith("/packages/")]
    for name in (*packages, *(f"/packages/onnxruntime-web/dist/{name}" for name in LOADED)):
        found[name] = PACKAGE / "node_modules" / name.removeprefix("/packages/")
    for bundle_name, bundle in bundles.items():
        manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
        for name in ("manifest.json", *(entry["path"] for entry in manifest["files"])):
            found[f"/bundles/{bundle_name}/{name}"] = bundle / name
    return found


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bundles: dict[str, Path], port: int = 0) -> None:
        self.files = addresses(bundles)
        self.listing = json.dumps(list(bundles)).encode()
        super().__init__(("127.0.0.1", port), Handler)
        self.hosts = [f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")]
        self.url = f"http://{self.hosts[0]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.server.files.get(self.path)
        if self.headers["Host"] not in self.server.hosts:  # a name that somebody has pointed here
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.path == "/bundles.json":
            self._begin(".json", len(self.server.listing))
            self.wfile.write(self.server.listing)
        elif path is None or not path.is_file():
            self._refuse(HTTPStatus.NOT_FOUND)
        elif path.suffix == ".js":
            text = path.read_text(encoding="utf-8")
            for name, address in NAMES.items():
                text = text.replace(f'"{name}"', f'"{address}"')
            self._begin(path.suffix, len(text.encode()))
            self.wfile.write(text.encode())
        else:
            with path.open("rb") as file:
                self._begin(path.suffix, path.stat().st_size)
                shutil.copyfileobj(file, self.wfile)

    def _begin(self, suffix: str, length: int, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", KINDS.get(suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(length))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        self._begin("", 0, status)

    def log_message(self, format: str, *words: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the page and the bundles of a folder.")
    parser.add_argument("folder", type=Path, help="whose folders are bundles of ONNX graphs")
    parser.add_argument("--port", type=int, default=8090)
    options = parser.parse_args()
    found = sorted(path.parent for path in options.folder.glob("*/manifest.json"))
    bundles = {folder.name: folder for folder in found}
    if not bundles:
        folder = options.folder
        sys.exit(f"error: {folder}: no bundles: make one with  hamburger-edge export tiny -o {folder}/tiny")
    if not (PACKAGE / "node_modules" / "onnxruntime-web").is_dir():
        sys.exit(f"error: packages are missing: run  npm install --ignore-scripts --prefix {PACKAGE}")
    try:
        server = Server(bundles, options.port)
    except OSError as error:
        sys.exit(f"error: port {options.port}: {error.strerror}: choose another with --port")
    print(f"{', '.join(bundles)} at {server.url}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
