"""A small Hub on this machine: serves folders to the real Hub clients over HTTP.

Covers what they ask for when they read a repository: its commit, its tree, its files. Used through
HF_ENDPOINT in a child process, as the clients read their environment when they are imported.
"""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[0] == "api":
            self._api(parts[1:], body)
        else:
            self._file(parts[1:] if parts[0] == "datasets" else parts)

    do_HEAD = do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def _folder(self, owner: str, name: str, revision: str) -> Path | None:
        folder = self.server.root / owner / name
        if not folder.is_dir():
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", COMMIT):
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            return folder
        return None

    def _api(self, parts: list[str], body: bytes) -> None:
        if len(parts) < 3 or parts[0] not in ("models", "datasets"):
            return self._answer(404, b"")
        _, owner, name, *rest = parts
        what, revision, *below = rest if len(rest) > 1 else ["revision", "main"]
        folder = self._folder(owner, name, revision)
        if folder is None:
            return None
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if what == "tree":
            under = folder.joinpath(*below)
            return self._json([_entry(folder, path) for path in files if path.is_relative_to(under)])
        if what == "paths-info":
            wanted = json.loads(body)["paths"] if body[:1] == b"{" else parse_qs(body.decode())["paths"]
            wanted = [wanted] if isinstance(wanted, str) else wanted
            found = [folder / path for path in wanted if (folder / path).is_file()]
            return self._json([_entry(folder, path) for path in found])
        siblings = [{"rfilename": path.relative_to(folder).as_posix()} for path in files]
        return self._json({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": siblings, "tags": []})

    def _file(self, parts: list[str]) -> None:
        if len(parts) < 5 or parts[2] != "resolve":
            return self._answer(404, b"")
        owner, name, _, revision, *path = parts
        folder = self._folder(owner, name, revision)
        if folder is None:
            return None
        file = folder.joinpath(*path)
        if not file.is_file():
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        content = file.read_bytes()
        headers = {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        self._answer(200, content, headers)
        return None

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    name = path.relative_to(folder).as_posix()
    return {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    root: Path
    asked: list[str]


@contextmanager
def serve(root: Path) -> Iterator[_Server]:
    """A server of the repositories `root`/OWNER/NAME, models and data sets alike."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.root, server.asked = root, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
