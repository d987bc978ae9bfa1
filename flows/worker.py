"""Prefect's process worker, with one thing mended: told to end, it leaves no run `Running`.

    python -m flows.worker --pool gpu --name worker-gpu-HOST

Prefect's own worker kills its runs at SIGTERM and says nothing of it (Prefect #16746), so that a run holds the pool's
slot until the zombie automation finds it. This one reports them as Crashed and cancels what they have sent to other
pools. What it was killed with SIGKILL for is still left to the automation. Ctrl-C does the same as SIGTERM. An engine
that a stage leaves for the next one ends with the worker, however that ends (reasoner.engines.kept).
"""

import argparse
import asyncio
import os
from typing import Any

import anyio
from prefect.utilities.processutils import setup_signal_handlers_worker
from prefect.workers.process import ProcessWorker

from reasoner.engines.kept.slot import OWNER
from reasoner.process.owner import owner_tag
from reasoner.redaction import install
from tasks.gpu import cancel_children

REPORT_SECONDS = 8
"""A server that is gone must not hold up the end."""


class ReportingWorker(ProcessWorker):
    """A process worker that tells the server which runs ended with it."""

    @classmethod
    def __dispatch_key__(cls) -> str:
        return "reasoner-process"  # `process` stays Prefect's own; pools see no difference

    async def run(self, flow_run: Any, configuration: Any, task_status: Any = None) -> Any:
        try:
            return await super().run(flow_run, configuration, task_status)
        except anyio.get_cancelled_exc_class():
            # The process has been killed by now, and with it its engines and trainings.
            with anyio.move_on_after(REPORT_SECONDS, shield=True):
                await self._propose_crashed_state(flow_run, f"its worker {self.name} was ended")
                await anyio.to_thread.run_sync(cancel_children, None, flow_run, None)
            raise


async def work(pool: str, name: str) -> None:
    """Serve a pool until the process is told to end."""
    worker = ReportingWorker(work_pool_name=pool, name=name, create_pool_if_not_found=False)
    try:
        await worker.start(printer=_say)
    except asyncio.CancelledError:
        _say(f"Worker {name!r} stopped!")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", required=True)
    parser.add_argument("--name", required=True)
    given = parser.parse_args()
    install()
    os.environ[OWNER] = owner_tag()
    setup_signal_handlers_worker(os.getpid(), "the worker", _say)
    try:
        asyncio.run(work(given.pool, given.name))
    except KeyboardInterrupt:
        _say(f"Worker {given.name!r} stopped!")


def _say(line: Any) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
