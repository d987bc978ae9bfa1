"""An engine's process, run with real processes and a scripted engine inside."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.pool import EnginePool
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.wire import settings_digest
from reasoner.errors import ConfigurationError, EngineError, ModelError, UsageError
from reasoner.records import GenerationRequest, Sampling
from tests.unit.engines.test_scripted import request, scripted

ROOT = Path(__file__).resolve().parents[3]
DIES_AT_START = EngineSettings(
    "scripted", Path("m"), options={"script": "tests.unit.engines.dies_at_start:f"}
)


def gone(pid: int, within: float) -> bool:
    """Whether the process ends (or is a zombie) within so many seconds."""
    end = time.monotonic() + within
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)


def unusable(engine: RemoteEngine, within: float) -> bool:
    """Whether the engine says so within so many seconds. A killed process shows as a zombie a little earlier: its
    other threads still hold the connection."""
    end = time.monotonic() + within
    while engine.usable and time.monotonic() < end:
        time.sleep(0.01)
    return not engine.usable


def test_every_request_is_answered_once_and_adapters_arrive(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted(adapters=True), log=tmp_path / "logs" / "engine.log")
    assert isinstance(engine, Engine)
    engine.load_adapter("policy", tmp_path)
    requests = [request(f"q {i}", index=i, adapter="policy" if i % 2 else "") for i in range(1000)]
    answers = list(engine.generate(iter(requests)))
    assert sorted(i for i, _ in answers) == list(range(1000))
    assert all(c.text == f"q {i} #{i} @{requests[i].adapter}" for i, c in answers)
    assert list(engine.generate([])) == []
    pid = engine.pid
    assert pid
    engine.close()
    engine.close()
    assert gone(pid, 0.1)
    with pytest.raises(EngineError, match="closed"):
        list(engine.generate(requests))


def test_completions_come_as_they_finish_and_an_early_end_leaves_the_engine_usable(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted(delay=0.3), log=tmp_path / "log")
    start = time.monotonic()
    answers = engine.generate([request(problem=str(i)) for i in range(200)])
    assert next(answers)[0] == 0
    assert time.monotonic() - start < 30  # all of them take 60 s
    with pytest.raises(EngineError, match="finish or close that iterator"):
        next(engine.generate([request()]))
    answers.close()  # type: ignore[attr-defined]
    again = list(engine.generate([request("after", index=9)]))
    assert [(i, c.text) for i, c in again] == [(0, "after #9 @")]
    assert time.monotonic() - start < 30
    engine.close()


def test_an_exception_in_the_engine_comes_back_and_the_engine_lives_on(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted("fails_on_p3"), log=tmp_path / "log")
    got = []
    with pytest.raises(EngineError, match=r"no answer to p3.*log"):
        for i, _ in engine.generate([request(problem=f"p{i}") for i in range(6)]):
            got.append(i)
    assert got == [0, 1, 2]
    assert len(list(engine.generate([request(), request()]))) == 2
    with pytest.raises(UsageError, match="adapters=True"):
        engine.load_adapter("a", tmp_path)
    engine.close()


def test_requests_that_raise_half_way_leave_the_engine_usable(tmp_path: Path) -> None:
    def broken() -> Any:
        yield request()
        raise RuntimeError("the caller's own trouble")

    engine = RemoteEngine(scripted(), log=tmp_path / "log")
    with pytest.raises(RuntimeError, match="own trouble"):
        list(engine.generate(broken()))
    assert len(list(engine.generate([request()] * 3))) == 3
    engine.close()


def test_a_killed_engine_is_an_engine_error_with_its_last_words(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted("dies_on_p3"), log=tmp_path / "engine.log")
    got = []
    with pytest.raises(EngineError, match=r"(?s)SIGKILL.*engine\.log.*last words of this engine"):
        for i, _ in engine.generate([request(problem=f"p{i}") for i in range(6)]):
            got.append(i)
    assert set(got) <= {0, 1, 2}
    assert not engine.usable
    with pytest.raises(EngineError, match="SIGKILL"):
        list(engine.generate([request()]))
    with pytest.raises(EngineError, match="SIGKILL"):
        engine.load_adapter("a", tmp_path)
    engine.close()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (scripted("missing"), ConfigurationError, "can't be loaded"),
        (EngineSettings("vllm", Path("/no/such")), ModelError, "no model in /no/such"),
        (DIES_AT_START, EngineError, r"(?s)the scripted engine for \S+ failed to start: .*SIGKILL.*\(log: "),
    ],
)
def test_an_engine_that_cannot_start_says_why(
    tmp_path: Path, settings: EngineSettings, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        RemoteEngine(settings, log=tmp_path / "log")


def test_closing_from_another_thread_ends_a_generation(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted(delay=0.2), log=tmp_path / "log")
    threading.Timer(0.5, engine.close).start()
    with pytest.raises(EngineError, match="was closed"):
        list(engine.generate([request()] * 100))


def test_an_idle_engine_ends_and_comes_back_with_its_adapters(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted(adapters=True), log=tmp_path / "log", idle_seconds=0.3)
    engine.load_adapter("policy", tmp_path)
    first = engine.pid
    assert first
    assert gone(first, 5)
    assert engine.usable
    assert dict(engine.generate([request(adapter="policy")]))[0].text.endswith("@policy")
    assert engine.pid != first
    engine.close()


def test_a_generation_longer_than_the_idle_limit_is_not_idle(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted(delay=0.1), log=tmp_path / "log", idle_seconds=0.2)
    assert len(list(engine.generate([request()] * 10))) == 10
    engine.close()


PARENT = """
import sys, time
from pathlib import Path
from reasoner.engines.remote import RemoteEngine
from tests.unit.engines.test_scripted import request, scripted
engine = RemoteEngine(scripted(delay=60), log=Path(sys.argv[1]))
answers = engine.generate([request()])
print(engine.pid, flush=True)
next(answers)
"""


def test_the_engine_dies_with_a_killed_parent(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert not gone(pid, 0.3)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(pid, 10)
    parent.stdout.close()


def test_no_socket_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = RemoteEngine(scripted(), log=tmp_path / "log")
    assert [p.name for p in tmp_path.iterdir()] == ["log"]
    engine.close()


class TestPool:
    def test_equal_settings_share_an_engine_and_others_replace_it(self, tmp_path: Path) -> None:
        with EnginePool(tmp_path) as pool:
            first = pool.acquire(scripted())
            assert pool.acquire(scripted()) is first
            second = pool.acquire(scripted(delay=0))
            assert second is not first
            pool.release_gpu()
            assert pool.acquire(scripted(delay=0)) is not second
        with pytest.raises(EngineError, match="pool is closed"):
            pool.acquire(scripted())

    def test_a_digest_counts_every_setting(self) -> None:
        base = EngineSettings("vllm", Path("m"))
        others = [
            EngineSettings("transformers", Path("m")),
            EngineSettings("vllm", Path("n")),
            EngineSettings("vllm", Path("m"), dtype="float32"),
            EngineSettings("vllm", Path("m"), seed=1),
            EngineSettings("vllm", Path("m"), adapters=True),
            EngineSettings("vllm", Path("m"), max_lora_rank=8),
            EngineSettings("vllm", Path("m"), options={"block_size": 32}),
        ]
        assert len({settings_digest(s) for s in [base, *others]}) == 8
        assert settings_digest(EngineSettings("vllm", Path("x/../m"))) == settings_digest(base)

    def test_processes_are_replaced_released_and_closed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "reasoner.engines.pool.open_engine", lambda s, *, log, idle_seconds: RemoteEngine(s, log=log)
        )
        with EnginePool(tmp_path) as pool:
            first = pool.acquire(scripted())
            second = pool.acquire(scripted("fails_on_p3"))
            assert isinstance(first, RemoteEngine)
            assert isinstance(second, RemoteEngine)
            assert first.pid is None
            pid = second.pid
            assert pid
            os.kill(pid, signal.SIGKILL)
            assert unusable(second, 2)
            third = pool.acquire(scripted("fails_on_p3"))
            assert isinstance(third, RemoteEngine)
            assert third is not second
            last = third.pid
            assert last
        assert gone(last, 0.1)

    def test_a_lease_keeps_others_waiting(self, tmp_path: Path) -> None:
        order: list[str] = []
        with EnginePool(tmp_path) as pool:

            def other() -> None:
                with pool.lease(scripted(delay=0)):
                    order.append("other")

            with pool.lease(scripted()) as engine:
                thread = threading.Thread(target=other)
                thread.start()
                time.sleep(0.2)
                order.append("first")
                assert pool.acquire(scripted()) is engine
            thread.join(timeout=5)
            with pool.without_engine():
                order.append("training")
        assert order == ["first", "other", "training"]


def test_a_request_keeps_its_sampling(tmp_path: Path) -> None:
    engine = RemoteEngine(scripted(), log=tmp_path / "log")
    cut = GenerationRequest("p", "one two three", Sampling(max_tokens=2, stop=("three",)))
    assert dict(engine.generate([cut]))[0].text == "one two "
    engine.close()
