"""Several workers, some killed: nothing is lost, nothing is recorded twice, the ledger is that of one worker."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from reasoner import hardware
from reasoner.config.smart import EngineConfig, SamplingConfig
from reasoner.config.training import ComputeConfig
from reasoner.engines.pool import EnginePool
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
from reasoner.errors import DataError, EngineError, InfrastructureError, ModelError
from reasoner.home import Home
from reasoner.ledger import Ledger, complete
from reasoner.ledger.keys import request_keys
from reasoner.records import Completion, GenerationRequest, Problem, Sampling
from reasoner.shards.complete import complete_sharded, shard_size
from reasoner.shards.job import Job, LostLeaseError, jobs_at, model_stamp
from reasoner.shards.lease import Lease, end_leases_of
from reasoner.shards.place import Place
from reasoner.shards.worker import WorkerSpec, main, work
from reasoner.stages.generation import Ask, generate
from reasoner.workbench import ModelFolder, Workbench

ROOT = Path(__file__).resolve().parents[3]
COUNTING = "tests.unit.shards.scripts:counting"


def requests(problems: int, samples: int = 4) -> list[GenerationRequest]:
    sampling = Sampling(temperature=0.7, max_tokens=16)
    return [
        GenerationRequest(f"p{p}", f"question {p}", sampling, 3, i)
        for p in range(problems)
        for i in range(samples)
    ]


def settings(script: str = COUNTING) -> EngineSettings:
    return EngineSettings("scripted", Path("none"), options={"script": script})


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "counts"
    folder.mkdir()
    monkeypatch.setenv("REASONER_TEST_COUNT", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def answered(folder: Path) -> list[str]:
    return [line for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


def start_worker(job: Job, name: str, room: Path, **fields: object) -> subprocess.Popen[bytes]:
    spec = WorkerSpec(job.place.uri, name, str(room / "engine.log"), **fields)  # type: ignore[arg-type]
    path = room / f"{name}.json"
    path.write_text(json.dumps(asdict(spec)))
    return subprocess.Popen(
        [sys.executable, "-m", "reasoner.shards.worker", str(path)], start_new_session=True, cwd=ROOT
    )


def recorded(job: Job) -> list[str]:
    """Every key in every piece, read past the code under test's own dictionary; not what a kill left half written."""
    keys = []
    for number in range(job.count):
        for file in sorted(Path(job.place.uri, f"{number:04d}", "done").glob("[0-9]*")):
            keys += [json.loads(line)["row"]["key"] for line in file.read_text().splitlines()]
    return keys


def one_workers_ledger(wanted: list[GenerationRequest], folder: Path) -> bytes:
    with Ledger(folder) as ledger:
        complete(
            wanted, ledger=ledger, fingerprint="m", engine=lambda: open_engine(settings(), log=folder / "log")
        )
    return (folder / "0000.jsonl").read_bytes()


def test_a_worker_is_killed_in_the_middle(tmp_path: Path, counts: Path) -> None:
    wanted = requests(60)
    keys = request_keys(wanted, "m")
    owed = dict(zip(keys, wanted, strict=True))
    job = Job.publish(Place(tmp_path / "shards"), settings(), owed, shard_size=30)
    fields = {"batch": 5, "lease_seconds": 1.0}
    first = start_worker(job, "first", tmp_path, **fields)
    second = start_worker(job, "second", tmp_path, **fields)
    end = time.monotonic() + 120
    while not any((Path(job.place.uri) / f"{n:04d}" / "done" / "0002").exists() for n in range(job.count)):
        assert time.monotonic() < end and first.poll() is None
        time.sleep(0.005)
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert second.wait(timeout=120) == 0
    found = recorded(job)
    assert sorted(found) == sorted(keys), "complete, and no key twice"
    again = len(answered(counts)) - len(wanted)
    assert 0 <= again <= 5 + 1, "made again is what the killed one had not yet recorded, at most a batch"
    with Ledger(tmp_path / "ledger") as ledger:
        made = complete_sharded(
            wanted, ledger=ledger, fingerprint="m", settings=settings(), engines=2, work=tmp_path / "w",
            logs=tmp_path, root=str(tmp_path / "shards"),
        )  # fmt: skip
    assert (made.made, made.found) == (0, 240)
    assert len(answered(counts)) == len(wanted) + again, "no engine was asked for what was recorded"
    assert (tmp_path / "ledger" / "0000.jsonl").read_bytes() == one_workers_ledger(wanted, tmp_path / "alone")


