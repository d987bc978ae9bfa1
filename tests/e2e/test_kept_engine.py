"""Engines of a real model that outlive their pool.

Wrong if a pool's engine is not the one that the pool before has left, if it answers otherwise than a fresh engine, if
an error of a stage ends it, or if it is still there when a stage was told to end.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.engines.kept.slot import KeptSlot, clear_all
from reasoner.engines.pool import EnginePool
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.start import open_engine
from reasoner.errors import DataError, EngineError
from reasoner.home import Home
from reasoner.process.owner import owner_tag
from reasoner.records import Completion
from tests.e2e.test_engines import answers, ask
from tests.support.tiny_llama import make_adapter, make_byte_model
from tests.unit.engines.test_remote import gone

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path / "home")
    yield found
    clear_all(found)


def pool(home: Home) -> EnginePool:
    return EnginePool(home.path / "run", kept=KeptSlot(home, owner_tag(), 600))


def pid_of(engine: Engine) -> int:
    assert isinstance(engine, RemoteEngine) and engine.pid is not None
    return engine.pid


def samples(engine: Engine) -> list[Completion]:
    return answers(engine, [ask(temperature=1.0, index=i) for i in range(4)], logprobs=True)


@pytest.mark.parametrize("kind", ["transformers", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_pool_uses_the_engine_that_another_has_left(home: Home, tmp_path: Path, kind: str) -> None:
    tiny = make_byte_model(tmp_path / "tiny")
    adapter = make_adapter(tiny, tmp_path / "adapter", seed=1)
    settings = EngineSettings(kind, tiny, "float32", 3, adapters=True, options={"max_model_len": 256})
    fresh = open_engine(settings, log=tmp_path / "fresh.log")
    wanted = samples(fresh)
    fresh.load_adapter("policy", adapter)
    adapted = answers(fresh, [ask(adapter="policy")])
    fresh.close()
    assert [c.text for c in adapted] != [c.text for c in wanted[:1]]

    with pool(home) as first:
        engine = first.acquire(settings)
        pid = pid_of(engine)
        engine.load_adapter("policy", adapter)
        assert answers(engine, [ask(adapter="policy")]) == adapted
    with pytest.raises(DataError), pool(home) as second:
        engine = second.acquire(settings)
        assert pid_of(engine) == pid
        with pytest.raises(EngineError, match="not loaded"):
            answers(engine, [ask(adapter="policy")])
        assert samples(engine) == wanted
        raise DataError("the stage's own trouble")
    with pytest.raises(KeyboardInterrupt), pool(home) as third:
        assert pid_of(third.acquire(settings)) == pid
        raise KeyboardInterrupt
    assert gone(pid, 0.1)
