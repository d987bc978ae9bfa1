"""Several engines that work as one.

Wrong if a prompt's samples are torn apart, if one engine gets far more than another, if a request is answered twice or
never, if one engine keeps an old adapter, if a failure leaves the others at work, or if two engines see one card.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reasoner import hardware
from reasoner.engines import engine_process
from reasoner.engines.protocol import EngineSettings, PolicyEngine
from reasoner.engines.scripted import ScriptedEngine
from reasoner.engines.several import SeveralEngines, deal
from reasoner.engines.start import open_engine
from reasoner.errors import EngineError, InfrastructureError, ModelError
from tests.unit.engines.test_scripted import request, scripted


class Watched(ScriptedEngine):
    """A scripted engine that remembers what it was asked and told."""

    def __init__(self, settings: EngineSettings, trouble: Exception | None = None) -> None:
        super().__init__(settings)
        self.asked: list[str] = []
        self.told: list[str] = []
        self.trouble, self.usable, self.ended = trouble, True, 0

    def load_adapter(self, name: str, path: Path) -> None:
        self.told.append(f"load {path.name}")
        if self.trouble:
            raise self.trouble
        super().load_adapter(name, path)

    def sleep(self) -> None:
        self.told.append("sleep")

    def wake(self) -> None:
        self.told.append("wake")

    def generate(self, requests: Any, *, logprobs: bool = False) -> Iterator[Any]:
        try:
            for i, answer in super().generate(requests, logprobs=logprobs):
                self.asked.append(answer.text)
                yield i, answer
        finally:
            self.ended += 1

    def close(self) -> None:
        self.told.append("close")


def two(
    first: EngineSettings | None = None,
    second: EngineSettings | None = None,
    trouble: Exception | None = None,
) -> tuple[SeveralEngines, Watched, Watched]:
    a = Watched(first or scripted(adapters=True))
    b = Watched(second or scripted(adapters=True), trouble)
    return SeveralEngines([lambda: a, lambda: b]), a, b


def test_samples_of_a_prompt_stay_together_and_the_load_is_even() -> None:
    sizes = [1, 8, 3, 8, 2, 5, 8, 1, 4]
    requests = [request(f"q {g}", index=i) for g, size in enumerate(sizes) for i in range(size)]
    requests += [request("q 1", adapter="policy")]  # another policy's prompt has another cache
    dealt = deal(requests, 3)
    assert sorted(i for share in dealt for i in share) == list(range(len(requests)))
    assert all(share == sorted(share) for share in dealt)
    homes = {(requests[i].prompt, requests[i].adapter): n for n, share in enumerate(dealt) for i in share}
    assert all(homes[requests[i].prompt, requests[i].adapter] == n for n, s in enumerate(dealt) for i in s)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert deal(requests, 3) == dealt, "a repeated call asks each engine the same again"
    assert deal([], 2) == [[], []]


def test_every_request_is_answered_once_by_one_of_both() -> None:
    several, a, b = two()
    assert isinstance(several, PolicyEngine)
    requests = [request(f"q {i // 4}", index=i) for i in range(80)]
    answers = list(several.generate(iter(requests)))
    assert Counter(i for i, _ in answers) == Counter(range(80))
    assert all(c.text == f"q {i // 4} #{i} @" for i, c in answers)
    assert len(a.asked) == len(b.asked) == 40
    assert list(several.generate([])) == []
    assert len(list(several.generate([request("alone")]))) == 1


class Together(Watched):
    """Before its first answer it waits for another one that has come as far."""

    meeting = threading.Barrier(2, timeout=60)

    def generate(self, requests: Any, *, logprobs: bool = False) -> Iterator[Any]:
        self.meeting.wait()
        yield from super().generate(requests, logprobs=logprobs)


def test_both_work_at_the_same_time() -> None:
    """One after another they would wait for each other in vain."""
    several = SeveralEngines([lambda: Together(scripted()), lambda: Together(scripted())])
    assert len(list(several.generate([request(str(i)) for i in range(20)]))) == 20


def test_what_is_told_to_one_is_told_to_all(tmp_path: Path) -> None:
    several, a, b = two()
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        several.load_adapter("policy", tmp_path / name)
    several.sleep()
    several.wake()
    assert a.told == b.told == ["load old", "load new", "sleep", "wake"]
    answers = several.generate([request(str(i), adapter="policy") for i in range(4)])
    assert sorted(c.text for _, c in answers) == [f"{i} #0 @policy" for i in range(4)]
    several.unload_adapter("policy")
    with pytest.raises(EngineError, match="not loaded"):
        several.unload_adapter("policy")
    assert several.usable, "both said the same"
    several.close()
    several.close()
    assert not several.usable and "close" in a.told and "close" in b.told
    with pytest.raises(EngineError, match="closed"):
        list(several.generate([request()]))


def test_engines_with_different_adapters_are_never_asked(tmp_path: Path) -> None:
    several, a, b = two(trouble=ModelError("this one can't"))
    with pytest.raises(ModelError, match="this one can't"):
        several.load_adapter("policy", tmp_path)
    assert not several.usable
    with pytest.raises(EngineError, match="open them again"):
        list(several.generate([request()]))
    assert not a.asked and not b.asked


def test_a_failure_stops_the_others_and_is_told_first() -> None:
    several, _, b = two(scripted("fails_on_p3"), scripted(delay=0.05))
    requests = [request(str(i), problem="p3" if i == 0 else f"x{i}") for i in range(200)]
    with pytest.raises(EngineError, match="no answer to p3"):
        list(several.generate(requests))
    assert b.ended == 1 and len(b.asked) < 90, "stopped at its next completion, and its iterator was closed"
    assert several.usable and len(list(several.generate([request("q", problem="p1")] * 4))) == 4
    b.usable = False
    assert not several.usable


def test_an_early_end_stops_both() -> None:
    several, a, b = two(scripted(delay=0.02), scripted(delay=0.02))
    answers = several.generate([request(str(i)) for i in range(400)])
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert (a.ended, b.ended) == (1, 1) and len(a.asked) + len(b.asked) < 300


def test_those_that_were_opened_are_closed_when_the_next_can_not_be() -> None:
    first, tried = Watched(scripted()), []

    def fail() -> PolicyEngine:
        tried.append(1)
        raise EngineError("no room on the card")

    with pytest.raises(EngineError, match="no room on the card"):
        SeveralEngines([lambda: first, fail, fail])
    assert first.told == ["close"] and len(tried) == 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Log and CUDA_VISIBLE_DEVICES of every engine's process that would be started."""
    found: list[tuple[str, Any]] = []

    def start(argv: Any, *, log: Path, env: dict[str, str]) -> Any:
        found.append((log.name, env.get("CUDA_VISIBLE_DEVICES")))
        raise EngineError("not in this test")

    monkeypatch.setattr(engine_process, "start_child", start)
    return found


