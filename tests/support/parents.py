"""Parents on the pool `cpu` whose stage on the pool `gpu` has a real engine at work for longer than a test takes."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.services import Services, eventually, tree

PIPELINE = "smart-epoch2"


def small(model: Path) -> list[str]:
    return [
        "epochs=1", "model=local", f"model.path={model}", "data=demo", "data.pool.word_problems.limit=160",
        "few_shot.exemplars=demo", "train.precision=fp32", "train.lr=1e-2", "train.batch_size=16",
        "train.grad_accum=1", "train.min_records=4",
    ]  # fmt: skip


@dataclass
class Parent:
    """A parent that is followed by a command, and its flow run."""

    command: subprocess.Popen[bytes]
    log: Path
    run_id: str = ""


def begin(services: Services, model: Path, seed: int, folder: Path) -> Parent:
    """A run whose few-shot stage has a real engine at work for longer than the test takes."""
    slow = [
        "engine=transformers", "engine.options.batch_size=1", "engine.options.max_model_len=16384",
        "few_shot.strategies=[cot]", "few_shot.decoding.max_tokens=8000", "few_shot.decoding.stop=[]", f"seed={seed}",
    ]  # fmt: skip
    known = {r["id"] for r in services.runs()}
    log = folder / f"parent{seed}.log"
    command = services.start("run", PIPELINE, "--remote", *small(model), *slow, log=log)
    parent = Parent(command, log)

    def fresh() -> str:
        assert parent.command.poll() is None, log.read_text()[-2000:]
        # By its name: the server schedules nightly runs on the same pool at any time.
        new = [r["id"] for r in services.runs() if r["id"] not in known and r["name"] == PIPELINE]
        return str(new[0]) if new else ""

    parent.run_id = eventually(fresh, "the parent's flow run")
    return parent


def running_children(services: Services) -> list[str]:
    return [
        r["id"] for r in services.runs()
        if r["work_pool_name"] == "gpu" and r["state"]["type"] in ("PENDING", "RUNNING", "CANCELLING")
    ]  # fmt: skip


def with_engine(services: Services, run_id: str) -> list[psutil.Process]:
    """The processes of a GPU stage, once its engine is among them."""
    process = services.process_of(run_id)
    found = tree(process) if process else []
    return found if any("reasoner.engines.kept.listener" in " ".join(p.cmdline()) for p in found) else []
