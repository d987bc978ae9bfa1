"""A Hub on this machine: it answers as the Hub's API does to huggingface_hub and datasets, over HTTP.

Covers, for reading: a repository's info, its tree, paths and files, of models and data sets alike; for writing:
creating a repository, validating a card, preupload, LFS batch, upload and verify, one commit of many files with its
parent checked. Weights go through LFS, everything else into the commit. Used through HF_ENDPOINT, in a child process
where the clients were imported before: they read their environment then.
"""

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
"""The commit of every repository that is served from a folder."""
TOKEN = "loopback-token-of-this-test"


@dataclass
class Repository:
    """Files of the newest commit, and the messages of all commits."""

    private: bool
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})
    commits: list[str] = field(default_factory=lambda: ["initial commit"])
    commit: str = ""
    """The newest commit, where it is fixed."""

    @classmethod
    def of_folder(cls, folder: Path) -> "Repository":
        files = {
            p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
        }
        return cls(private=False, files=files, commit=COMMIT)

    @property
    def head(self) -> str:
        return self.commit or hashlib.sha1(f"{len(self.commits)}{self.commits[-1]}".encode()).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """Its state, for a test to look at and to change."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.open = False
        """Whether it answers without a token."""
        self.before_commit: Any = None
        """Called with the repository before a commit is taken."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.asked.append(f"{self.command} {path}")
        parts = path.split("/")
        if parts[0] == "lfs":
            return self._lfs_object(parts, body)
        if not self.server.open and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._json({"error": "Invalid credentials"}, 401)
        if path == "api/repos/create":
            return self._create(json.loads(body))
        if path == "api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if parts[0] == "api" and parts[1] in ("models", "datasets"):
            return self._repository("/".join(parts[2:4]), parts[4:], body)
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        parts = parts[1:] if parts[0] == "datasets" else parts
        if len(parts) > 4 and parts[2] == "resolve":
            return self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return self._json({"error": f"no such address: {path}"}, 404)

    do_HEAD = do_POST = do_PUT = do_GET

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        if name.startswith("forbidden/"):
            return self._json({"error": "no write access"}, 403)
        if name in self.server.repositories:
            return self._json(
                {"error": "You already created this model repo", "url": f"{self.server.url}/{name}"}, 409
            )
        self.server.repositories[name] = Repository(asked.get("visibility") == "private")
        return self._json({"url": f"{self.server.url}/{name}", "name": name})

    def _repository(self, name: str, rest: list[str], body: bytes) -> None:
        repository = self._found(name, rest[1] if rest[1:] else "main")
        if repository is None:
            return None
        what, below = rest[0] if rest else "", "/".join(rest[2:])
        if what == "preupload":
            return self._preupload(repository, json.loads(body))
        if what == "commit":
            return self._commit(name, repository, body)
        if what == "tree":
            under = f"{below}/" if below else ""
            return self._json(
                [_entry(repository, file) for file in repository.files if file.startswith(under)]
            )
        if what == "paths-info":
            wanted = json.loads(body)["paths"] if body[:1] == b"{" else parse_qs(body.decode())["paths"]
            wanted = [wanted] if isinstance(wanted, str) else wanted
            return self._json([_entry(repository, file) for file in wanted if file in repository.files])
        siblings = [{"rfilename": file} for file in sorted(repository.files)]
        facts = {
            "id": name,
            "sha": repository.head,
            "siblings": siblings,
            "tags": [],
            "private": repository.private,
        }
        return self._json(facts)

    def _found(self, name: str, revision: str) -> Repository | None:
        """The repository, or an answer that says what is missing."""
        repository = self.server.repositories.get(name)
        if repository is None:
            self._json({"error": "not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", repository.head):
            self._json({"error": "no such revision"}, 404, {"X-Error-Code": "RevisionNotFound"})
        else:
            return repository
        return None

    def _preupload(self, repository: Repository, asked: dict[str, Any]) -> None:
        found = []
        for file in asked["files"]:
            lfs = file["path"].endswith(".safetensors")
            known = repository.files.get(file["path"])
            oid = None if known is None else (_sha256(known) if lfs else _blob(known))
            mode = "lfs" if lfs else "regular"
            found.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._json({"files": found, "commitOid": repository.head})

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for wanted in asked["objects"]:
            found = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.server.objects:
                address = f"{self.server.url}/lfs/{wanted['oid']}"
                found["actions"] = {"upload": {"href": address}, "verify": {"href": f"{address}/verify"}}
            objects.append(found)
        self._json({"transfer": "basic", "objects": objects})

    def _lfs_object(self, parts: list[str], body: bytes) -> None:
        if parts[-1] == "verify":
            known = self.server.objects.get(json.loads(body)["oid"])
            return self._json({}, 200 if known is not None else 404)
        if _sha256(body) != parts[1]:
            return self._json({"error": "the content is not what was announced"}, 400)
        self.server.objects[parts[1]] = body
        return self._json({})

    def _commit(self, name: str, repository: Repository, body: bytes) -> None:
        items = [json.loads(line) for line in body.splitlines()]
        header = items[0]["value"]
        if self.server.before_commit is not None:
            self.server.before_commit(repository)
        if header.get("parentCommit") not in (None, repository.head):
            return self._json({"error": "A commit has happened since. Please refresh and try again."}, 412)
        for item in items[1:]:
            value = item["value"]
            if item["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                repository.files[value["path"]] = self.server.objects[value["oid"]]
            elif item["key"] == "deletedFile":
                del repository.files[value["path"]]
        repository.commits.append(header["summary"])
        oid = repository.head
        address = f"{self.server.url}/{name}/commit/{oid}"
        return self._json({"success": True, "commitOid": oid, "commitUrl": address, "hookOutput": ""})

    def _file(self, name: str, revision: str, file: str) -> None:
        repository = self._found(name, revision)
        if repository is None:
            return None
        content = repository.files.get(file)
        if content is None:
            headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repository.head}
            return self._json({"error": "not found"}, 404, headers)
        headers = {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": repository.head, "Accept-Ranges": "bytes"}
        return self._answer(200, content, headers)

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        named = {"X-Error-Message": value["error"]} if isinstance(value, dict) and "error" in value else {}
        self._answer(
            status,
            json.dumps(value).encode(),
            {"Content-Type": "application/json", **named, **(headers or {})},
        )

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _blob(content: bytes) -> str:
    """git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(repository: Repository, file: str) -> dict[str, Any]:
    content = repository.files[file]
    return {"type": "file", "path": file, "size": len(content), "oid": _blob(content)}


@contextmanager
def serve_hub(root: Path | None = None) -> Iterator[Hub]:
    """The server, for as long as the block lasts; with `root` it gives `root`/OWNER/NAME to everybody."""
    hub = Hub()
    for folder in root.glob("*/*/") if root is not None else ():
        hub.repositories[folder.relative_to(root).as_posix()] = Repository.of_folder(folder)
        hub.open = True
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