def test_each_has_cards_and_a_log_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[tuple[str, Any]]
) -> None:
    monkeypatch.setattr(hardware, "visible_devices", lambda: ["4", "5", "6", "7"])
    opened: list[Callable[[], Any]] = []
    monkeypatch.setattr("reasoner.engines.several.SeveralEngines", lambda openers: opened.extend(openers))
    settings = EngineSettings("vllm", tmp_path, options={"tensor_parallel_size": 2})
    open_engine(settings, log=tmp_path / "engine.log", engines=2)
    for start in opened:
        with pytest.raises(EngineError):
            start()
    assert started == [("engine-0.log", "4,5"), ("engine-1.log", "6,7")]
    with pytest.raises(InfrastructureError, match=r"3 engines of 2 devices need 6; 4 are visible"):
        open_engine(settings, log=tmp_path / "engine.log", engines=3)
    assert len(started) == 2


def test_one_engine_sees_what_this_process_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[tuple[str, Any]]
) -> None:
    monkeypatch.setattr(hardware, "visible_devices", lambda: ["0", "1"])
    with pytest.raises(EngineError, match="not in this test"):
        open_engine(EngineSettings("vllm", tmp_path), log=tmp_path / "engine.log")
    assert started == [("engine.log", None)]


def test_without_cards_they_are_processes(tmp_path: Path) -> None:
    if hardware.visible_devices():
        pytest.skip("this machine has cards")
    from reasoner.engines.remote import RemoteEngine

    logs = [tmp_path / "engine-0.log", tmp_path / "engine-1.log"]
    several = SeveralEngines([partial(RemoteEngine, scripted(), log=log) for log in logs])
    assert len(list(several.generate([request(str(i)) for i in range(10)]))) == 10
    assert all(log.is_file() for log in logs)
    several.close()
