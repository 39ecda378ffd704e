"""Serve the page, its JavaScript package and bundles: python serve.py FOLDER_OF_BUNDLES [--port N]"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hamburger_edge import HamburgerError
from hamburger_edge.serve.browser import HEADERS, KINDS, PAGE, bundle_files, code, script

PACKAGE = Path(__file__).resolve().parents[2] / "runtimes" / "javascript"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bundles: dict[str, Path], port: int = 0) -> None:
        self.files = {
            **code(PACKAGE),
            "/": PAGE / "browser.html",
            **{f"/{name}": PAGE / name for name in ("page.css", "parts.js", "icon.svg")},
            **bundle_files(bundles),
        }
        self.listing = json.dumps(list(bundles)).encode()
        super().__init__(("127.0.0.1", port), Handler)
        self.hosts = [f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")]
        self.url = f"http://{self.hosts[0]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.server.files.get(self.path)
        if self.headers["Host"] not in self.server.hosts:  # refuse other names: DNS rebinding
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.path == "/bundles.json":
            self._begin(".json", len(self.server.listing))
            self.wfile.write(self.server.listing)
        elif path is None or not path.is_file():
            self._refuse(HTTPStatus.NOT_FOUND)
        elif path.suffix == ".js":
            content = script(path)
            self._begin(path.suffix, len(content))
            self.wfile.write(content)
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
    try:
        server = Server(bundles, options.port)
    except HamburgerError as error:
        sys.exit(f"error: {error}")
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
