"""Whether a guest of a server keeps the base's requests apart from an adapter's: unless it is told of another device.

Wrong if a server that says nothing, or says `cpu`, gets mixed batches: vLLM's CPU build then answers the base's
requests with the adapter's weights, without an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reasoner.onpolicy.served import ServedEngine, ServedSettings
from tests.support.json_server import json_server

MODELS = {"data": [{"id": "base"}]}


@contextmanager
def server(info: str | None) -> Iterator[str]:
    """What a guest asks first; `info` is the configuration that vLLM tells in its development mode, None is 404."""

    found = {"/health": {}, "/v1/models": MODELS, "/version": {"version": "0.31.0"}}
    if info is not None:
        found["/server_info"] = {"vllm_config": info}
    with json_server(lambda path, _: found.get(path)) as url:
        yield url


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
