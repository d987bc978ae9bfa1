"""Isolation for model-written Python: see `sandbox.py` for the interface, `inside/jail.py` for the walls."""

from reasoner.sandbox.jobs import Calls, CallsResult, Limits, Program, Result, Status
from reasoner.sandbox.pool import run_programs, stream_programs
from reasoner.sandbox.sandbox import Sandbox

__all__ = [
    "Calls",
    "CallsResult",
    "Limits",
    "Program",
    "Result",
    "Sandbox",
    "Status",
    "run_programs",
    "stream_programs",
]
