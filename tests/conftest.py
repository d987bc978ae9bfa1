"""Shared fixtures. Tests that need the collected data sets skip, with the reason, where they are missing."""

import os
import signal
from pathlib import Path

import hypothesis
import pytest

from reasoner.errors import SandboxUnavailableError
from reasoner.sandbox import Sandbox

# A busy machine is no reason to fail: what is slow is measured in benchmarks/, never asserted.
hypothesis.settings.register_profile("project", deadline=None)
hypothesis.settings.load_profile("project")

# A shell that starts this in the background has SIGINT ignored, and every process of ours would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two workers on two cores: a thread each, for the children that they start too.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets beside the checkout."""
    if not DATA.is_dir():
        pytest.skip("the data sets are not beside this checkout (../shared/data)")
    return DATA


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox of this machine; what needs it is skipped, with the reason, where there is none."""
    try:
        return Sandbox.detect()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
