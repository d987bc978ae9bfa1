"""Making only what is owed. The engines here are real ones of the protocol with scripted answers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import Engine
from reasoner.errors import EngineError, UsageError
from reasoner.ledger import LazyEngine, Ledger, complete
from reasoner.records import Completion, GenerationRequest, Sampling


class Scripted:
    """Answers in reverse order with the prompt in capitals; `asked` is what reached it."""

    def __init__(self, failing: set[str] | None = None, dies_after: int | None = None) -> None:
        self.failing, self.dies_after = failing or set(), dies_after
        self.asked: list[GenerationRequest] = []
        self.closed = 0

    def load_adapter(self, name: str, path: Path) -> None:
        raise NotImplementedError

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        for i, request in reversed(list(enumerate(requests))):
            if self.dies_after is not None and len(self.asked) >= self.dies_after:
                raise EngineError("the engine died")
            self.asked.append(request)
            if request.problem_id in self.failing:
                yield i, Completion("CUDA out of memory", "error", 0, 0)
            else:
                yield i, answer(request)

    def close(self) -> None:
        self.closed += 1


def answer(request: GenerationRequest) -> Completion:
    return Completion(f"{request.prompt.upper()}/{request.index}", "stop", 1, 2)


def make(count: int, samples: int = 1, adapter: str = "") -> list[GenerationRequest]:
    return [
        GenerationRequest(f"p{i}", f"prompt {i}", Sampling(0.7), index=index, adapter=adapter)
        for i in range(count)
        for index in range(samples)
    ]


def refuse() -> Engine:
    raise AssertionError("no engine is needed")


def test_only_what_is_owed_is_made_and_the_order_is_that_of_the_requests(tmp_path: Path) -> None:
    engine = Scripted()
    assert isinstance(engine, Engine)
    with Ledger(tmp_path) as ledger:
        first = complete(make(5, 2), ledger=ledger, fingerprint="f", engine=lambda: engine)
        assert (first.made, first.found) == (10, 0)
        assert first.completions == [answer(request) for request in make(5, 2)]
        again = complete(make(5, 2), ledger=ledger, fingerprint="f", engine=refuse)
        assert (again.made, again.found) == (0, 10) and again.completions == first.completions
    with Ledger(tmp_path) as ledger:
        more = Scripted()
        grown = complete(make(6, 4), ledger=ledger, fingerprint="f", engine=lambda: more)
        assert (grown.made, grown.found) == (14, 10)
        assert grown.completions == [answer(request) for request in make(6, 4)]
        assert sorted((r.problem_id, r.index) for r in more.asked) == sorted(
            (r.problem_id, r.index) for r in make(6, 4) if r.index >= 2 or r.problem_id == "p5"
        )
        other = complete(make(1), ledger=ledger, fingerprint="other", engine=lambda: more)
        assert other.made == 1


def test_equal_requests_are_made_once(tmp_path: Path) -> None:
    engine = Scripted()
    requests = make(2) + make(2)
    with Ledger(tmp_path) as ledger:
        done = complete(requests, ledger=ledger, fingerprint="f", engine=lambda: engine)
    assert (done.made, done.found) == (2, 0) and len(engine.asked) == 2
    assert done.completions == [answer(request) for request in requests]


def test_nothing_asked_is_nothing_done(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        done = complete([], ledger=ledger, fingerprint="f", engine=refuse)
    assert done.completions == [] and (done.made, done.found) == (0, 0)


def test_failed_requests_are_not_kept_and_everything_else_is(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        with pytest.raises(EngineError, match=r"2 of 10 requests failed.*CUDA out of memory") as caught:
            complete(make(10), ledger=ledger, fingerprint="f", engine=lambda: Scripted({"p3", "p7"}), batch=4)
        assert "Run the same command again" in str(caught.value)
        assert len(ledger) == 8
        mended = Scripted()
        done = complete(make(10), ledger=ledger, fingerprint="f", engine=lambda: mended)
        assert (done.made, done.found) == (2, 8)
        assert {request.problem_id for request in mended.asked} == {"p3", "p7"}


def test_an_engine_that_dies_loses_nothing_that_it_had_finished(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        with pytest.raises(EngineError, match="died"):
            complete(make(10), ledger=ledger, fingerprint="f", engine=lambda: Scripted(dies_after=7), batch=4)
        assert len(ledger) == 7


def test_an_interrupt_keeps_what_was_finished(tmp_path: Path) -> None:
    class Interrupted(Scripted):
        def generate(self, requests: Any, *, logprobs: bool = False) -> Iterator[tuple[int, Completion]]:
            yield 0, answer(next(iter(requests)))
            raise KeyboardInterrupt

    with Ledger(tmp_path) as ledger:
        with pytest.raises(KeyboardInterrupt):
            complete(make(3), ledger=ledger, fingerprint="f", engine=Interrupted)
        assert len(ledger) == 1


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ([0, 0], "twice or unasked"),
        ([0, 5], "twice or unasked"),
        ([0, -1], "twice or unasked"),
        ([0], "1 were not"),
    ],
)
def test_an_engine_that_breaks_its_protocol_is_an_error(tmp_path: Path, order: list[int], words: str) -> None:
    class Broken(Scripted):
        def generate(self, requests: Any, *, logprobs: bool = False) -> Iterator[tuple[int, Completion]]:
            requests = list(requests)
            for i in order:
                yield i, answer(requests[i % 2])

    with Ledger(tmp_path) as ledger:
        with pytest.raises(EngineError, match=words):
            complete(make(2), ledger=ledger, fingerprint="f", engine=Broken)
        assert len(ledger) == 1


def test_progress_counts_at_each_flush(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with Ledger(tmp_path) as ledger:
        complete(make(2), ledger=ledger, fingerprint="f", engine=Scripted)
        complete(make(12), ledger=ledger, fingerprint="f", engine=Scripted, batch=4, on_progress=seen.append)
    assert seen == [{"done": done, "total": 12, "found": 2} for done in (2, 6, 10, 12)]


def test_a_slow_engine_is_flushed_by_time(tmp_path: Path) -> None:
    kept: list[int] = []

    class Slow(Scripted):
        def generate(self, requests: Any, *, logprobs: bool = False) -> Iterator[tuple[int, Completion]]:
            for i, request in enumerate(list(requests)):
                kept.append(len(ledger))
                yield i, answer(request)

    with Ledger(tmp_path) as ledger:
        complete(make(5), ledger=ledger, fingerprint="f", engine=Slow, flush_seconds=0.0)
        assert kept == [0, 1, 2, 3, 4]


def test_adapters_need_a_fingerprint_each(tmp_path: Path) -> None:
    requests = make(2) + make(2, adapter="epoch1")
    with Ledger(tmp_path) as ledger:
        with pytest.raises(UsageError, match="several adapters"):
            complete(requests, ledger=ledger, fingerprint="f", engine=refuse)
        with pytest.raises(UsageError, match="no fingerprint for the adapter 'epoch1'"):
            complete(requests, ledger=ledger, fingerprint={"": "f"}, engine=refuse)
        done = complete(requests, ledger=ledger, fingerprint={"": "f", "epoch1": "g"}, engine=Scripted)
        assert done.made == 4
        assert complete(make(2), ledger=ledger, fingerprint="f", engine=refuse).found == 2
        assert complete(make(2), ledger=ledger, fingerprint="g", engine=refuse).found == 2


def test_a_lazy_engine_starts_once_and_is_closed_also_after_an_error(tmp_path: Path) -> None:
    started: list[Scripted] = []

    def start() -> Scripted:
        started.append(Scripted())
        return started[-1]

    with Ledger(tmp_path) as ledger:
        with LazyEngine(start) as engine:
            for count in (2, 4, 4):
                complete(make(count), ledger=ledger, fingerprint="f", engine=engine)
            assert len(started) == 1 and engine.started and not started[0].closed
        assert started[0].closed == 1
        with LazyEngine(start) as engine:
            complete(make(4), ledger=ledger, fingerprint="f", engine=engine)
        assert len(started) == 1
        with pytest.raises(ZeroDivisionError), LazyEngine(start) as engine:
            engine()
            raise ZeroDivisionError
        assert [each.closed for each in started] == [1, 1]
