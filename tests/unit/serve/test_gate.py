"""Access by host name, page and key; and limits for clients that are slow or never finish."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.places import PATIENCE
from helpers.serving import Running, question, serving, until
from helpers.toys.chat_models import toy_model

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.serve import bodies
from hamburger_edge.serve.gate import Access, Gate, is_local, read_keys
from hamburger_edge.serve.requests import RequestLimits

KEY = "a-key-of-many-characters"
FRIEND = "https://friend.example"
SMALL = RequestLimits(body=2000, body_seconds=0.5)


@pytest.fixture(scope="module")
def running(tokenizer: Tokenizer) -> Iterator[Running]:
    access = Access.of("127.0.0.1", names=["edge.local"], origins=[FRIEND])
    with serving(lambda: toy_model(tokenizer), access=access, limits=SMALL) as server:
        yield server


def raw(running: Running, *parts: bytes, pause: float = 0, shut: bool = False) -> bytes:
    """Send raw bytes and return the response until the server hangs up."""
    said = b""
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        if shut:
            connection.shutdown(socket.SHUT_WR)
        while not said.endswith(b"}}") and (received := connection.recv(65536)):
            said += received
    return said


def head(length: object, *more: str) -> bytes:
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("LOCALHOST:9999", True),
        ("[::1]:80", True),
        ("edge.local", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("10.0.0.5", False),  # an address, but the server listens to this machine alone
        ("", False),
        # some releases of Starlette read the path of a request from these, and so whether it needs a key
        ("localhost:/health?", False),
        ("localhost:80/health#", False),
        ("localhost:x", False),
        ("[::1]x", False),
        ("a@localhost", False),
    ],
)
def test_host_header_must_be_a_known_name(host: str, known: bool) -> None:
    names = ["edge.local", "a@localhost"]
    assert Access.of("127.0.0.1", names=names).knows(host) == known
    assert Access.of("0.0.0.0", names=names).knows(host) == (known or host == "10.0.0.5")


def test_names_of_this_machine_are_known() -> None:
    assert Access.of("0.0.0.0").knows(socket.gethostname())
    hosts = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "box")
    assert [host for host in hosts if is_local(host)] == ["127.0.0.1", "::1", "localhost"]


def test_two_host_headers_are_refused() -> None:
    """uvicorn refuses them itself, other servers may pass them on."""
    sent: list[MutableMapping[str, Any]] = []

    async def never(*_: object) -> Any:
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", name) for name in (b"localhost", b"evil.example")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""}
    asyncio.run(Gate(never, Access.of("127.0.0.1"), frozenset())(scope, never, send))
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "edge.local"}, 200),
        ({"host": "evil.example"}, 403),
        ({"origin": FRIEND}, 200),
        ({"origin": "http://localhost:1", "host": "localhost:1"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_origin_must_be_this_server_or_allowed(
    headers: dict[str, str], status: int, running: Running
) -> None:
    with running.client(headers=headers) as client:
        responses = client.get("/"), client.post("/v1/chat/completions", json=question())
    allowed = FRIEND if headers.get("origin") == FRIEND else None
    for response in responses:
        assert response.status_code == status
        assert response.headers.get("access-control-allow-origin") == allowed


def test_preflight_allows_requested_headers(running: Running) -> None:
    """A regression: extra headers of OpenAI's client were not allowed."""
    wanted = "authorization,content-type,x-stainless-os"
    asked = {"origin": FRIEND, "access-control-request-headers": wanted}
    with running.client(headers=asked) as client:
        response, answered = client.options("/v1/chat/completions"), client.get("/v1/models")
        assert client.options("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert (response.status_code, response.headers["access-control-allow-headers"]) == (204, wanted)
    assert answered.headers["access-control-expose-headers"] == "retry-after"


def test_content_types_of_forms_are_refused(running: Running) -> None:
    with running.client() as client:
        for kind in ("text/plain", ""):
            response = client.post("/v1/chat/completions", content=b"{}", headers={"content-type": kind})
            assert response.status_code == 415


def test_api_and_metrics_need_a_key(tokenizer: Tokenizer) -> None:
    access = Access.of("0.0.0.0", keys=[b"another-key-altogether", KEY.encode()])
    wrong = (f"Bearer {KEY[:-1]}", f"Basic {KEY}", KEY, "Bearer", "Bearer \xff")
    with serving(lambda: toy_model(tokenizer), access=access) as running, running.client() as client:

        def status(path: str, authorization: str) -> int:
            return client.get(path, headers={"authorization": authorization.encode("latin-1")}).status_code  # type: ignore[arg-type]

        for path in ("/", "/page.js", "/health"):
            assert [client.get(path).status_code, status(path, "Bearer")] == [200, 200]
        for path in ("/v1/models", "/metrics", "/other"):
            refused = client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert {status(path, given) for given in wrong} == {401}
            assert status(path, f"Bearer {KEY}") == (404 if path == "/other" else 200)


def test_key_is_compared_as_bytes() -> None:
    """A key beyond ASCII was never taken, and one that ends like a Latin-1 space lost its end."""
    key = "schlüssel-zur-küche-voilà".encode()
    access = Access.of("0.0.0.0", keys=[key])
    assert access.owner(f"Bearer {key.decode('latin-1')}") == "0"
    assert access.owner(f"Bearer {key[:-1].decode('latin-1')}") is None


def test_key_file_holds_one_long_key_per_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n\n  {KEY[::-1]}  \n")
    assert read_keys(str(file)) == [KEY.encode(), KEY[::-1].encode()]
    for content in ("", f"{KEY}\nshort\n"):
        file.write_text(content)
        with pytest.raises(InputError, match="16 characters"):
            read_keys(str(file))
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(str(tmp_path / "none"))


def test_pages_have_a_content_security_policy(running: Running) -> None:
    with running.client() as client:
        for path in ("/", "/page.css", "/page.js", "/parts.js", "/meter.js", "/icon.svg"):
            policy = client.get(path).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy


def test_too_large_body_is_refused(running: Running) -> None:
    large = b'{"messages": "' + b"x" * (10 << 20) + b'"}'
    parts = (large[start : start + 65536] for start in range(0, len(large), 65536))
    with running.client(headers={"content-type": "application/json"}) as client:
        for content in (large, parts):
            assert client.post("/v1/chat/completions", content=content).status_code == 413
        assert client.post("/v1/chat/completions", json=question()).status_code == 200
    assert raw(running, head(1 << 40)).startswith(b"HTTP/1.1 413")
    assert raw(running, head(1 << 20, "Expect: 100-continue")).startswith(b"HTTP/1.1 413")


def test_slow_or_incomplete_body_is_refused(running: Running) -> None:
    assert raw(running, head(100), b"{").startswith(b"HTTP/1.1 408")
    assert raw(running, head(100), *[b"{"] * 8, pause=0.1).startswith(b"HTTP/1.1 408")
    assert raw(running, head(100), b"{", shut=True).startswith(b"HTTP/1.1 400")


@contextmanager
def pages_unread(running: Running, count: int) -> Iterator[socket.socket]:
    """A client that asks for the same page again and again, and takes nothing of it so far."""
    asked = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    [listening] = running.server.servers[0].sockets
    usual = listening.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as client:
        client.settimeout(60)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", running.port))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, usual // 2)
        client.sendall(asked * (count - 1) + asked.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        until(lambda: any(each.flow.write_paused for each in running.server.server_state.connections))
        yield client


def all_of(client: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionResetError):
        while received := client.recv(65536):
            said += received
    return said


def test_client_that_does_not_read_is_disconnected(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a client held its connection for ever, and enough of them the server."""
    monkeypatch.setattr(bodies, "WRITE_SECONDS", 0.2)
    with pages_unread(running, 20) as client:
        until(lambda: not running.server.server_state.connections)
        assert all_of(client).count(b"HTTP/1.1 200") < 20
    assert running.ask().status_code == 200


def test_client_that_reads_late_gets_all_pages(running: Running) -> None:
    with running.client() as client:
        page = client.get("/page.js").content
    with pages_unread(running, 20) as late:
        assert all_of(late).count(page) == 20


def test_invalid_headers_are_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert raw(running, b"rubbish\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(running, head("-5")).startswith(b"HTTP/1.1 400")
    assert raw(running, b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 4")
    monkeypatch.setattr(bodies, "HEADER_SECONDS", 0.2)
    assert raw(running, b"GET / HT") == b""
    assert running.ask().status_code == 200
