"""Serve the page, its JavaScript package and bundles: python serve.py BUNDLE... [--port N]"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hamburger_edge import HamburgerError
from hamburger_edge.loading import find_bundle
from hamburger_edge.serve.browser import HEADERS, KINDS, PAGE, SHARED, bundle_files, code, script
from hamburger_edge.support.terminal import ProgressBar

PACKAGE = Path(__file__).resolve().parents[2] / "runtimes" / "javascript"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bundles: dict[str, Path], port: int = 0) -> None:
        page = {**code(PACKAGE), "/": PAGE / "browser.html"}
        page |= {path: PAGE / path.removeprefix("/") for path in SHARED}
        self.page = list(page)  # files that the browser caches for use without a network
        self.files = {**page, **bundle_files(bundles)}
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
            content = script(path, self.server.page)
            self._begin(path.suffix, len(content))
            self.wfile.write(content)
        else:
            self._send(path)

    def _send(self, path: Path) -> None:
        """Send a file, from the byte on that a broken download asks for."""
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        start = int(asked[1]) if asked else 0
        if start >= max(size, 1):
            self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        with path.open("rb") as file:
            file.seek(start)
            if asked:
                place = {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
                self._begin(path.suffix, size - start, HTTPStatus.PARTIAL_CONTENT, place)
            else:
                self._begin(path.suffix, size)
            shutil.copyfileobj(file, self.wfile)

    def _begin(
        self,
        suffix: str,
        length: int,
        status: HTTPStatus = HTTPStatus.OK,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", KINDS.get(suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(length))
        for name, value in {**HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        self._begin("", 0, status)

    def log_message(self, format: str, *words: object) -> None:
        pass


def bundles_of(names: list[str]) -> dict[str, Path]:
    """Return name -> folder. A built-in model is assembled first, at int8, which browsers compute fast."""
    found = {}
    with ProgressBar() as progress:
        for name in names:
            found[Path(name).resolve().name] = find_bundle(name, progress=progress)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Serve the page and models that run in it.", allow_abbrev=False
    )
    parser.add_argument("bundle", nargs="+", help="folder of a bundle of ONNX graphs, or a built-in model")
    parser.add_argument("--port", type=int, default=8090)
    options = parser.parse_args()
    try:
        bundles = bundles_of(options.bundle)
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
