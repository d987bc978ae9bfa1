"""On a real S3-compatible server: artifacts, ledgers and shared jobs of machines with disks of their own."""

import os
import random
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reasoner.errors import ArtifactError, DataError, ModelError
from reasoner.home import Home
from reasoner.ledger import Ledger, complete
from reasoner.ledger.keys import request_keys
from reasoner.records import Completion
from reasoner.shards.complete import complete_sharded
from reasoner.shards.job import ADAPTER_FILES, Job, LostLeaseError
from reasoner.shards.mirror import SharedLedger, open_ledger
from reasoner.shards.place import Place
from reasoner.store import Store
from tests.support.s3 import BUCKET, s3_server
from tests.support.tiny_llama import make_adapter, make_model
from tests.unit.shards.test_shards import answered, counts, requests, settings, start_worker

__all__ = ["counts"]


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    """The variables stay for the module: a client reads them once."""
    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def url(server: None) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def keys_in(job: Job) -> list[str]:
    """Every key in every piece, counted past the dictionary of a shard."""
    found = []
    for shard in job.shards():
        before: set[str] = set()
        while shard.pieces < len(shard.place.names("done")):
            names = shard.place.names("done")[: shard.pieces + 1]
            piece = shard.place.read(f"done/{names[-1]}") or b""
            found += [line.split(b'"key":"')[1][:32].decode() for line in piece.splitlines()]
            shard.pieces += 1
            assert not before & set(found[-len(piece.splitlines()) :])
    return found


def test_a_name_is_made_once(url: str) -> None:
    place = Place(url)
    assert place.create("a/b", b"first") and not place.create("a/b", b"second")
    assert place.read("a/b") == b"first" and place.names("a") == ["b"] and place.names("") == ["a"]
    place.replace("a/b", b"third")
    assert place.read("a/b") == b"third" and place.read("a/c") is None and place.names("c") == []
    place.require_exclusive()


def test_artifacts_of_one_machine_are_another_ones(url: str, tmp_path: Path) -> None:
    here, there = Store(url, cache=tmp_path / "here"), Store(url, cache=tmp_path / "there")
    with here.writer("rows", {"n": 1}) as draft:
        (draft.path / "deep").mkdir()
        (draft.path / "deep" / "rows.jsonl").write_bytes(b"x" * 200_000)
    assert (there.open(draft.ref) / "deep" / "rows.jsonl").read_bytes() == b"x" * 200_000
    assert [ref.digest for ref in there.list("rows")] == [draft.ref.digest]
    there.remote.fs.rm(f"{url}/rows/{draft.ref.digest}/deep/rows.jsonl")  # type: ignore[union-attr]
    with pytest.raises(ArtifactError, match="is missing"):
        Store(url, cache=tmp_path / "third").open(draft.ref)


