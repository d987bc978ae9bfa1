"""Waiting for something that only asking can tell."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.01


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, for `seconds` at most; whether it came true."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True
