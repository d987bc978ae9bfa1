"""Whether a guest of a server keeps the base's requests apart from an adapter's: unless it is told of another device.

Wrong if a server that says nothing, or says `cpu`, gets mixed batches: vLLM's CPU build then answers the base's
requests with the adapter's weights, without an error.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reasoner.onpolicy.served import ServedEngine, ServedSettings

MODELS = {"data": [{"id": "base"}]}


@contextmanager
def server(info: str | None) -> Iterator[str]:
    """What a guest asks first; `info` is the configuration that vLLM tells in its development mode, None is 404."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {"/health": {}, "/v1/models": MODELS, "/version": {"version": "0.31.0"}}
            if info is not None:
                found["/server_info"] = {"vllm_config": info}
            body = json.dumps(found.get(self.path, {})).encode()
            self.send_response(200 if self.path in found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        made.server_close()


@pytest.mark.parametrize(
    ("info", "apart"),
    [(None, True), ("model='m', device_config=cpu, seed=0", True), ("no word of it", True),
     ("model='m', device_config=cuda, seed=0", False)],
)  # fmt: skip
def test_requests_are_kept_apart_unless_the_server_names_another_device(
    base: Path, info: str | None, apart: bool
) -> None:
    with server(info) as url:
        guest = ServedEngine(ServedSettings(url, "base", base))
        assert guest._apart is apart
        guest.close()
        told = ServedEngine(ServedSettings(url, "base", base, apart=False))
        assert told._apart is False, "who knows better says so"
        told.close()
