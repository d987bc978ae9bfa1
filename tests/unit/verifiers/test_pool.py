"""The pool of workers.

Wrong if a hostile row takes longer than its limits, ends the pool, or gets a verdict that is not its own; if
a failure of the pool is blamed on the response; if a process outlives the pool.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.errors import InfrastructureError
from reasoner.verifiers import pool as pool_module
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.pool import MathPool, verify_math
from reasoner.verifiers.worker import WALL_FACTOR
from tests.support.hanging import HANGS

TIMEOUT = 2.0


@pytest.fixture(scope="module")
def pool() -> Iterator[MathPool]:
    with MathPool(workers=2, timeout=TIMEOUT) as opened:
        yield opened


def _children() -> set[int]:
    """Process ids of all descendants of this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


POISON = [
    r"\boxed{5^{5^{5^5}}}",
    r"\boxed{(9^{9^{9}})!}",
    r"\boxed{9^{9^{9}} 2 i 9^{9^{9}}}",
    "{" * 100_000 + "1" + "}" * 100_000,
    r"\boxed{" + "{" * 100_000 + "1" + "}" * 100_000 + "}",
    r"\frac{1}{2}+" * 90_000,
    r"\boxed{" + r"\frac{1}{2}+" * 90_000 + "}",
    r"\boxed{2} " * 10_000,
    r"\boxed{2}, " * 10_000,
    r"\boxed{\frac{1}{" * 50_000,
    "answer is " * 100_000,
    "$" * 1_000_000,
    r"\boxed{\binom{10^9}{10^8}}",
    r"\boxed{" + "(1," * 900 + "1" + ")" * 900 + "}",
    r"\boxed{1/0}",
    r"\boxed{\frac{0}{0}}",
    r"\boxed{nan}",
    r"\boxed{zoo}",
    r"\boxed{\tan(\frac{\pi}{2})}",
    r"\boxed{[\frac{1}{0}, 2)}",
    r"\boxed{(-\infty, \infty) \cup (1, 0]}",
    r"\boxed{\begin{pmatrix}" + "1&" * 3000 + r"1\end{pmatrix}}",
    "\\boxed{\u0406}",  # a Cyrillic letter that looks like the digit
    r"\boxed{l}",
    r"\boxed{\infty-\infty}",
    r"\boxed{\begin{pmatrix}1&2\\3\end{pmatrix}}",
    r"\boxed{10^{10^{10}}-10^{10^{10}}+1}",
]


def test_poison_is_incorrect_within_the_limit_and_the_rows_around_it_are_judged(pool: MathPool) -> None:
    items = [
        item for text in POISON for item in (MathItem("1", text), MathItem(r"\frac{1}{2}", r"\boxed{0.5}"))
    ]
    start = time.monotonic()
    verdicts = list(pool.verdicts(items))
    assert time.monotonic() - start < len(POISON) * 2 * TIMEOUT
    assert [str(v.outcome) for v in verdicts[1::2]] == ["correct"] * len(POISON)
    assert [(text[:40], str(v.outcome)) for text, v in zip(POISON, verdicts[::2], strict=True)] == [
        (text[:40], "incorrect") for text in POISON
    ]
    assert sum(v.reason == "timeout" for v in verdicts[::2]) <= 2, [v.reason for v in verdicts[::2]]


def test_a_response_that_hangs_is_tried_twice_and_then_incorrect(pool: MathPool) -> None:
    hung, fine = pool.verdicts([MathItem("x+1", HANGS), MathItem("2", r"\boxed{2}")])
    assert (hung.outcome, hung.reason) == ("incorrect", "timeout")
    assert 2 * TIMEOUT <= hung.seconds < 2 * WALL_FACTOR * TIMEOUT
    assert fine.correct


def test_a_gold_that_hangs_is_unscored(pool: MathPool) -> None:
    (verdict,) = pool.verdicts([MathItem(HANGS, r"\boxed{\frac{x}{y}+z}")])
    assert (verdict.outcome, verdict.reason) == ("unscored", "gold_timeout")


def test_verdicts_come_in_order_and_before_all_rows_are_read(pool: MathPool) -> None:
    read = 0

    def items() -> Iterator[MathItem]:
        nonlocal read
        for read in range(1, 5001):
            yield MathItem(str(read), f"\\boxed{{{read if read % 3 else read + 1}}}")

    verdicts = pool.verdicts(items())
    first = next(verdicts)
    assert first.correct and read < 5000
    assert [v.correct for v in verdicts] == [bool(n % 3) for n in range(2, 5001)]