def test_what_one_machine_has_answered_another_does_not_ask(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REASONER_LEDGER", url)
    wanted = requests(20)
    asked = []

    class Engine:
        def generate(self, wanted: object, **_: object) -> Iterator[tuple[int, Completion]]:
            for i, request in enumerate(wanted):  # type: ignore[var-annotated, arg-type]
                asked.append(request)
                yield i, Completion(f"answer {request.problem_id} {request.index}", "stop", 1, 1)

    def run(machine: str, upto: int) -> list[str]:
        with open_ledger(Home(tmp_path / machine), "model") as ledger:
            done = complete(wanted[:upto], ledger=ledger, fingerprint="m", engine=lambda: Engine())  # type: ignore[arg-type, return-value]
        return [c.text for c in done.completions]

    first = run("a", 40)
    assert len(asked) == 40
    assert run("b", 60)[:40] == first and len(asked) == 60, "b asks only for what a has not"
    assert len(run("a", 80)) == 80 and len(asked) == 80, "and a learns of what b has made"
    assert len(run("c", 80)) == 80 and len(asked) == 80


def test_a_kill_between_disk_and_store_loses_nothing(url: str, tmp_path: Path) -> None:
    """What a machine had written but not sent is sent when it opens its ledger again; half a fetch is made whole."""
    wanted = requests(3, samples=1)
    keys = request_keys(wanted, "m")
    answer = Completion("a" * 3000, "stop", 1, 1)
    SharedLedger(tmp_path / "a", Place(url)).close()
    with Ledger(tmp_path / "a") as unsent:  # as a killed process leaves it: on its disk alone
        unsent.append([(keys[0], wanted[0], answer)])
    with SharedLedger(tmp_path / "b", Place(url)) as other:
        assert keys[0] not in other
    SharedLedger(tmp_path / "a", Place(url)).close()
    with SharedLedger(tmp_path / "b", Place(url)) as other:
        assert other.get(keys[0]) == answer
    copy = next((tmp_path / "b").glob("from-*.jsonl"))
    whole = copy.read_bytes()
    copy.write_bytes(whole[: len(whole) // 2])
    with SharedLedger(tmp_path / "b", Place(url)) as other:
        assert other.get(keys[0]) == answer and copy.read_bytes() == whole
        assert other.append([(keys[1], wanted[1], answer)]) == 1
    with SharedLedger(tmp_path / "a", Place(url)) as back:
        assert back.get(keys[1]) == answer and keys[2] not in back


def test_a_worker_that_lost_its_shard_cannot_add(url: str) -> None:
    wanted = requests(1, samples=2)
    keys = request_keys(wanted, "m")
    job = Job.publish(Place(url), settings(), dict(zip(keys, wanted, strict=True)), shard_size=4)
    old, new = job.shards()[0].read(), job.shards()[0].read()
    new.append({keys[0]: Completion("a", "stop", 1, 1)})
    with pytest.raises(LostLeaseError):
        old.append({keys[0]: Completion("b", "stop", 1, 1)})
    assert keys_in(job) == [keys[0]]


def test_engines_of_one_host_meet_in_a_bucket(url: str, tmp_path: Path, counts: Path) -> None:
    """Workers that the coordinator starts: what their store's client wants is in their environment."""
    wanted = requests(20, samples=2)
    with Ledger(tmp_path / "ledger") as ledger:
        made = complete_sharded(
            wanted, ledger=ledger, fingerprint="m", settings=settings(), engines=2, work=tmp_path / "w",
            logs=tmp_path, root=url,
        )  # fmt: skip
    assert (made.made, made.found) == (40, 0) and len(answered(counts)) == 40


def test_an_adapter_travels_as_bytes(url: str, tmp_path: Path) -> None:
    """A machine that joins has the base, not the folder in which the adapter was trained."""
    trained = make_adapter(make_model(tmp_path / "base"), tmp_path / "trained", seed=1)
    wanted = {"0" * 32: requests(1, samples=1)[0]}
    there = replace(settings(), adapters=True)
    job = Job.publish(Place(url), there, wanted, shard_size=4, adapters={"policy": trained})
    with pytest.raises(ModelError, match="has rank 4"):
        Job.publish(
            Place(url), replace(there, max_lora_rank=2), wanted, shard_size=4, adapters={"p": trained}
        )
    kept = {name: (trained / name).read_bytes() for name in ADAPTER_FILES}
    shutil.rmtree(trained)
    found = Job.open(job.place)
    assert found.adapters == ("policy",)
    folder = found.adapter("policy", tmp_path / "elsewhere")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept
    with pytest.raises(DataError, match=r"adapters/other/adapter_config\.json is missing"):
        found.adapter("other", tmp_path / "elsewhere")


def killed_at_random(url: str, room: Path, wanted: list, rng: random.Random, model: str) -> None:
    """Three workers with folders of their own and one bucket, one of them killed; then the job is complete, once."""
    owed = dict(zip(request_keys(wanted, model), wanted, strict=True))
    job = Job.publish(Place(url), settings(), owed, shard_size=10)
    rooms = [room / f"machine-{i}-{uuid.uuid4().hex[:4]}" for i in range(3)]
    for folder in rooms:
        folder.mkdir()
    running = [
        start_worker(job, f"w{i}", folder, batch=3, lease_seconds=3.0) for i, folder in enumerate(rooms)
    ]
    end = time.monotonic() + 120
    while not any(shard.place.names("done") for shard in job.shards()):
        assert time.monotonic() < end and all(child.poll() is None for child in running)
        time.sleep(0.05)
    time.sleep(rng.uniform(0.0, 0.5))
    os.killpg(running[rng.randrange(3)].pid, signal.SIGKILL)
    for child in running:
        assert child.wait(timeout=240) in (0, -signal.SIGKILL)
    assert sorted(keys_in(job)) == sorted(owed), "nothing lost, nothing twice"


def test_three_machines_and_a_bucket(url: str, tmp_path: Path, counts: Path) -> None:
    wanted = requests(30, samples=2)
    killed_at_random(url, tmp_path, wanted, random.Random(1), "m")
    before = len(answered(counts))
    with Ledger(tmp_path / "ledger") as ledger:
        made = complete_sharded(
            wanted, ledger=ledger, fingerprint="m", settings=settings(), engines=2, work=tmp_path / "w",
            logs=tmp_path, root=url,
        )  # fmt: skip
        assert (made.made, made.found, len(ledger)) == (0, 60, 60)
    assert len(answered(counts)) == before


@pytest.mark.long
def test_three_machines_ten_times(url: str, tmp_path: Path, counts: Path) -> None:
    rng = random.Random(2)
    for turn in range(10):
        killed_at_random(f"{url}/{turn}", tmp_path, requests(30, samples=2), rng, f"m{turn}")
