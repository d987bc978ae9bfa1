"""Several engines that work as one: each request goes to one of them, each adapter to all.

Requests of one prompt stay together, for the prefix cache of the engine that gets them. Who gets what follows from the
requests alone, so that a repeated call asks each engine the same again. The samples are not those of one engine: an
engine's random stream goes by the requests that it is given (seeds.py).
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import PolicyEngine
from reasoner.errors import EngineError
from reasoner.records import Completion, GenerationRequest

Open = Callable[[], PolicyEngine]
Answer = tuple[int, Completion]


def deal(requests: Sequence[GenerationRequest], engines: int) -> list[list[int]]:
    """The indices of the requests that each engine gets, in their order.

    Requests of one prompt and adapter go to one engine. The largest group is dealt first, each to the engine that has
    least, so two engines differ by at most one group.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for i, request in enumerate(requests):
        groups.setdefault((request.adapter, request.prompt), []).append(i)
    dealt: list[list[int]] = [[] for _ in range(engines)]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(dealt, key=len).extend(group)
    return [sorted(indices) for indices in dealt]


class SeveralEngines:
    """The PolicyEngine protocol over several. Use it from one thread; the engines work at the same time inside.

    A command that some have carried out and others not leaves it unusable: they must never hold different adapters.
    """

    def __init__(self, openers: Sequence[Open]) -> None:
        """Open one after another. When one fails, those before it are closed and its error is raised."""
        self._engines: list[PolicyEngine] = []
        self._apart = self._closed = False
        try:
            for open_next in openers:
                self._engines.append(open_next())
        except BaseException:
            self.close()
            raise

    @property
    def usable(self) -> bool:
        """False once it was closed, one of them is unusable, or a command reached some of them only."""
        if self._closed or self._apart:
            return False
        return all(getattr(engine, "usable", True) for engine in self._engines)

    def load_adapter(self, name: str, path: Path) -> None:
        """As Engine.load_adapter, on every engine. Raises what the first of them that failed raised."""
        self._all(lambda engine: engine.load_adapter(name, path))

    def unload_adapter(self, name: str) -> None:
        """As PolicyEngine.unload_adapter, on every engine."""
        self._all(lambda engine: engine.unload_adapter(name))

    def sleep(self) -> None:
        """As PolicyEngine.sleep; every card is given back."""
        self._all(lambda engine: engine.sleep())

    def wake(self) -> None:
        """As PolicyEngine.wake, on every engine."""
        self._all(lambda engine: engine.wake())

    def generate(self, requests: Iterable[GenerationRequest], *, logprobs: bool = False) -> Iterator[Answer]:
        """As Engine.generate. When one engine fails, or the iterator is closed early, the others stop at their next
        completion; the first failure is raised when all have stopped."""
        self._require_whole()
        wanted = list(requests)
        answers: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()
        stop = threading.Event()

        def work(engine: PolicyEngine, indices: list[int]) -> None:
            try:
                made = engine.generate([wanted[i] for i in indices], logprobs=logprobs)
                with contextlib.closing(made):  # type: ignore[type-var]
                    for at, completion in made:
                        answers.put((indices[at], completion))
                        if stop.is_set():
                            break
            except Exception as error:
                answers.put(error)
                stop.set()
            finally:
                answers.put(None)

        shares = zip(self._engines, deal(wanted, len(self._engines)), strict=True)
        threads = [threading.Thread(target=work, args=share, daemon=True) for share in shares if share[1]]
        failure: Exception | None = None
        for thread in threads:
            thread.start()
        try:
            running = len(threads)
            while running:
                found = answers.get()
                if found is None:
                    running -= 1
                elif isinstance(found, Exception):
                    failure = failure or found
                elif failure is None:
                    yield found
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Close all, each even where another can't be; may be called twice."""
        self._closed = True
        with contextlib.ExitStack() as stack:
            for engine in self._engines:
                stack.callback(engine.close)

    def _require_whole(self) -> None:
        if self._closed:
            raise EngineError("these engines are closed")
        if self._apart:
            raise EngineError("the last command reached some of the engines only; open them again")

    def _all(self, command: Callable[[PolicyEngine], Any]) -> None:
        self._require_whole()
        with ThreadPoolExecutor(len(self._engines)) as pool:
            done = [pool.submit(command, engine) for engine in self._engines]
        failures = [error for future in done if (error := future.exception())]
        if failures:
            self._apart = len(failures) < len(done)
            raise failures[0]
