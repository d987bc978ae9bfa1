"""A server on loopback that answers every request with JSON."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, Any], Any]
"""(path, what was sent or None) -> what is sent back; None for 404."""


@contextmanager
def json_server(answer: Answer) -> Iterator[str]:
    """Yields the server's address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(answer(self.path, None))

        def do_POST(self) -> None:
            self._send(answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def _send(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(404 if value is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        made.server_close()
