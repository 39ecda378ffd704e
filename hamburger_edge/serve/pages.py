"""Routes of the page files, from one table of URL paths. The web page is read at the start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
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
    own, pages = {"content-security-policy": _POLICY}, []
    for address, name in ADDRESSES.items():
        pages.append(Route(address, _sending(PAGE / name, own, (PAGE / name).read_bytes())))
    for address, path in {**in_browser.code, **in_browser.files}.items():
        content = script(path, in_browser.code) if path.suffix == ".js" else None
        pages.append(Route(address, _sending(path, HEADERS, content)))
    return pages


def _sending(path: Path, headers: Mapping[str, str], content: bytes | None) -> _Endpoint:
    """Return an endpoint that sends this content, or the file if it is None."""
    kind = KINDS.get(path.suffix, "application/octet-stream")

    async def send(request: Request) -> Response:
        if content is None:
            return FileResponse(path, media_type=kind, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return send
