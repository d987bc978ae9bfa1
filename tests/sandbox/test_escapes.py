"""Every hostile program of `attacks.py`, in the real sandbox, with canaries that would show a breach."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reasoner.sandbox import Limits, Program, Sandbox, Status, run_programs
from reasoner.sandbox.jobs import Result
from reasoner.sandbox.namespaces import ProcessNamespace
from reasoner.sandbox.session import Session
from tests.sandbox.attacks import EXHAUSTIONS, FORGERIES, LEAKS, Exhaustion

pytestmark = pytest.mark.sandbox
LIMITS = Limits(wall_seconds=1.5, cpu_seconds=5)
GRACE_SECONDS = 8.0
"""On a busy machine; a judge that waits for the program instead takes 60 seconds."""


@dataclass
class World:
    """What a breach would touch."""

    secret: str
    folder: Path
    tcp: socket.socket
    unix: socket.socket
    places: dict[str, Any]

    def assert_untouched(self) -> None:
        assert [p.name for p in self.folder.iterdir()] == ["canary"]
        assert self.secret in (self.folder / "canary").read_text()
        for listener in (self.tcp, self.unix):
            with pytest.raises(BlockingIOError):
                listener.accept()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    secret = secrets.token_hex(16)
    monkeypatch.setenv("HF_TOKEN", "hf_" + secret)
    folder = tmp_path / "canaries"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "canary").write_text("token " + secret)
    abstract = f"\0reasoner-{secret}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        unix.bind(abstract)
        for listener in (tcp, unix):
            listener.listen()
            listener.setblocking(False)
        places = {
            "canary": str(folder / "canary"),
            "folder": str(folder),
            "home": str(Path.home()),
            "here": str(Path(__file__).resolve()),
            "port": tcp.getsockname()[1],
            "abstract": abstract,
            "pid": os.getpid(),
            "secret_mark": secret,
        }
        yield World(secret, folder, tcp, unix, places)


def attack(sandbox: Sandbox, source: str, limits: Limits = LIMITS) -> Result:
    """Run `f(1, 2)` of a hostile candidate; asserts that it ends in time and that no process is left."""
    started = time.monotonic()
    with Session(sandbox, source, limits=limits) as session:
        assert session.pid is not None
        namespace = ProcessNamespace.of(session.pid)
        result = session.evaluate("f(1, 2)")
    assert time.monotonic() - started < limits.wall_seconds + GRACE_SECONDS
    if namespace is not None:
        with namespace:
            assert namespace.processes() == []
    assert result.status is not Status.HARNESS_ERROR, "a program must not be able to look like our failure"
    return result


@pytest.mark.parametrize("name", FORGERIES)
def test_no_forgery_equals_the_expected_value(sandbox: Sandbox, name: str) -> None:
    expected = secrets.randbits(120)
    result = attack(sandbox, FORGERIES[name])
    assert result.value != expected
    assert expected != result.value
    assert result.value != [expected]
    assert result.value != {expected: 1}
    # What an object claims to be equal to never gets out: plain values only.
    assert result.value is None or type(result.value) in (int, float, str, list, dict, bytes)


@pytest.mark.parametrize("name", LEAKS)
def test_nothing_gets_out_or_in(sandbox: Sandbox, world: World, name: str) -> None:
    # The secrets that a source must not hold are put together inside, so that its own text is no leak.
    source = LEAKS[name].format(**world.places | {"secret_mark": world.secret[::-1]})
    result = attack(sandbox, source)
    shown = repr(result)
    assert world.secret not in shown
    assert world.secret[::-1] not in shown, "the attack reports success"
    world.assert_untouched()


@pytest.mark.parametrize("name", EXHAUSTIONS)
def test_exhaustion_ends_in_time(sandbox: Sandbox, name: str) -> None:
    case: Exhaustion = EXHAUSTIONS[name]
    before = resident_bytes()
    result = attack(sandbox, case.source)
    assert result.status in case.statuses, result
    if result.ok:
        assert case.most is not None and result.value <= case.most
    assert resident_bytes() - before < 64 << 20, "the judge itself grew"
    assert sandbox.evaluate_program("answer = 1").value == "1.0"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_forger_does_see_what_a_naive_judge_would_hold(sandbox: Sandbox) -> None:
    """The hunts do find a number when it is there: so that they find none in the attacks means something."""
    for name in ("frame walk", "gc hunt for numbers"):
        number = secrets.randbits(120) | 1 << 119
        source = (
            FORGERIES[name]
            + f"\nimport gc\nheld = [[{number}]]\ndef g():\n    x = {number}\n    return f(1, 2)"
        )
        with Session(sandbox, source, limits=LIMITS) as session:
            assert session.evaluate("g()").value == number


def test_the_leak_tests_would_notice(world: World) -> None:
    """The same programs on the bare machine do reach the canaries, so the table can fail."""
    reached = []
    for name in (
        "environment",
        "canary file",
        "loopback",
        "abstract socket",
        "write outside",
        "this repository",
    ):
        source = LEAKS[name].format(**world.places | {"secret_mark": world.secret[::-1]})
        child = subprocess.run(
            [sys.executable, "-c", source + "\nprint(ascii(f(1, 2)))"],
            capture_output=True,
            text=True,
            check=False,
        )
        if (
            world.secret in child.stdout
            or world.secret[::-1] in child.stdout
            or (world.folder / "escaped").exists()
        ):
            reached.append(name)
    assert reached == [
        "environment",
        "canary file",
        "loopback",
        "abstract socket",
        "write outside",
        "this repository",
    ]


def test_memory_of_all_processes_together(sandbox: Sandbox) -> None:
    """Eight processes of 100 MiB each are under the limit of each, and over that of all."""
    source = (
        "import os, time\n"
        "def f(n):\n"
        "    for _ in range(n):\n"
        "        if os.fork() == 0:\n"
        "            x = bytearray(b'x') * (100 << 20)\n"
        "            time.sleep(60)\n"
        "    time.sleep(8)\n"
        "    return n\n"
    )
    limits = Limits(wall_seconds=20, memory_mib=256)
    result = sandbox.evaluate_calls(source, ["f(8)"], limits=limits)
    assert result.calls[0].status is Status.MEMORY
    assert result.seconds < 8


def test_memory_just_under_the_limit_times_workers(sandbox: Sandbox) -> None:
    """Each may have what its limit says, at the same time as the others, and the judge does not grow with them."""
    before = resident_bytes()
    program = "x = bytearray(b'x') * (96 << 20)\nimport time\ntime.sleep(0.3)\nanswer = len(x) >> 20"
    limits = Limits(wall_seconds=30, memory_mib=192)
    results = run_programs([Program(program, limits)] * 6, workers=3, sandbox=sandbox)
    assert [getattr(r, "value", None) for r in results] == ["96.0"] * 6
    assert resident_bytes() - before < 32 << 20


def test_runs_do_not_see_each_other(sandbox: Sandbox) -> None:
    source = "import os\nseen = os.listdir('/tmp')\nopen('/tmp/note', 'w').write('hello')"
    for _ in range(2):
        assert sandbox.evaluate_calls(source, ["seen"]).calls[0].value == []


def test_folders_inside_the_system_can_be_hidden(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project under /usr/src, as in some images, is masked."""
    source = "import os\nfound = os.listdir('/usr/share')"
    assert sandbox.evaluate_calls(source, ["found"]).calls[0].value
    monkeypatch.setattr("reasoner.sandbox.sandbox._hidden_folders", lambda: ["/usr/share"])
    assert sandbox.evaluate_calls(source, ["found"]).calls[0].value == []