def test_a_host_loses_a_worker(tmp_path: Path, counts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator frees the dead worker's shard at once, though its lease would have lasted for minutes."""
    wanted, killed = requests(40), []

    def kill_one(facts: dict[str, object]) -> None:
        if not killed and len(list(counts.iterdir())) == 2:
            killed.append(int(next(iter(counts.iterdir())).name))
            os.kill(killed[0], signal.SIGKILL)

    with Ledger(tmp_path / "ledger") as ledger:
        made = complete_sharded(
            wanted, ledger=ledger, fingerprint="m", settings=settings(), engines=2, work=tmp_path / "work",
            logs=tmp_path / "logs", on_progress=kill_one, shard_size=20, batch=4, lease_seconds=300.0,
        )  # fmt: skip
    assert (
        killed
        and made.made == 160
        and [c.text for c in made.completions[:2]] == ["answer p0 0", "answer p0 1"]
    )
    assert (tmp_path / "ledger" / "0000.jsonl").read_bytes() == one_workers_ledger(wanted, tmp_path / "alone")
    assert not (tmp_path / "work" / "shards").exists()


def test_a_failing_request_is_told_and_the_rest_is_kept(tmp_path: Path, counts: Path) -> None:
    wanted = requests(24, samples=1)
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(
            EngineError, match=r"completions are owed; run the same command again .*p7 is too hard"
        ):
            complete_sharded(
                wanted, ledger=ledger, fingerprint="m", settings=settings("tests.unit.shards.scripts:failing"),
                engines=1, work=tmp_path / "work", logs=tmp_path / "logs",
            )  # fmt: skip
        assert 7 <= len(ledger) < 24


def test_the_one_who_was_thought_dead_cannot_add(tmp_path: Path) -> None:
    """Two hold a lease, as clocks that differ allow: whoever adds first goes on, the other is told."""
    wanted = requests(2, samples=2)
    keys = request_keys(wanted, "m")
    job = Job.publish(Place(tmp_path), settings(), dict(zip(keys, wanted, strict=True)), shard_size=4)
    old, new = job.shards()[0].read(), job.shards()[0].read()
    answer = Completion("a", "stop", 1, 1)
    new.append({keys[0]: answer})
    with pytest.raises(LostLeaseError):
        old.append({keys[0]: answer, keys[1]: answer})
    assert old.read().owed() == keys[1:] and recorded(job) == keys[:1]
    old.append({keys[1]: answer})
    assert new.read().owed() == keys[2:]


def test_a_lease_is_held_by_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = Lease.take(place, "a", 60.0)
    assert first is not None and Lease.take(place, "b", 60.0) is None
    end_leases_of(place, "b")
    assert Lease.take(place, "b", 60.0) is None, "that of another is not ended"
    end_leases_of(place, "a")
    with Lease.take(place, "b", 60.0) or pytest.fail("free, and not taken") as held:
        assert Lease.take(place, "a", 60.0) is None
        assert held.number == 1
    assert Lease.take(place, "a", 0.01) is not None
    time.sleep(0.02)
    assert Lease.take(place, "b", 60.0) is not None, "one that ran out is free"


def test_a_lease_is_renewed_while_work_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Lease.take(place, "a", 0.6) or pytest.fail("free, and not taken"):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert Lease.take(place, "b", 60.0) is None
            time.sleep(0.05)


def test_damage_is_told(tmp_path: Path) -> None:
    wanted = requests(1, samples=1)
    job = Job.publish(Place(tmp_path), settings(), {"0" * 32: wanted[0]}, shard_size=4)
    shard = job.shards()[0].read()
    shard.append({"0" * 32: Completion("a", "stop", 1, 1)})
    path = Path(job.place.uri, "0000", "done", "0000")
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(DataError, match=r"done/0000 is damaged"):
        job.shards()[0].read()
    path.rename(path.with_name("0001"))
    with pytest.raises(DataError, match=r"done/0000 is missing"):
        job.shards()[0].read()
    with pytest.raises(DataError, match=r"there is no job at"):
        Job.open(Place(tmp_path / "nowhere"))


def test_equal_requests_are_the_same_job(tmp_path: Path) -> None:
    wanted = dict(zip(request_keys(requests(5), "m"), requests(5), strict=True))
    place = Place(tmp_path)
    made = [Job.publish(place, settings(), wanted, shard_size=6) for _ in range(2)]
    assert made[0].place.uri == made[1].place.uri and made[0].count == 4
    assert [job.place.uri for job in jobs_at(place)] == [made[0].place.uri]
    assert [r for s in made[0].shards() for r in s.read().requests.values()] == list(wanted.values())


def test_sizes_of_shards() -> None:
    assert shard_size(10_000, 2) == 1250
    assert shard_size(10, 8) == 16
    assert shard_size(10_000_000, 2) == 4096


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hardware, "visible_devices", lambda: ["0", "1", "2", "3"])
    yield


