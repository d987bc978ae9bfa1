"""A real server, two pools, two workers: the deployment runs, GPU stages run on `gpu`, the graph keeps its edges."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Services:
    """`reasoner up` on a port of its own, with a Prefect home of its own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.port = folder / "home", free_port()
        self.url = f"http://127.0.0.1:{self.port}/api"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        self.environment = {
            **kept, "REASONER_HOME": str(self.home), "PREFECT_HOME": str(folder / "prefect"), "PYTHONPATH": str(ROOT),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }  # fmt: skip

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, **more}
        return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600)

    def reasoner(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-c", "from flows.cli import main; main()", *arguments)

    def get(self, path: str, **body: object) -> object:
        reply = (
            httpx.post(f"{self.url}/{path}", json=body, timeout=30)
            if body
            else httpx.get(f"{self.url}/{path}")
        )
        reply.raise_for_status()
        return reply.json()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("pools")
    found = Services(folder)
    done = found.reasoner("up", "--port", str(found.port))
    assert done.returncode == 0, done.stderr
    yield found
    ended = found.reasoner("down")
    assert "ended server" in ended.stderr and "ended worker-gpu" in ended.stderr
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{found.url}/health")


def test_up_can_be_repeated_and_starts_nothing_twice(services: Services) -> None:
    before = (services.home / "services.json").read_text()
    again = services.reasoner("up", "--port", str(services.port))
    assert again.returncode == 0, again.stderr
    assert (services.home / "services.json").read_text() == before
    pools = services.get("work_pools/filter", limit=10)
    assert {p["name"]: p["concurrency_limit"] for p in pools} == {"cpu": None, "gpu": 1}  # type: ignore[attr-defined]


def test_a_deployment_runs_its_gpu_stages_on_the_gpu_pool(services: Services, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    overrides = [
        "compute.gpu_pool=gpu", "epochs=1", "model=local", f"model.path={model}", "data=demo", "engine=scripted",
        "engine.options.script=tests.support.solver:solve", "few_shot.exemplars=demo", "few_shot.strategies=[cot,pot]",
        "data.pool.word_problems.limit=160", "train.precision=fp32", "train.lr=1e-2", "train.batch_size=16",
        "train.grad_accum=1", "train.min_records=4",
    ]  # fmt: skip
    done = services.run(
        str(BIN / "prefect"), "deployment", "run", "smart/smart-epoch2", "--watch",
        "--param", f"overrides={json.dumps(overrides)}", PREFECT_API_URL=services.url,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]

    runs = services.get("flow_runs/filter", sort="EXPECTED_START_TIME_ASC", limit=50)
    parent = next(r for r in runs if r["work_pool_name"] == "cpu")  # type: ignore[attr-defined]
    children = [r for r in runs if r["parent_task_run_id"]]  # type: ignore[attr-defined]
    assert parent["state"]["type"] == "COMPLETED"
    assert {r["work_pool_name"] for r in children} == {"gpu"}
    assert {"train epoch 1", "merge epoch 1", "few-shot cot pool"} <= {r["name"] for r in children}
    assert all(r["state"]["type"] == "COMPLETED" for r in children)

    nodes = {n["label"]: n for _, n in services.get(f"flow_runs/{parent['id']}/graph-v2")["nodes"]}  # type: ignore[index]
    ids = {n["id"]: label for label, n in nodes.items()}

    def parents(label: str) -> set[str]:
        return {ids[p["id"]] for p in nodes[label]["parents"] if p["id"] in ids}

    assert "problems" in parents("few-shot cot pool") and "model" in parents("few-shot cot pool")
    assert "records-epoch1" in parents("train epoch 1")
    assert "train epoch 1" in parents("merge epoch 1")
    assert "evaluation held-out" in parents("report")
    assert services.reasoner("runs").stdout.count("done") == 1