def test_the_interpreter_is_shown_where_its_folder_is_hidden(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = os.path.dirname(os.path.dirname(os.path.realpath(os.__file__)))
    monkeypatch.setattr("reasoner.sandbox.sandbox._hidden_folders", lambda: [os.path.dirname(hidden)])
    assert sandbox.evaluate_program("import statistics\nanswer = statistics.mean([1, 3])").value == "2.0"


ORPHAN = """
import sys
from reasoner.sandbox import Limits, Sandbox
from reasoner.sandbox.session import Session
with Session(Sandbox.detect(), "def f():\\n    while True: pass", limits=Limits(wall_seconds=60)) as session:
    print(session.pid, flush=True)
    session.evaluate("f()")
"""


def test_nothing_outlives_a_killed_parent(sandbox: Sandbox) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    ) as parent:
        assert parent.stdout is not None
        namespace = ProcessNamespace.of(int(parent.stdout.readline()))
        assert namespace is not None and namespace.processes()
        parent.kill()
    with namespace:
        deadline = time.monotonic() + 10
        while namespace.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert namespace.processes() == []


def test_nothing_is_left_where_the_outer_process_does_not_react(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that hardly lets it run: it is killed, and the end waits for the rest to go too."""
    monkeypatch.setattr("reasoner.sandbox.process.END_SECONDS", 0.5)
    for _ in range(3):
        with Session(
            sandbox, "import os, time\nos.fork()\ndef f():\n    while True: time.sleep(1)"
        ) as session:
            assert session.pid is not None
            namespace = ProcessNamespace.of(session.pid)
            assert namespace is not None and len(namespace.processes()) >= 2
            os.kill(session.pid, signal.SIGSTOP)
        with namespace:
            assert namespace.processes() == []


def test_a_session_outlives_the_thread_that_started_it(sandbox: Sandbox) -> None:
    started: list[Session] = []
    thread = threading.Thread(target=lambda: started.append(Session(sandbox, "x = 5")))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with started[0] as session:
        assert session.evaluate("x").value == 5


ORDINARY_USER = """
from reasoner.sandbox import Sandbox
from reasoner.sandbox.selftest import self_test
sandbox = Sandbox.detect()
assert not sandbox.as_root
for check in self_test():
    print(check)
for source in ("import os\\nos.kill(1, 9)\\nanswer = 1", "import os\\nos.kill(-1, 9)\\nanswer = 1",
               "import os\\nos.killpg(0, 9)\\nanswer = 1", "import os\\nos.setresuid(0, 0, 0)\\nanswer = 1"):
    result = sandbox.evaluate_program(source)
    print("result", result.status)
"""


def test_as_an_ordinary_user() -> None:
    """The walls stand for a user without privileges too."""
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    interpreter = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if _usable(p)), None)
    if interpreter is None:
        pytest.skip("no Python of version 3.11 or later that another user may execute")
    repository = Path(__file__).resolve().parents[2]
    demote = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]
    try:
        child = subprocess.run(
            [*demote, interpreter, "-c", ORDINARY_USER],
            env={"PYTHONPATH": str(repository), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("setpriv is not installed")
    if "SandboxUnavailableError" in child.stderr or "PermissionError" in child.stderr:
        pytest.skip(f"not possible here as another user: {child.stderr.strip().splitlines()[-1]}")
    assert child.returncode == 0, child.stderr
    lines = child.stdout.splitlines()
    assert not [line for line in lines if "FAILED" in line]
    assert any(line.startswith("limit of processes: passed") for line in lines)
    results = [line for line in lines if line.startswith("result")]
    assert results[0] == "result ok"  # process 1 cannot be killed from inside
    assert all(line in ("result ok", "result killed", "result exception") for line in results)


def _usable(path: str) -> bool:
    if not os.path.exists(path):
        return False
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([path, "-I", "-c", code], check=False).returncode == 0


def test_a_held_namespace_is_not_taken_for_a_later_one(sandbox: Sandbox) -> None:
    """The kernel gives the number of an ended namespace to a later one, soon, unless it is held."""
    with contextlib.ExitStack() as held:
        ended = []
        for _ in range(8):
            with Session(sandbox, "x = 1") as session:
                assert session.pid is not None
                namespace = ProcessNamespace.of(session.pid)
                assert namespace is not None
                ended.append(held.enter_context(namespace))
        for _ in range(40):
            with Session(sandbox, "x = 1") as session:
                assert session.load.ok
                assert [namespace.processes() for namespace in ended] == [[]] * len(ended)
