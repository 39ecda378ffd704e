"""Routes of the page files, from one table of URL paths. The web page is read at the start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from hamburger_edge.serve.browser import HEADERS, KINDS, PAGE, InBrowser, script

ADDRESSES = {
    "/": "index.html",
    **{f"/{name}": name for name in ("page.css", "page.js", "parts.js", "meter.js", "icon.svg")},
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

_Endpoint = Callable[[Request], Awaitable[Response]]


def routes(in_browser: InBrowser) -> list[Route]:
    offered = {**in_browser.code, **in_browser.files}
    return [
        *(Route(address, _of_the_page(PAGE / name)) for address, name in ADDRESSES.items()),
        *(Route(address, _in_browser(path, in_browser.code)) for address, path in offered.items()),
    ]


def _of_the_page(path: Path) -> _Endpoint:
    content = path.read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=KINDS[path.suffix], headers={"content-security-policy": _POLICY})

    return send


def _in_browser(path: Path, code: Iterable[str]) -> _Endpoint:
    kind = KINDS.get(path.suffix, "application/octet-stream")
    content = script(path, code) if path.suffix == ".js" else None

    async def send(request: Request) -> Response:
        if content is None:
            return FileResponse(path, media_type=kind, headers=HEADERS)
        return Response(content, media_type=kind, headers=HEADERS)

    return send
