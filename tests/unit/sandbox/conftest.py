import pytest

from reasoner.errors import SandboxUnavailableError
from reasoner.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    try:
        return Sandbox.detect()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
