"""The flow that runs one stage where the accelerator is; deployed as `gpu-stage/gpu-stage` on the `gpu` pool."""

from typing import Any

from prefect import flow

from reasoner.config.tracking import TrackingConfig
from reasoner.config.training import ComputeConfig, Sharding
from tasks import registry
from tasks.context import run_context


@flow(name="gpu-stage", persist_result=True)
def gpu_stage(
    stage: str, arguments: dict[str, Any], folder: str, wandb_project: str | None = None, processes: int = 1,
    sharding: Sharding = "ddp", engines: int = 1, idle_seconds: float = 300.0,
) -> dict[str, Any]:  # fmt: skip
    """Run `stage` with encoded `arguments` for the run in `folder`; returns the artifact reference as a row.

    With `wandb_project` its training is shown in W&B, beside the rest of that run. `processes` devices train,
    `engines` engines share a generation. A single one waits `idle_seconds` for the next stage.
    """
    wanted = registry.find(stage)
    tracking = TrackingConfig(wandb=True, project=wandb_project) if wandb_project else None
    compute = ComputeConfig(processes=processes, sharding=sharding, engines=engines)
    with run_context(folder, tracking=tracking, compute=compute, idle_seconds=idle_seconds, keep_engine=True):
        return wanted.run(wanted.decode(arguments)).to_row()
