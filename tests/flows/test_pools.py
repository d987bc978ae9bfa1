"""A real server, two pools, two workers: what runs where, one GPU stage at a time, and every way of ending a run.

The tests follow each other on one server, since a server's start is the slowest part of them.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from reasoner.engines.kept.record import read
from tests.support.parents import begin, running_children, small, with_engine
from tests.support.services import Services, eventually, interrupt
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(2400)]

SECRETS = {
    "HF_TOKEN": "hf_" + "Canary0123456789" * 2,
    "WANDB_API_KEY": "c0ffee0123456789abcdef0123456789abcdef01",
    "STORAGE_PASSWORD": "canary-in-the-storage",
    "WANDB_MODE": "offline",
}
SLEEPER = """
import time
from prefect import flow
@flow(name="sleeper")
def sleeper():
    time.sleep(3600)
sleeper()
"""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    found = Services(tmp_path_factory.mktemp("pools"), **SECRETS)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(36000)"])
    try:
        done = found.reasoner("up", "--port", str(found.port))
        assert done.returncode == 0, done.stderr
        for line in (f"server      http://127.0.0.1:{found.port} started", "pool gpu    created, 1 run at a time",
                     "worker-gpu  started", "automation  zombie-runs created", "UI "):  # fmt: skip
            assert line in done.stderr
        yield found
    finally:
        ended = found.reasoner("down")
        alive = bystander.poll() is None
        bystander.kill()
        bystander.wait()
    assert "ended       server" in ended.stderr and "ended       worker-gpu" in ended.stderr
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{found.url}/health")
    assert alive
    assert "nothing that `reasoner up` started" in found.reasoner("down").stderr


@pytest.fixture(scope="module")
def zombie(services: Services) -> tuple[str, float]:
    """A flow run whose process is killed where no worker could tell the server, and when that was."""
    env = {**services.environment, "PREFECT_API_URL": services.url, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], env=env)

    def running() -> str:
        found = [r["id"] for r in services.runs() if r["state"]["type"] == "RUNNING"]
        return str(found[0]) if found else ""

    run_id = eventually(running, "the sleeper runs")
    eventually(lambda: services.get("events/filter", filter={"event": {"name": ["prefect.flow-run.heartbeat"]}})
               ["events"], "its first heartbeat")  # fmt: skip
    process.kill()
    process.wait()
    return run_id, time.monotonic()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


def scripted(model: Path, solver: str = "tests.support.solver:solve") -> list[str]:
    engine = ["engine=scripted", f"engine.options.script={solver}", "few_shot.strategies=[cot,pot]"]
    return [*small(model), *engine]


def test_up_can_be_repeated_and_says_what_was_there(services: Services, zombie: tuple[str, float]) -> None:
    before = (services.home / "services.json").read_text()
    again = services.reasoner("up")
    assert again.returncode == 0, again.stderr
    assert (services.home / "services.json").read_text() == before
    said = dict(line.split(maxsplit=1) for line in again.stderr.splitlines())
    for what in ("server", "worker-cpu", "worker-gpu", "automation"):
        assert "was there already" in said[what], again.stderr
    pools = services.get("work_pools/filter", limit=10)
    assert {p["name"]: p["concurrency_limit"] for p in pools} == {"cpu": None, "gpu": 1}
    deployments = services.get("deployments/filter", limit=100)
    stage = next(d for d in deployments if d["name"] == "gpu-stage")
    assert {d["work_pool_name"] for d in deployments} == {"cpu", "gpu"} and stage["work_pool_name"] == "gpu"
    for deployment in deployments:
        assert deployment["version"] == "0.1.0" and deployment["tags"] and deployment["description"]
    parents = [d for d in deployments if "settings" in d["parameter_openapi_schema"]["properties"]]
    assert len(parents) >= 12
    assert all("compute.gpu_pool=gpu" in d["parameters"]["overrides"] for d in parents)


def test_a_remote_run_is_followed_and_its_gpu_stages_run_on_the_gpu_pool(
    services: Services, model: Path
) -> None:
    done = services.reasoner("run", "smart-epoch2", "--remote", *scripted(model))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "smart-epoch2: Completed" in done.stderr and "train epoch 1: Completed" in done.stderr

    parent = next(r for r in services.runs() if r["work_pool_name"] == "cpu")
    children = services.children(parent["id"])
    assert parent["state"]["type"] == "COMPLETED"
    assert {r["work_pool_name"] for r in children} == {"gpu"}
    assert {"train epoch 1", "merge epoch 1", "few-shot cot pool"} <= {r["name"] for r in children}
    assert all(r["state"]["type"] == "COMPLETED" for r in children)

    nodes = {n["label"]: n for _, n in services.get(f"flow_runs/{parent['id']}/graph-v2")["nodes"]}
    ids = {n["id"]: label for label, n in nodes.items()}

    def parents(label: str) -> set[str]:
        return {ids[p["id"]] for p in nodes[label]["parents"] if p["id"] in ids}

    assert "problems" in parents("few-shot cot pool") and "model" in parents("few-shot cot pool")
    assert "records-epoch1" in parents("train epoch 1")
    assert "train epoch 1" in parents("merge epoch 1")
    assert "evaluation held-out" in parents("report")
    assert services.reasoner("runs").stdout.count("done") == 1


def test_what_the_server_or_the_configuration_refuses_never_becomes_a_run(services: Services) -> None:
    before = len(services.runs())
    token = "hf_" + "Typed0123456789a" * 2
    typed = services.reasoner("run", "smart-epoch2", "--remote", f"model.path={token}")
    assert typed.returncode == 2 and "Hugging Face token" in typed.stderr and token not in typed.stderr
    form = services.prefect(
        "deployment", "run", "smart/smart-epoch2", "--param", f'overrides=["model.path={token}"]'
    )
    assert form.returncode != 0
    wrong = services.prefect(
        "deployment", "run", "smart/smart-epoch2", "--param", 'settings={"train": {"lr": "fast"}}'
    )
    assert wrong.returncode != 0
    unknown = services.reasoner("run", "planner-demo", "--remote")
    assert unknown.returncode == 2 and "there are: " in unknown.stderr
    assert len(services.runs()) == before


@pytest.mark.long
def test_two_parents_take_turns_and_every_end_frees_the_slot(
    services: Services, model: Path, tmp_path: Path
) -> None:
    one, two = begin(services, model, 1, tmp_path), begin(services, model, 2, tmp_path)
    parents = {one.run_id: one, two.run_id: two}
    eventually(lambda: all(services.children(p) for p in parents), "each parent has sent a stage")
    child = eventually(lambda: running_children(services), "a stage runs")[0]
    engine = eventually(lambda: with_engine(services, child), "its engine is up")
    for _ in range(10):  # the other stage is due all the time, and waits
        assert running_children(services) == [child]
        time.sleep(0.3)

    # Cancelled: the child and all its processes end, and the other parent's stage gets the slot.
    first = next(p for p in parents if any(c["id"] == child for c in services.children(p)))
    second = next(p for p in parents if p != first)
    begun = time.monotonic()
    assert services.prefect("flow-run", "cancel", first).returncode == 0
    told = time.monotonic() - begun  # the command's own start is not ours
    psutil.wait_procs(engine, timeout=120)
    ended = time.monotonic() - begun - told
    assert not any(p.is_running() for p in engine), "a cancelled stage left a process"
    assert ended < 60, f"{ended:.1f} s; the aim on a quiet machine is 10"
    cancelled = ended
    eventually(lambda: services.state(first) == services.state(child) == "CANCELLED", "both are cancelled")
    assert parents[first].command.wait(60) == 1
    assert "ended as Cancelled" in parents[first].log.read_text()
    freed = eventually(lambda: [c for c in running_children(services) if c != child], "the slot is free")[0]
    assert freed in [c["id"] for c in services.children(second)]

    # Ctrl-C at the command that follows: the run goes on, and the command says how to cancel it.
    assert interrupt(parents[second].command) == 130
    said = parents[second].log.read_text()
    assert f"prefect flow-run cancel {second}" in said and "Traceback" not in said
    assert services.state(second) == "RUNNING"

    # The parent is killed; retried, it adopts the child that is still at work.
    eventually(lambda: with_engine(services, freed), "the second engine is up")
    eventually(lambda: services.process_of(second), "the parent's process").kill()
    eventually(lambda: services.state(second) == "CRASHED", "the worker tells of the killed parent")
    assert services.state(freed) == "RUNNING"
    assert services.prefect("flow-run", "retry", second).returncode == 0
    log = services.home / "logs" / "worker-cpu.log"
    eventually(lambda: "is still at work on it" in log.read_text(errors="replace"), "the child is adopted")
    stages = [c for c in services.runs() if c["work_pool_name"] == "gpu" and c["state"]["type"] == "RUNNING"]
    assert [c["id"] for c in stages] == [freed]

    # SIGTERM to the worker: its run ends with every process and is no longer Running.
    engine = eventually(lambda: with_engine(services, freed), "the engine is up")
    begun = time.monotonic()
    services.workers()["worker-gpu"].send_signal(signal.SIGTERM)
    psutil.wait_procs(engine, timeout=120)
    assert not any(p.is_running() for p in engine), "a stopped worker left a process"
    ended = time.monotonic() - begun
    assert ended < 60, f"{ended:.1f} s; the aim on a quiet machine is 10"
    print(f"processes gone {cancelled:.1f} s after `cancel`, {ended:.1f} s after SIGTERM to the worker")
    eventually(lambda: services.state(freed) in ("CRASHED", "CANCELLED"), "the slot is free", 60)

    # The parent had adopted that stage: it sends it anew, and the worker that `up` brings has a slot for it.
    assert services.state(second) == "RUNNING"
    again = services.reasoner("up")
    assert again.returncode == 0 and "worker-gpu  started" in again.stderr
    fresh = eventually(lambda: [c for c in running_children(services) if c != freed], "it is sent anew")[0]
    assert fresh in [c["id"] for c in services.children(second)]
    assert services.prefect("flow-run", "cancel", second).returncode == 0
    eventually(lambda: services.state(second) == services.state(fresh) == "CANCELLED", "both are cancelled")


@pytest.mark.long
def test_two_gpu_stages_of_a_run_use_one_engine_which_ends_with_the_worker(
    services: Services, model: Path
) -> None:
    real = [
        "engine=transformers", "engine.options.max_model_len=16384", "few_shot.strategies=[cot,pot]",
        "few_shot.decoding.max_tokens=8", "few_shot.decoding.stop=[]", "data.pool.word_problems.limit=60", "seed=5",
    ]  # fmt: skip
    known = set((services.home / "runs").glob("*"))
    done = services.reasoner("run", "smart-epoch2", "--remote", *small(model), *real)
    assert done.returncode == 1, "a random model solves nothing, so that there is nothing to train on"
    for stage in ("few-shot cot pool", "few-shot pot pool"):
        assert f"{stage}: Completed" in done.stderr, done.stdout[-3000:] + done.stderr[-2000:]
    [run] = set((services.home / "runs").glob("*")) - known
    [note] = run.glob("logs/engine-*.log")
    first, *later = note.read_text().splitlines()
    assert first.startswith("started the transformers engine for ")
    assert len(later) >= 1 and set(later) == {first.replace("started the", "uses the kept")}, later
    [kept] = [read(path) for path in (services.home / "engines").glob("*.json")]
    assert kept is not None and kept.about in first and not kept.gone
    services.workers()["worker-gpu"].send_signal(signal.SIGTERM)
    eventually(lambda: kept.gone, "the engine ends with the worker")
    assert services.reasoner("up").returncode == 0


@pytest.mark.long
def test_a_run_that_died_without_a_word_stops_being_running(
    services: Services, zombie: tuple[str, float]
) -> None:
    run_id, killed = zombie
    eventually(lambda: services.state(run_id) == "CRASHED", "the zombie is crashed", 240)
    assert "no heartbeat" in services.get(f"flow_runs/{run_id}")["state"]["message"]
    assert time.monotonic() - killed > 60, "healthy runs must not be crashed"


@pytest.mark.long
def test_no_secret_is_found_anywhere_after_a_run_that_tells_them_all(services: Services, model: Path) -> None:
    leaky = scripted(model, "tests.support.leaky:tell")
    done = services.reasoner("run", "smart-epoch2", "--remote", *leaky, "seed=9")
    assert done.returncode == 1 and "ended as Failed" in done.stderr, done.stderr[-2000:]
    assert "redacted: HF_TOKEN" in done.stderr
    worker = (services.home / "logs" / "worker-gpu.log").read_text(errors="replace")
    for way in ("printed", "written"):
        assert f"{way} [redacted: HF_TOKEN]" in worker, f"the leak was not tried: {way}"
    logs = str(
        services.get("logs/filter", limit=200, sort="TIMESTAMP_DESC")
    )  # Prefect's own log goes there alone
    for way in ("connecting with", "401 Unauthorized for"):
        assert f"{way} [redacted: HF_TOKEN]" in logs, f"the leak was not tried: {way}"
    canaries = [value.encode() for name, value in SECRETS.items() if name != "WANDB_MODE"]
    looked_at = set()
    for folder in (services.home, Path(services.environment["PREFECT_HOME"])):
        for path in folder.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                looked_at.add(path.name)
                assert not any(canary in data for canary in canaries), f"a secret stands in {path}"
    places = {"prefect.db", "server.log", "worker-cpu.log", "worker-gpu.log", "config.json", "stages.jsonl"}
    assert places <= looked_at, places - looked_at
    for process in psutil.process_iter(["cmdline"]):
        assert not any(c.decode() in part for c in canaries for part in process.info["cmdline"] or ())
