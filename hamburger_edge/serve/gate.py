"""Check Host, Origin and API key of each request, and add security headers to each response.

A page of another site can make a browser send requests to this server. With DNS rebinding the browser even
treats them as same-origin. So the gate checks the Host header (the server's name) and the Origin header (the
page that sends the request).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hamburger_edge.errors import InputError
from hamburger_edge.serve import answers
from hamburger_edge.serve.fields import RefusedError
from hamburger_edge.support.files import read_regular

SHORTEST_KEY = 16
_HOST = re.compile(r"(\[(?P<address>[^\[\]]*)\]|(?P<name>[^:/?#@\[\]]*))(:\d*)?")
_OPEN = {"/", "/health"}  # paths that need no key, besides the page's files
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """The permitted hosts, origins and API keys."""

    hosts: frozenset[str]  # names of this server
    any_address: bool  # also accept any IP address, which DNS rebinding cannot use
    origins: frozenset[str]  # permitted pages of other sites; "*" for all
    keys: tuple[bytes, ...]  # empty: no key needed

    @classmethod
    def of(
        cls, host: str, *, names: Sequence[str] = (), origins: Sequence[str] = (), keys: Sequence[bytes] = ()
    ) -> Access:
        known = {"localhost", "127.0.0.1", "::1", *(name.lower() for name in names)}
        local = is_local(host)
        if not local:
            known |= {host.lower(), socket.gethostname().lower()}
        return cls(frozenset(known), not local, frozenset(origins), tuple(keys))

    def knows(self, host: str) -> bool:
        """Check a Host header and ignore its port, because a tunnel may use another port."""
        match = _HOST.fullmatch(host.lower())
        name = "" if match is None else match["name"] or match["address"]
        return name in self.hosts or (self.any_address and _address(name) is not None)

    def allows_origin(self, origin: str, host: str) -> bool:
        return origin in self.origins or "*" in self.origins or origin.partition("://")[2] == host

    def owner(self, authorization: str) -> str | None:
        """Return the given key's index as text, "" if no key is needed, or None if the key is wrong.

        Compare all keys, each in constant time.
        """
        if not self.keys:
            return ""
        scheme, _, given = authorization.partition(" ")
        given_key = given.encode("latin-1").strip()  # the raw bytes: headers are decoded as latin-1
        equal = [hmac.compare_digest(key, given_key) for key in self.keys]
        return str(equal.index(True)) if scheme.lower() == "bearer" and any(equal) else None


def is_local(host: str) -> bool:
    address = _address(host.strip("[]"))
    return host == "localhost" or (address is not None and address.is_loopback)


def read_keys(path: str) -> list[bytes]:
    """Read a key file with one key per line."""
    try:
        lines = read_regular(path, limit=1 << 20).split(b"\n")
    except OSError as error:
        raise InputError(
            f"--api-key-file {path}: cannot be read ({error.strerror}): name a file with a key in each line"
        ) from error
    keys = [line.strip() for line in lines if line.strip()]
    if not keys or min(map(len, keys)) < SHORTEST_KEY:
        raise InputError(
            f"--api-key-file {path}: must hold a key of at least {SHORTEST_KEY} characters in each line"
        )
    return keys


class Gate:
    """ASGI middleware: refuse a request, or set `owner` in its state and call the application."""

    def __init__(self, app: ASGIApp, access: Access, open_paths: frozenset[str]) -> None:
        self.app, self.access, self.open = app, access, _OPEN | open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if origin is not None and ({origin, "*"} & self.access.origins):
                    headers["access-control-allow-origin"] = origin
                    headers["access-control-expose-headers"] = "retry-after"
                    headers["vary"] = "Origin"
                    headers["cross-origin-resource-policy"] = "cross-origin"
            await send(message)

        try:
            response = self._check(Request(scope), headers, origin)
        except RefusedError as refused:
            response = refusal(refused)
        if response is None:
            await self.app(scope, receive, sending)
        else:
            await response(scope, receive, sending)

    def _check(self, request: Request, headers: Headers, origin: str | None) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise RefusedError("a request needs one Host header")
        if not self.access.knows(hosts[0]):
            raise RefusedError(
                f"this server is not known as {hosts[0]!r:.100}: start it with  --allow-host NAME", status=403
            )
        if origin is not None and not self.access.allows_origin(origin, hosts[0]):
            raise RefusedError(
                f"pages of {origin!r:.100} may not ask this server: start it with  --cors ORIGIN", status=403
            )
        if request.method == "OPTIONS" and origin is not None:
            allowed = {
                "access-control-allow-methods": "GET, POST",
                # allow all headers: clients like OpenAI's add their own, and the origin is already checked
                "access-control-allow-headers": headers.get("access-control-request-headers", ""),
                "access-control-max-age": "600",
            }
            return Response(status_code=204, headers=allowed)
        owner = self.access.owner(headers.get("authorization", ""))
        if owner is None and request.scope["path"] not in self.open:
            raise RefusedError(
                "the key is missing or wrong: send the header  Authorization: Bearer KEY",
                status=401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        request.state.owner = owner or ""
        return None


def refusal(refused: RefusedError) -> Response:
    body = answers.encoded(answers.error(refused))
    return Response(body, refused.status, headers=refused.headers, media_type="application/json")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