def test_each_engine_has_devices_of_its_own(cards: None) -> None:
    assert hardware.device_sets(2) == ["0", "1"]
    assert hardware.device_sets(2, per_engine=2) == ["0,1", "2,3"]
    with pytest.raises(InfrastructureError, match=r"3 engines of 2 devices need 6; 4 are visible"):
        hardware.device_sets(3, per_engine=2)


def test_on_a_host_without_cards_nothing_is_set() -> None:
    if hardware.visible_devices():
        pytest.skip("this machine has cards")
    assert hardware.device_sets(2) == [None, None]


@pytest.mark.long
def test_three_workers_are_killed_at_random_ten_times(tmp_path: Path, counts: Path) -> None:
    rng = random.Random(0)
    for turn in range(10):
        wanted = [*requests(30, samples=2), *(requests(5, samples=2 + turn)[10:])]
        wanted = list({r.problem_id + str(r.index) + str(turn): r for r in wanted}.values())
        keys = request_keys(wanted, f"m{turn}")
        owed = dict(zip(keys, wanted, strict=True))
        job = Job.publish(Place(tmp_path / f"shards{turn}"), settings(), owed, shard_size=10)
        running = [start_worker(job, f"w{i}", tmp_path, batch=3, lease_seconds=0.5) for i in range(3)]
        time.sleep(rng.uniform(0.2, 1.5))
        os.killpg(running[rng.randrange(3)].pid, signal.SIGKILL)
        for child in running:
            assert child.wait(timeout=120) in (0, -signal.SIGKILL)
        assert sorted(recorded(job)) == sorted(owed)


def test_a_worker_in_this_process_does_all(tmp_path: Path, counts: Path) -> None:
    wanted = requests(4, samples=2)
    owed = dict(zip(request_keys(wanted, "m"), wanted, strict=True))
    job = Job.publish(Place(tmp_path / "s"), settings(), owed, shard_size=3)
    assert work(WorkerSpec(job.place.uri, "me", str(tmp_path / "log"))) == 8
    assert work(WorkerSpec(job.place.uri, "you", str(tmp_path / "log"))) == 0
    assert sorted(recorded(job)) == sorted(owed)


def test_another_machine_joins_with_its_copy_of_the_model(
    tmp_path: Path, counts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (("model", "{}"), ("copy", "{}"), ("other", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    place, wanted = Place(tmp_path / "s"), requests(4, samples=2)
    assert main(["join", place.uri, "model"]) == DataError.exit_code
    assert "no job at" in capsys.readouterr().err and main(["join", place.uri]) == 2
    owed = dict(zip(request_keys(wanted, "m"), wanted, strict=True))
    job = Job.publish(place, settings(), owed, shard_size=3, fingerprint=model_stamp(tmp_path / "model"))
    assert main(["join", place.uri, str(tmp_path / "other")]) == ModelError.exit_code
    assert "other is another model" in capsys.readouterr().err and not answered(counts)
    assert main(["join", place.uri, str(tmp_path / "copy")]) == 0
    assert sorted(recorded(job)) == sorted(owed)


def test_a_stage_generates_with_several_engines(
    tmp_path: Path, counts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage's rows are those of one engine, and its engines meet where REASONER_SHARDS says."""
    monkeypatch.setenv("REASONER_SHARDS", str(tmp_path / "meeting"))
    rows = {}
    for engines in (1, 2):
        room = tmp_path / str(engines)
        with EnginePool(room / "logs") as pool:
            compute = ComputeConfig(engines=engines)
            out, work = room / "out", room / "work" / "stage-key"
            out.mkdir(parents=True)
            bench = Workbench(
                Home(room / "home"), pool, work, room / "logs", lambda *_: None, compute=compute
            )
            asks = [Ask(Problem.make(f"question {i}", "1", "d"), f"prompt {i}", False) for i in range(12)]
            engine = EngineConfig(kind="scripted", options={"script": COUNTING})
            facts = generate(out, bench, asks, ModelFolder(room, "m", "m"), engine, SamplingConfig(), 3, 0)
        assert facts["owed"] == 36 and facts["found"] == 0
        rows[engines] = (out / "completions.jsonl").read_bytes()
    assert rows[1] == rows[2]
    pids = {file.name for file in counts.iterdir()}
    # The second engine starts when the first is ready, which with a script has then all but finished.
    assert 2 <= len(pids) <= 3 and str(os.getpid()) in pids, (
        "one engine here, others in processes of their own"
    )
    assert not (tmp_path / "meeting" / "stage-key").exists()
