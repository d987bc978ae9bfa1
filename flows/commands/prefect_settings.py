"""Settles which Prefect this process talks to, before Prefect is imported."""

import logging
import os

from reasoner.home import Home


def prepare() -> None:
    """Use the user's server where one is set; otherwise an embedded one with its database in the home folder.

    Prefect's own log goes to the run page; on the terminal only with --debug, since our errors are a line.
    """
    home = Home.from_environment()
    os.environ.setdefault("REASONER_HOME", str(home.path))
    if "PREFECT_API_URL" not in os.environ and "PREFECT_HOME" not in os.environ:
        home.prefect.mkdir(parents=True, exist_ok=True)
        os.environ["PREFECT_HOME"] = str(home.prefect)
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault(
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120"
    )  # 20 is short on a busy machine
    # Prefect's own 180 s would let the zombie automation (90 s, flows/commands/services.py) crash healthy runs.
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    if not os.environ.get("REASONER_DEBUG"):
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
        # What cannot be sent to a server that is gone: the run says so itself, once.
        os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
        logging.raiseExceptions = False
