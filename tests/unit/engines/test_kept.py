"""A kept engine, with real processes and a scripted engine inside (a real model: tests/e2e/test_kept_engine.py).

Wrong if the next client gets another engine, adapters or answers of the one before, an engine of other settings,
another model or older code; if two engines are alive at once; if an engine outlives its time, its worker, a client that
vanished or `reasoner down`; if a record without an engine, or with the number of another process, does harm; or if a
secret is in its environment.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flows.commands.services import down
from reasoner.engines.kept import identity, process, record, slot
from reasoner.engines.kept.slot import KeptSlot, clear_all
from reasoner.engines.pool import EnginePool
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.errors import EngineError
from reasoner.home import Home
from reasoner.process.owner import owner_is_dead, owner_tag, parse_tag
from tests.support.engine_client import FOREVER, SETTINGS, connect
from tests.unit.engines.test_remote import ROOT, gone
from tests.unit.engines.test_scripted import request, scripted

AT_ONCE = 10.0
"""Seconds in which an engine ends with its client."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path)
    yield found
    clear_all(found)


def record_of(home: Home) -> record.Record:
    found = record.read(record.record_path(home, record.slot_name()))
    assert found is not None
    return found


def client(home: Home, how: str, owner: str = "") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.engine_client", str(home.path), owner or owner_tag(), how],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def pid_from(client: "subprocess.Popen[str]") -> int:
    assert client.stdout is not None
    return int(client.stdout.readline())


def left_by_another(home: Home) -> int:
    """The pid of an engine that another process has used and left; that process's group is killed."""
    other = client(home, "leave")
    pid = pid_from(other)
    assert other.wait(60) == 0
    with suppress(ProcessLookupError):
        os.killpg(other.pid, signal.SIGKILL)
    assert other.stdout is not None
    other.stdout.close()
    return pid


def taken(home: Home, settings: EngineSettings = SETTINGS) -> tuple[KeptSlot, RemoteEngine]:
    here = KeptSlot(home, owner_tag(), FOREVER)
    return here, connect(here, settings, home.path / "note")


def texts(engine: RemoteEngine, count: int = 3) -> list[str]:
    answers = dict(engine.generate([request("one", index=i) for i in range(count)]))
    return [answers[i].text for i in range(count)]


def test_the_next_client_gets_the_same_engine_without_adapters(home: Home) -> None:
    pid = left_by_another(home)
    here, engine = taken(home)
    assert engine.pid == pid
    assert texts(engine) == [
        "one #0 @",
        "one #1 @",
        "one #2 @",
    ]  # the other's cancelled call cancels nothing here
    with pytest.raises(EngineError, match="'policy' is not loaded"):
        list(engine.generate([request(adapter="policy")]))
    first, second = (home.path / "note").read_text().splitlines()
    assert first.startswith("started the scripted engine") and second.startswith(
        "uses the kept scripted engine"
    )
    assert f"process {pid}" in first and f"process {pid}" in second
    engine.leave(FOREVER)
    here.give_back()
    assert not gone(pid, 0.1)
    engine.close()  # a client that has left has nothing to say any more
    assert not gone(pid, 0.5)


def test_an_engine_of_other_settings_is_gone_before_the_new_one_starts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = left_by_another(home)
    monkeypatch.setenv("REASONER_WATCHED", owner_tag(pid))
    os.kill(pid, signal.SIGSTOP)  # it takes its time to end
    here, engine = taken(home, scripted("neighbour"))
    assert engine.pid != pid
    assert [c.text for _, c in engine.generate([request()])] == ["gone"]
    assert gone(pid, 0.1)
    engine.close()
    here.give_back()


def test_another_model_environment_or_code_is_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "model" / "weights"
    weights.parent.mkdir()
    weights.write_text("a")
    settings = dataclasses.replace(SETTINGS, model_path=weights.parent)
    before = identity.identity(settings)
    assert identity.identity(settings) == before
    monkeypatch.setenv("REASONER_WATCHED", "another run")
    assert identity.identity(settings) == before
    found = [before]
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "TORCH_SDPA")
    found.append(identity.identity(settings))
    weights.write_text("b")
    found.append(identity.identity(settings))
    found.append(identity.identity(dataclasses.replace(settings, seed=1)))
    identity._code.cache_clear()
    monkeypatch.setattr(identity, "PACKAGES", ("pytest",))
    found.append(identity.identity(settings))
    identity._code.cache_clear()
    assert len(set(found)) == 5