def test_a_killed_worker_is_replaced_and_its_row_judged() -> None:
    before = _children()
    with MathPool(workers=1, timeout=5.0) as pool:
        assert [v.correct for v in pool.verdicts([MathItem("1", "1")])] == [True]
        for pid in _children() - before:
            os.kill(pid, signal.SIGKILL)
        assert [v.correct for v in pool.verdicts([MathItem("2", "2"), MathItem("3", "4")])] == [True, False]


def test_a_killed_judge_is_forked_anew_and_its_row_judged() -> None:
    before = _children()
    with MathPool(workers=1, timeout=5.0) as pool:
        list(pool.verdicts([MathItem("1", "1")]))
        worker = pool._all[0]._process.pid
        (judge,) = _children() - before - {worker}
        os.kill(judge, signal.SIGKILL)
        (verdict,) = pool.verdicts([MathItem("2", "2")])
        assert verdict.correct
        assert worker in _children(), "the worker itself lived on"


def test_a_pool_that_cannot_replace_its_worker_is_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _children()
    with MathPool(workers=1, timeout=5.0) as pool:
        monkeypatch.setattr(pool_module.sys, "executable", "/bin/false")
        for pid in _children() - before:
            os.kill(pid, signal.SIGKILL)
        (verdict,) = pool.verdicts([MathItem("2", "2")])
        assert (verdict.outcome, verdict.reason) == ("unscored", "pool_failed")


def test_workers_that_do_not_start_are_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module.sys, "executable", "/bin/false")
    with pytest.raises(InfrastructureError, match="math worker"):
        list(verify_math([MathItem("2", "2")], workers=1))


def test_the_policy_reaches_the_workers_and_no_process_is_left() -> None:
    before = _children()
    policy = MathPolicy(percent="value")
    verdicts = list(verify_math([MathItem(r"28\%", "28"), MathItem("1", "1")], workers=1, policy=policy))
    assert [v.correct for v in verdicts] == [False, True]
    assert _children() <= before


def test_workers_find_packages_where_PYTHONPATH_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Python that has nothing installed, as on a machine whose packages lie in a folder."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(pool_module.sys, "executable", str(bare))
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_paths()["purelib"])
    assert [v.correct for v in verify_math([MathItem(r"\frac{1}{2}", "0.5")], workers=1)] == [True]


def test_an_abandoned_iterator_ends_its_workers() -> None:
    before = _children()
    verdicts = verify_math((MathItem("1", "1") for _ in range(10**9)), workers=1)
    assert next(verdicts).correct
    verdicts.close()  # type: ignore[attr-defined]
    assert _children() <= before


def test_workers_load_no_torch() -> None:
    with MathPool(workers=1) as pool:
        maps = Path(f"/proc/{pool._all[0]._process.pid}/maps").read_text()
    assert "libtorch" not in maps


SUPERVISED = """
import json, sys, time
from reasoner.records import Outcome, Verdict
from reasoner.verifiers.worker import WALL_FACTOR, Supervisor

def decide(item):
    end = time.process_time() + float(item.prediction)
    while time.process_time() < end:
        pass
    time.sleep(float(item.gold))
    return Verdict(Outcome.CORRECT, "done")

supervisor = Supervisor(decide, 0.4)
for asleep, computing in ((0, 0), (0.8, 0), (9, 0), (0, 9), (0.5, 0.1)):
    row = json.dumps({"gold": str(asleep), "prediction": str(computing)}).encode() + b"\\n"
    started = time.monotonic()
    verdict = supervisor.verdict(row)
    print(json.dumps([verdict["outcome"], verdict["reason"], time.monotonic() - started]))
supervisor.close()
"""


def test_the_limit_is_processor_time_and_a_starved_judge_blames_nobody() -> None:
    """Sleeping stands for a machine that lets others compute: slow is not wrong."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    child = subprocess.run(
        [sys.executable, "-c", SUPERVISED],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    rows = [json.loads(line) for line in child.stdout.splitlines()]
    assert [row[:2] for row in rows] == [
        ["correct", "done"],
        ["correct", "done"],  # twice the limit by the clock, hardly any processor time
        ["unscored", "starved"],
        ["incorrect", "timeout"],
        ["correct", "done"],
    ]
    assert rows[2][2] >= 2 * 0.4 * WALL_FACTOR, "tried twice, each for the whole time"
