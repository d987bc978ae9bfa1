"""Children: their log, progress, environment, failures, and the end of their whole tree."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.errors import ChildFailedError, InfrastructureError
from reasoner.process import progress, run_child, start_child

PYTHON = [sys.executable, "-c"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "child.log"


@pytest.fixture(autouse=True)
def no_descriptor_is_lost() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == len(before)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return handle.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.01)


def read_pids(path: Path, count: int) -> list[int]:
    wait_for(lambda: path.exists() and len(path.read_text().split()) == count)
    return [int(word) for word in path.read_text().split()]


FAMILY = """
import os, signal, subprocess, sys, time
# A child, a grandchild in its group, one in a session of its own that ignores SIGTERM, and a daemon.
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
append = "import os, time; open({0!r}, 'a').write(str(os.getpid()) + '\\\\n'); time.sleep(100)"
write = append.format(sys.argv[1])
subprocess.Popen([sys.executable, "-c", write])
subprocess.Popen([sys.executable, "-c", stubborn + write], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", write])
    os._exit(0)
exec(write)
"""


def test_output_goes_to_the_log_and_is_appended(log: Path) -> None:
    code = "import sys, os; print('out'); print('err', file=sys.stderr); os.write(1, b'\\xff\\n')"
    run_child([*PYTHON, code], log=log)
    run_child([*PYTHON, "print('again')"], log=log)
    assert sorted(log.read_bytes().split(b"\n")) == sorted([b"", b"out", b"err", b"\xff", b"again"])


def test_the_child_has_its_own_session_and_no_input(log: Path) -> None:
    run_child(
        [*PYTHON, "import os, sys; print(os.getpid(), os.getpgid(0), os.getsid(0), repr(sys.stdin.read()))"],
        log=log,
    )
    pid, group, session, text = log.read_text().split()
    assert pid == group == session and int(session) != os.getsid(0) and text == "''"


def test_signals_are_as_in_any_program(log: Path) -> None:
    code = "import signal; print([signal.getsignal(s) for s in (15, 1, 17)] == [signal.SIG_DFL] * 3)"
    run_child([*PYTHON, code], log=log)
    assert log.read_text() == "True\n"


def test_progress_arrives_in_order_also_from_grandchildren(log: Path) -> None:
    code = """
import subprocess, sys
from reasoner.process.progress import report
for i in range(500):
    assert report(done=i, total=500, loss=0.5, name="ä")
worker = "from reasoner.process.progress import report; assert report(done=500, worker=True)"
subprocess.run([sys.executable, "-c", worker], check=True)
"""
    seen: list[dict[str, Any]] = []
    run_child([*PYTHON, code], log=log, on_progress=seen.append)
    assert [report["done"] for report in seen] == list(range(501))
    assert seen[0] == {"done": 0, "total": 500, "loss": 0.5, "name": "ä"}
    assert seen[-1] == {"done": 500, "worker": True}


def test_a_long_report_is_cut_and_a_slow_parent_never_blocks_the_child(log: Path) -> None:
    code = """
from reasoner.process.progress import report
assert report(done=1, total=2, text="x" * 10_000)
sent = [report(done=i, text="y" * 1000) for i in range(2000)]
print(sent.count(False) > 0)
"""
    seen: list[dict[str, Any]] = []

    def slow(report: dict[str, Any]) -> None:
        seen.append(report)
        if len(seen) == 2:
            wait_for(lambda: log.read_text() == "True\n")

    run_child([*PYTHON, code], log=log, on_progress=slow)
    assert seen[0] == {"done": 1, "total": 2, "cut": True}
    assert len(seen) > 2


def test_a_report_outside_a_child_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    assert progress.report(done=1) is False
    with (tmp_path / "innocent").open("wb") as handle:
        for value in (f"{handle.fileno()}:1:{os.getpid()}", "junk", "1:2", f"99999:1:{os.getpid()}"):
            monkeypatch.setenv(progress.VARIABLE, value)
            assert progress.report(done=1) is False
    assert (tmp_path / "innocent").read_bytes() == b""


def test_the_environment_is_an_allowed_part_plus_what_is_given(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    for name in (
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "VLLM_API_KEY",
        "MY_SETTING",
        "PREFECT_API_KEY",
    ):
        monkeypatch.setenv(name, "canary")
    code = "import os; print(*(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')"
    run_child([*PYTHON, code], log=log, env={"GIVEN": "yes", "OMP_NUM_THREADS": "2"})
    lines = log.read_text().split("\n")
    assert "canary" not in log.read_text()
    assert {"OMP_NUM_THREADS=2", "TOKENIZERS_PARALLELISM=false", "GIVEN=yes", "PYTHONUNBUFFERED=1"} <= set(
        lines
    )


def test_a_failure_shows_the_last_lines_and_the_log(log: Path) -> None:
    log.parent.mkdir()
    log.write_text("an older run\n")
    code = "import sys; print('\\n'.join(map(str, range(100)))); print('10%\\r20%\\rboom'); sys.exit(3)"
    with pytest.raises(ChildFailedError) as caught:
        run_child([*PYTHON, code], log=log)
    message = str(caught.value)
    assert "ended with exit status 3" in message and str(log) in message
    assert message.endswith("| 98\n  | 99\n  | 10%\n  | 20%\n  | boom") and "| 90\n" not in message
    with pytest.raises(ChildFailedError, match="It wrote nothing"):
        run_child([*PYTHON, "raise SystemExit(1)"], log=log)


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, r"SIGKILL \(killed for memory\?\)"), (signal.SIGSEGV, "ended by SIGSEGV")],
)
def test_a_death_by_signal_is_named(log: Path, number: int, words: str) -> None:
    with pytest.raises(ChildFailedError, match=words):
        run_child([*PYTHON, f"import os; os.kill(os.getpid(), {int(number)})"], log=log)
    with pytest.raises(ChildFailedError, match="killed for memory"):
        run_child([*PYTHON, "raise SystemExit(137)"], log=log)


def test_a_program_that_is_not_there(log: Path, tmp_path: Path) -> None:
    with pytest.raises(ChildFailedError, match="cannot start: /no/such/program: No such file"):
        run_child(["/no/such/program"], log=log)
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot start"):
        run_child([*PYTHON, "1"], log=tmp_path / "file" / "log")
    with pytest.raises(InfrastructureError, match="cannot start"):
        run_child([*PYTHON, "1"], log=log, cwd=tmp_path / "nowhere")


def test_a_limit_ends_the_child(log: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ChildFailedError, match=r"stopped after its limit of 0\.5 s"):
        run_child(["sleep", "100"], log=log, timeout=0.5)
    assert 0.5 <= time.monotonic() - start < 10


def test_terminate_ends_the_whole_tree(log: Path, tmp_path: Path) -> None:
    with start_child([*PYTHON, FAMILY, tmp_path / "pids"], log=log) as child:
        pids = read_pids(tmp_path / "pids", 4)
        assert child.poll() is None and all(alive(pid) for pid in pids)
        child.terminate(grace=0.2)
        assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_exception_here_ends_the_whole_tree(log: Path, tmp_path: Path, error: type[BaseException]) -> None:
    code = "from reasoner.process.progress import report; report(done=0)\n" + FAMILY

    def interrupt(report: dict[str, Any]) -> None:
        read_pids(tmp_path / "pids", 4)
        raise error

    with pytest.raises(error):
        run_child([*PYTHON, code, tmp_path / "pids"], log=log, on_progress=interrupt, grace=0.2)
    assert not any(alive(pid) for pid in read_pids(tmp_path / "pids", 4))


def test_a_real_interrupt_in_the_wait(log: Path, tmp_path: Path) -> None:
    import threading

    def interrupt() -> None:
        read_pids(tmp_path / "pids", 4)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_child([*PYTHON, FAMILY, tmp_path / "pids"], log=log, grace=0.2)
    thread.join()
    assert not any(alive(pid) for pid in read_pids(tmp_path / "pids", 4))


def test_sigterm_comes_first_once_and_leaves_time_to_save(log: Path) -> None:
    code = """
import signal, sys, time
count = 0
def save(number, frame):
    global count
    count += 1
signal.signal(signal.SIGTERM, save)
print("ready")
while not count:
    time.sleep(0.01)
time.sleep(0.3)
print("saved", count)
"""
    with start_child([*PYTHON, code], log=log) as child:
        wait_for(lambda: "ready" in log.read_text())
        assert child.poll() is None and child.pid is not None and alive(child.pid)
        start = time.monotonic()
        assert child.terminate() == 0
        assert 0.25 < time.monotonic() - start < 5
    assert log.read_text() == "ready\nsaved 1\n"


def test_what_a_child_leaves_behind_is_ended_too(log: Path, tmp_path: Path) -> None:
    wait = "while not os.path.exists(sys.argv[1]) or len(open(sys.argv[1]).readlines()) < 3: time.sleep(0.01)"
    code = FAMILY.replace("exec(write)", wait)
    run_child([*PYTHON, code, tmp_path / "pids"], log=log)
    assert not any(alive(pid) for pid in read_pids(tmp_path / "pids", 3))


def test_an_engine_lives_on_until_its_block_ends(log: Path) -> None:
    code = "from reasoner.process.progress import report; import time; report(ready=True); time.sleep(100)"
    seen: list[dict[str, Any]] = []
    with start_child([*PYTHON, code], log=log, on_progress=seen.append) as child:
        assert child.wait(0.0) is None
        wait_for(lambda: child.poll() is None and seen)
        child.check()
        assert child.pid is not None and alive(child.pid)
    assert child.returncode == -signal.SIGTERM and not alive(child.pid)
    assert child.terminate() == -signal.SIGTERM


def test_check_tells_of_an_engine_that_died(log: Path) -> None:
    with start_child([*PYTHON, "print('out of memory'); raise SystemExit(4)"], log=log) as child:
        assert child.wait(20) == 4
        with pytest.raises(ChildFailedError, match=r"exit status 4.*\n.*out of memory"):
            child.check()


def test_a_killed_guard_is_noticed_and_takes_the_child_along(log: Path) -> None:
    with start_child([*PYTHON, "import time; print('up'); time.sleep(100)"], log=log) as child:
        wait_for(lambda: child.poll() is None and child.pid and "up" in log.read_text())
        os.kill(child._guard.pid, signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
        with pytest.raises(ChildFailedError, match="guard"):
            child.check()
        assert child.pid is not None
        wait_for(lambda: not alive(child.pid))


def test_a_child_that_is_forgotten_ends(log: Path) -> None:
    child = start_child([*PYTHON, "import time; time.sleep(100)"], log=log)
    while child.poll() is None and child.pid is None:
        time.sleep(0.01)
    pid, guard = child.pid, child._guard
    del child
    assert pid is not None
    wait_for(lambda: not alive(pid), 5)
    guard.wait()


def test_a_child_is_told_nothing_of_this_process_s_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TORCHELASTIC_USE_AGENT_STORE torch takes a TCP store that it should open for the launcher's, and waits."""
    from reasoner.process.environment import child_environment

    told = ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "MASTER_PORT")
    for name in (*told, "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "1")
    passed = child_environment()
    assert not set(told) & set(passed) and "TORCHINDUCTOR_CACHE_DIR" in passed
