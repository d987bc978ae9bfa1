"""How the processes of a training meet: each gets its own results, and waiting costs neither a card nor a processor."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reasoner.training import together

MEETING = """
import json, sys, time
from datetime import timedelta
import torch.distributed as dist
from reasoner.training import together

rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=3, timeout=timedelta(seconds=60))
rows = [[f"{rank}-{i}" for i in range(count)] for count in (2, 3, 0)][rank]
asked = []

def work(everyone):
    asked.append(list(everyone))
    time.sleep(2.0)
    return [row.upper() + "!" for row in everyone]

began = time.process_time()
own = together.by_first(work, rows)
spent = time.process_time() - began
again = together.by_first(lambda everyone: range(len(everyone)), rows)
if rank == 1:
    time.sleep(1.0)
began, processor = time.monotonic(), time.process_time()
together.wait()
waited, spent_waiting = time.monotonic() - began, time.process_time() - processor
print(json.dumps([own, again, asked, spent, waited, spent_waiting]))
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of three processes tells."""
    program = tmp_path_factory.mktemp("together") / "meeting.py"
    program.write_text(MEETING, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "PATH": "/usr/bin:/bin"}
    running = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), str(port)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(3)
    ]  # fmt: skip
    told = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], told
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


def test_the_first_works_for_all_and_each_gets_its_own(three: list[Any]) -> None:
    assert [told[0] for told in three] == [["0-0!", "0-1!"], ["1-0!", "1-1!", "1-2!"], []]
    assert [told[2] for told in three] == [[["0-0", "0-1", "1-0", "1-1", "1-2"]], [], []]
    assert [told[1] for told in three] == [[0, 1], [2, 3, 4], []], "a second meeting"


def test_whoever_waits_leaves_the_processor_alone(three: list[Any]) -> None:
    """Two seconds of the first's work and one of waiting; one that spins would take as much of the processor."""
    assert max(told[3] for told in three[1:]) < 0.5
    assert three[0][4] > 0.5 and three[2][4] > 0.5, "they wait for the second"
    assert max(told[5] for told in three) < 0.25


def test_they_meet_on_the_processor_whatever_the_tensors_go_through() -> None:
    import torch.distributed as dist
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  torch's backend "fake", a stand-in for a card's

    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.get_backend() == "fake"
        assert dist.get_backend(together._group(dist.group.WORLD)) == "gloo"
        assert together._group(dist.group.WORLD) is together._group(dist.group.WORLD)
    finally:
        dist.destroy_process_group()


def test_one_process_meets_nobody() -> None:
    together.wait()
    assert together.by_first(lambda rows: [row + 1 for row in rows], [1, 2]) == [2, 3]
