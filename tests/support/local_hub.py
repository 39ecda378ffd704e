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
    """One repository, Org/Name-1.5. `asked` lists the paths of all requests; what is pushed is a commit of
    its own, whose message is kept."""

    def __init__(self, revisions: Revisions, commits: Commits) -> None:
        self.revisions, self.commits, self.asked = revisions, commits, list[str]()
        self.messages: dict[str, str] = {}

    def find(self, path: str) -> tuple[str, bytes, str] | None:
        """Commit, content and kind of what lies at a path."""
        match path.strip("/").split("/"):
            case ["api", "models", "Org", "Name-1.5", *rest] if rest[:1] in ([], ["revision"]):
                revision = rest[1] if rest else "main"
                commit = self.revisions.get(revision, revision)
                if commit not in self.commits:
                    return None
                files = [{"rfilename": name} for name in self.commits[commit]]
                facts = {"id": "Org/Name-1.5", "modelId": "Org/Name-1.5", "sha": commit, "siblings": files}
                return commit, json.dumps(facts).encode(), "application/json"
            case ["Org", "Name-1.5", "resolve", revision, *name]:
                commit = self.revisions.get(revision, revision)
                content = self.commits.get(commit, {}).get("/".join(name))
                return None if content is None else (commit, content, "application/octet-stream")
        return None

    def missing(self, path: str) -> str:
        """What the hub calls it that nothing lies there."""
        match path.strip("/").split("/"):
            case ["Org", "Name-1.5", "resolve", revision, *_]:
                pass
            case ["api", "models", "Org", "Name-1.5", "tree", revision, *_]:
                pass
            case _:
                return "RevisionNotFound"
        known = self.revisions.get(revision, revision) in self.commits
        return "EntryNotFound" if known else "RevisionNotFound"

    def receive(self, path: str, body: bytes, address: str) -> dict[str, Any] | None:
        """The answer to what is posted."""
        match path.strip("/").split("/"):
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
        return None


@contextlib.contextmanager
def serving(hub: LocalHub) -> Iterator[str]:
    """Its address, while it is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(False)

        def do_GET(self) -> None:
            self.answer(True)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path, address = self.path.partition("?")[0], f"http://{self.headers['Host']}"
            answer = hub.receive(path, body, address)
            content = json.dumps(answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def answer(self, body: bool) -> None:
            hub.asked.append(self.path)
            path = self.path.partition("?")[0]
            found = hub.find(path)
            if found is None:
                self.send_response(404)
                self.send_header("X-Error-Code", hub.missing(path))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            commit, content, kind = found
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", commit)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
