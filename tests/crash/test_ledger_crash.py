"""Generation through the ledger, killed or refused at every write and flush."""

import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from reasoner.ledger import Ledger, complete
from reasoner.records import ArtifactRef, Completion, GenerationRequest, Sampling
from reasoner.store import Store
from reasoner.store.rows import write_rows
from tests.crash.faults import KILLED, RAISED, run_cut

pytestmark = pytest.mark.crash

BATCH = 4
REQUESTS = [GenerationRequest(f"p{i}", f"prompt {i % 5}", Sampling(0.7), index=i) for i in range(18)]


class Counting:
    """A scripted engine that counts, in memory shared with the test, what it has answered."""

    def __init__(self, counter: mmap.mmap) -> None:
        self.counter = counter

    def load_adapter(self, name: str, path: Path) -> None:
        raise NotImplementedError

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        for i, request in enumerate(requests):
            (count,) = struct.unpack("q", self.counter[:8])
            self.counter[:8] = struct.pack("q", count + 1)
            yield i, Completion(f"{request.prompt} {request.problem_id}", "stop", 1, 1)

    def close(self) -> None:
        pass


@pytest.fixture
def counter() -> mmap.mmap:
    return mmap.mmap(-1, 8)


def answered(counter: mmap.mmap) -> int:
    (count,) = struct.unpack("q", counter[:8])
    return int(count)


def stage(folder: Path, counter: mmap.mmap) -> ArtifactRef:
    """Generate, then publish the completions: what a stage does."""
    with Ledger(folder / "ledger") as ledger:
        done = complete(
            REQUESTS, ledger=ledger, fingerprint="f", engine=lambda: Counting(counter), batch=BATCH
        )
    with Store(folder / "artifacts").writer("completions") as draft:
        write_rows(draft.path / "rows.jsonl", done.completions)
    return draft.ref


@pytest.mark.parametrize("mode", ["kill", "fail"])
def test_at_every_call_at_most_the_batch_in_flight_is_lost(
    tmp_path: Path, counter: mmap.mmap, mode: str
) -> None:
    reference = stage(tmp_path / "reference", counter)
    expected = (Store(tmp_path / "reference" / "artifacts").open(reference) / "rows.jsonl").read_bytes()
    outcomes, lost = [], []
    for at in range(1, 200):
        folder = tmp_path / str(at)
        counter[:8] = struct.pack("q", 0)
        outcomes.append(run_cut(lambda folder=folder: stage(folder, counter) and None, at, mode))  # type: ignore[misc]
        before = answered(counter)
        with Ledger(folder / "ledger") as ledger:
            kept = len(ledger)
            assert ledger.damaged == 0
        lost.append(before - kept)
        assert 0 <= before - kept <= BATCH
        counter[:8] = struct.pack("q", 0)
        ref = stage(folder, counter)
        assert answered(counter) == len(REQUESTS) - kept
        assert ref.digest == reference.digest
        assert (Store(folder / "artifacts").open(ref) / "rows.jsonl").read_bytes() == expected
        if outcomes[-1] == 0:
            break
    assert len(outcomes) > 25 and outcomes[-1] == 0
    if mode == "kill":
        assert set(outcomes[:25]) == {KILLED}
    else:
        # A few failures are survived: a folder that is there already, a lock that could not be signed.
        assert outcomes[:25].count(RAISED) >= 20
    # Of a torn batch the whole lines are kept, so a half-written one loses fewer.
    assert max(lost) >= BATCH - 1


def test_two_generators_at_once_with_one_killed(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from reasoner.ledger import Ledger
from reasoner.records import Completion, GenerationRequest, Sampling
ledger = Ledger(sys.argv[1])
start = int(sys.argv[2])
for i in range(start, start + 10_000):
    request = GenerationRequest(str(i), f"prompt {i}", Sampling())
    ledger.append([(request.key("f"), request, Completion("x" * 3000, "stop", 1, 1))])
    if i == start + 20:
        print("going", flush=True)
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(start)], stdout=subprocess.PIPE, text=True
        )
        for start in (0, 1_000_000)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "going\n"
    time.sleep(0.2)
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    with Ledger(tmp_path) as ledger:
        assert ledger.damaged == 0
        entries = list(ledger.entries())
    numbers = sorted(int(entry.problem_id) for entry in entries)
    for start in (0, 1_000_000):
        found = [n for n in numbers if start <= n < start + 1_000_000]
        assert len(found) >= 21 and found == list(range(start, start + len(found)))
    assert all(entry.prompt == f"prompt {entry.problem_id}" for entry in entries)
