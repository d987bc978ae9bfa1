"""The flow that runs one stage where the accelerator is; deployed as `gpu-stage/gpu-stage` on the `gpu` pool."""

from typing import Any

from prefect import flow

from tasks import registry
from tasks.context import run_context


@flow(name="gpu-stage", persist_result=True)
def gpu_stage(stage: str, arguments: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run `stage` with encoded `arguments` for the run in `folder`; returns the artifact reference as a row."""
    wanted = registry.find(stage)
    with run_context(folder):
        return wanted.run(wanted.decode(arguments)).to_row()
