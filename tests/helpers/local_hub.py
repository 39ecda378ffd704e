"""A model hub on this machine, as much of one as the hub's own client asks for."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

# revision -> commit; commit -> file -> content
Revisions, Commits = dict[str, str], dict[str, dict[str, bytes]]


class LocalHub:
    """One repository, Org/Name-1.5. `asked` lists the paths of all requests. Each push becomes a commit
    with its message."""

    def __init__(self, revisions: Revisions, commits: Commits) -> None:
        self.revisions, self.commits, self.asked = revisions, commits, list[str]()
        self.messages: dict[str, str] = {}

    def find(self, path: list[str]) -> tuple[str, bytes] | None:
        """Return the commit and the content of a path."""
        match path:
            case ["api", "models", "Org", "Name-1.5"]:
                return self.find([*path, "revision", "main"])
            case ["api", "models", "Org", "Name-1.5", "revision", revision]:
                commit = self.revisions.get(revision, revision)
                if commit in self.commits:
                    files = [{"rfilename": name} for name in self.commits[commit]]
                    facts = {
                        "id": "Org/Name-1.5",
                        "modelId": "Org/Name-1.5",
                        "sha": commit,
                        "siblings": files,
                    }
                    return commit, json.dumps(facts).encode()
            case ["Org", "Name-1.5", "resolve", revision, *name]:
                commit = self.revisions.get(revision, revision)
                content = self.commits.get(commit, {}).get("/".join(name))
                return None if content is None else (commit, content)
        return None

    def receive(self, path: list[str], body: bytes, address: str) -> dict[str, Any]:
        """Return the response to a POST request."""
        match path:
            case ["api", "repos", "create"]:
                asked = json.loads(body)
                return {"url": f"{address}/{asked['organization']}/{asked['name']}"}
            case ["api", "validate-yaml"]:
                return {"errors": [], "warnings": []}
            case ["api", "models", "Org", "Name-1.5", "preupload", _]:
                files = json.loads(body)["files"]
                modes = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]
                return {"files": modes}
            case ["api", "models", "Org", "Name-1.5", "commit", revision]:
                commit = hashlib.sha1(body).hexdigest()
                lines = [json.loads(line) for line in body.splitlines()]
                self.messages[commit] = lines[0]["value"]["summary"]
                added = [line["value"] for line in lines if line["key"] == "file"]
                before = self.commits.get(self.revisions.get(revision, ""), {})
                files = {each["path"]: base64.b64decode(each["content"]) for each in added}
                self.commits[commit] = before | files
                self.revisions[revision] = commit
                return {"commitUrl": f"{address}/Org/Name-1.5/commit/{commit}", "commitOid": commit}
        raise ValueError(f"nothing is posted to {path}")


@contextlib.contextmanager
def serving(hub: LocalHub) -> Iterator[str]:
    """Its address, while it is open."""

    class Handler(BaseHTTPRequestHandler):
        @property
        def parts(self) -> list[str]:
            return self.path.partition("?")[0].strip("/").split("/")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = hub.receive(self.parts, body, f"http://{self.headers['Host']}")
            self.send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        def do_GET(self) -> None:
            hub.asked.append(self.path)
            if found := hub.find(self.parts):
                commit, content = found
                tag = hashlib.sha256(content).hexdigest()
                self.send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{tag}"'})
            else:
                known = any(part in hub.revisions or part in hub.commits for part in self.parts)
                self.send(404, b"", {"X-Error-Code": "EntryNotFound" if known else "RevisionNotFound"})

        do_HEAD = do_GET

        def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
