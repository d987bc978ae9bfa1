"""A tiny base model that all tests of the room share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.training import runtime
from tests.support import tiny_training as tiny


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, so that a sum has one order; no network. As before for the tests of other rooms."""
    import torch

    threads, environment = torch.get_num_threads(), dict(os.environ)
    runtime.prepare_process(1)
    yield
    torch.set_num_threads(threads)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with its tokenizer. Read only."""
    return tiny.make_model(tmp_path_factory.mktemp("base") / "tiny")
