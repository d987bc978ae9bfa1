"""An S3-compatible server on the loopback address, in a process of its own, with one bucket."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "reasoner-test"


def environment(port: int) -> dict[str, str]:
    """What a client needs, in the variables that S3 clients read. The key is the server's documented example."""
    return {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
    }  # fmt: skip


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Start moto's server and make the bucket; gives the environment of its clients."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, "the S3 server did not start"
                time.sleep(0.05)
        variables = environment(port)
        make = "import fsspec; fsspec.filesystem('s3').mkdir('" + BUCKET + "')"
        subprocess.run([sys.executable, "-c", make], check=True, env={**os.environ, **variables})
        yield variables
    finally:
        server.kill()
        server.wait()