def test_training_waits_until_the_engine_is_gone(home: Home) -> None:
    pid = left_by_another(home)
    tree = record._below(record_of(home).keeper)
    assert owner_tag(pid) in tree and len(tree) == 2  # the guard and the engine
    with EnginePool(home.path / "logs", kept=KeptSlot(home, owner_tag(), FOREVER)) as pool:
        with pool.without_engine():
            assert all(map(owner_is_dead, tree))
        pool.release_gpu()
    assert not list(home.engines.iterdir())


def test_nobody_comes_and_it_ends(home: Home) -> None:
    here, engine = taken(home)
    pid, found = engine.pid or 0, record_of(home)
    engine.leave(0.5)
    here.give_back()
    assert not gone(pid, 0.1)
    assert gone(pid, 10) and gone(parse_tag(found.keeper)[0], 10)
    assert not Path(found.socket).parent.exists()
    here, engine = taken(home)  # its record stands for nothing
    assert engine.pid != pid and texts(engine)
    engine.close()
    here.give_back()


@pytest.mark.parametrize("how", ["wait", "generate", "fork"])
def test_a_client_that_vanishes_takes_its_engine_along(home: Home, how: str) -> None:
    other = client(home, how)
    pid, found = pid_from(other), record_of(home)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert gone(pid, AT_ONCE) and gone(parse_tag(found.keeper)[0], AT_ONCE)
    with suppress(ProcessLookupError):
        os.killpg(other.pid, signal.SIGKILL)  # what it forked
    here, engine = taken(home)
    assert engine.pid != pid and texts(engine)
    engine.close()
    here.give_back()


def test_a_connection_that_is_closed_without_a_goodbye_ends_it(home: Home) -> None:
    here, engine = taken(home)
    pid, connection = engine.pid or 0, engine._process
    assert connection is not None
    connection.wire.close()
    assert gone(pid, AT_ONCE)
    here.give_back()


def test_a_second_client_waits_for_the_first(home: Home) -> None:
    here, engine = taken(home)
    other = client(home, "leave")
    assert other.stdout is not None
    assert "another stage has the engine of this machine" in other.stdout.readline()
    assert texts(engine)
    assert other.poll() is None
    engine.leave(FOREVER)
    here.give_back()
    assert pid_from(other) == record_of(home).pid
    assert other.wait(60) == 0
    other.stdout.close()


@pytest.mark.parametrize("which", ["engine", "keeper", "stopped"])
def test_an_engine_that_was_killed_or_hangs_is_replaced(
    home: Home, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, found = left_by_another(home), record_of(home)
    monkeypatch.setattr(slot, "WELCOME_SECONDS", 0.5)
    victim = parse_tag(found.keeper if which == "keeper" else found.engine)[0]
    os.kill(victim, signal.SIGSTOP if which == "stopped" else signal.SIGKILL)
    assert which == "stopped" or gone(victim, 10)
    here, engine = taken(home)
    assert engine.pid != pid and texts(engine) == ["one #0 @", "one #1 @", "one #2 @"]
    assert gone(pid, 0.1) and gone(victim, 0.1)
    engine.close()
    here.give_back()


def test_an_engine_that_dies_under_its_client_says_so(home: Home) -> None:
    here, engine = taken(home, scripted("dies_on_p3"))
    with pytest.raises(
        EngineError, match=r"(?s)scripted engine .* ended.*last words of this engine.*SIGKILL"
    ):
        list(engine.generate([request(problem=f"p{i}") for i in range(6)]))
    assert not engine.usable
    engine.leave(FOREVER)
    here.give_back()


def test_an_engine_that_can_not_start_says_why_and_is_gone(home: Home) -> None:
    with pytest.raises(EngineError, match="was ended by SIGKILL") as caught:
        taken(
            home,
            EngineSettings("scripted", Path("m"), options={"script": "tests.unit.engines.dies_at_start:f"}),
        )
    assert "engine-" in str(caught.value)
    assert record_of(home).gone


def test_a_record_with_a_number_of_another_process_harms_nobody(home: Home) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    pid, start, *rest = owner_tag(bystander.pid).split("-")
    stale = "-".join([pid, str(int(start) - 1), *rest])
    path = record.record_path(home, record.slot_name())
    wanted = identity.identity(dataclasses.replace(SETTINGS, model_path=Path(".").resolve()))
    record.write(path, record.Record(stale, stale, wanted, "scripted", "m", str(home.path / "s"), "log", 0.0))
    here, engine = taken(home)
    assert texts(engine)
    assert bystander.poll() is None
    headless = dataclasses.replace(record_of(home), keeper=stale)
    assert record_of(home).well and not headless.well and not headless.gone
    engine.close()
    here.give_back()
    path.write_text("{half a rec")
    here.clear()
    here.give_back()
    bystander.kill()
    bystander.wait()


def test_it_ends_with_its_worker(home: Home) -> None:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    other = client(home, "leave", owner_tag(worker.pid))
    pid = pid_from(other)
    assert other.wait(60) == 0
    assert not gone(pid, 1)
    worker.kill()
    worker.wait()
    assert gone(pid, AT_ONCE)


def test_down_ends_what_is_idle_and_leaves_what_is_in_use(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REASONER_HOME", str(home.path))
    here, engine = taken(home)
    down()
    assert "kept" not in capsys.readouterr().err and texts(engine)
    pid = engine.pid or 0
    engine.leave(FOREVER)
    here.give_back()
    down()
    assert f"ended       kept scripted engine for . (process {pid})" in capsys.readouterr().err
    assert gone(pid, 0.1) and not list(home.engines.iterdir())


def test_an_engine_that_can_not_be_left_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    here, engine = taken(home)
    pid = engine.pid or 0
    monkeypatch.setattr(process, "LEAVE_SECONDS", 0.3)
    os.kill(pid, signal.SIGSTOP)
    engine.leave(FOREVER)
    here.give_back()
    assert gone(pid, 0.1)


def test_an_engine_that_has_slept_is_not_handed_on(home: Home) -> None:
    here, engine = taken(home)
    pid = engine.pid or 0
    engine.sleep()
    engine.wake()
    engine.leave(FOREVER)
    here.give_back()
    assert gone(pid, 0.1)


def test_leaving_in_the_middle_of_a_generation_ends_it(home: Home) -> None:
    here, engine = taken(home)
    answers = engine.generate([request(index=i) for i in range(3000)])
    next(answers)
    pid = engine.pid or 0
    leaving = threading.Thread(target=engine.leave, args=(FOREVER,))
    leaving.start()
    with pytest.raises(EngineError, match="was closed"):
        list(answers)
    leaving.join(60)
    assert gone(pid, AT_ONCE)
    here.give_back()


def test_an_interrupted_start_leaves_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def interrupt(path: Path, keeper: "subprocess.Popen[bytes]") -> None:
        started.append(keeper.pid)
        time.sleep(0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(slot, "_reach", interrupt)
    with pytest.raises(KeyboardInterrupt):
        taken(home)
    assert gone(started[0], 0.1)


def test_its_environment_holds_no_secret(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary-of-a-token")
    monkeypatch.setenv("REASONER_STORE_PASSWORD", "canary-of-a-password")
    here, engine = taken(home)
    found = record_of(home)
    for tag in (found.keeper, found.engine):
        assert b"canary" not in Path(f"/proc/{parse_tag(tag)[0]}/environ").read_bytes()
    assert Path(found.socket).parent.stat().st_mode & 0o777 == 0o700
    engine.close()
    here.give_back()


def test_a_slot_is_only_for_a_stage_under_a_worker_and_a_time(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(slot.OWNER, raising=False)
    assert slot.kept_slot(home, 300, print) is None
    monkeypatch.setenv(slot.OWNER, owner_tag())
    assert slot.kept_slot(home, 0, print) is None
    assert slot.kept_slot(home, 300, print) is not None
