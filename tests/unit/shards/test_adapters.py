"""Several engines answer under an adapter, too: the planner's plans, and an evaluation. Tiny models, transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.evaluate import EvaluateConfig
from reasoner.config.planner import WorkerConfig
from reasoner.config.smart import EngineConfig
from reasoner.config.training import ComputeConfig
from reasoner.engines.pool import EnginePool
from reasoner.evaluation.evaluate import ROWS, evaluate
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.methods.planner.prompts import load_prompts
from reasoner.records import GenerationRequest, Sampling
from reasoner.stages.planner import PLANNER, AdapterFolder, Desk
from reasoner.workbench import ModelFolder, Workbench
from tests.support.tiny_llama import make_adapter, make_model
from tests.unit.training.planner.planning import write_prompts

pytestmark = pytest.mark.timeout(600)
ENGINE = {"kind": "transformers", "dtype": "float32", "options": {"max_model_len": 512}}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="module")
def trained(base: Path) -> Path:
    return make_adapter(base, base.parent / "adapter", seed=3)


def bench(room: Path, pool: EnginePool, engines: int) -> Workbench:
    compute = ComputeConfig(engines=engines)
    return Workbench(
        Home(room / "home"), pool, room / "work", room / "logs", lambda *_: None, compute=compute
    )


def workers_of(room: Path) -> int:
    return len(list((room / "logs").glob("worker-*.log")))


def test_a_trained_planner_and_its_base_by_two_engines(base: Path, trained: Path, tmp_path: Path) -> None:
    """Requests for the adapter and for the bare base in one call: the answers of one engine."""
    prompts = load_prompts(write_prompts(tmp_path))
    greedy = Sampling(0.0, max_tokens=8)
    wanted = [
        GenerationRequest(f"p{i}", f"Plan: {i} pens and {i} more?", greedy, 0, 0, who)
        for who in (PLANNER, "")
        for i in range(20)
    ]
    found: dict[int, list[str]] = {}
    for engines in (1, 2):
        room = tmp_path / str(engines)
        with EnginePool(room / "logs") as pool:
            model = ModelFolder(base, "fingerprint", "tiny")
            adapter = AdapterFolder(trained, "digest", 4)
            engine = EngineConfig.model_validate(ENGINE)
            made = bench(room, pool, engines)
            with Desk(made, model, engine, WorkerConfig(), prompts, adapter) as desk:
                found[engines] = [c.text for c in desk.complete(wanted)]
                assert desk.counts["owed"] == 40
        assert workers_of(room) == (2 if engines == 2 else 0)
    assert found[1] == found[2]
    assert found[1][:20] != found[1][20:], "the adapter counts"


def test_an_evaluation_of_an_adapter_by_two_engines(base: Path, trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "sums.jsonl"
    rows = [{"question": f"What is {i} and 5?", "answer": i + 5} for i in range(20)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(engines: int) -> EvaluateConfig:
        settings: dict[str, Any] = {
            "model": {"path": str(trained)}, "base_model": str(base), "engine": ENGINE, "engines": engines,
            "data": {"name": "sums", "path": str(data), "kind": "file"}, "shots": 1,
            "decoding": {"max_tokens": 8}, "verify": {"workers": 1},
        }  # fmt: skip
        return EvaluateConfig.model_validate(settings)

    assert content_hash(config(1)) == content_hash(config(2))
    for engines in (1, 2):
        room = tmp_path / str(engines)
        (room / "out").mkdir(parents=True)
        with EnginePool(room / "logs") as pool:
            facts = evaluate(room / "out", bench(room, pool, engines), config(engines))
        assert facts["owed"] == 20 and workers_of(room) == (2 if engines == 2 else 0)
    assert (tmp_path / "1" / "out" / ROWS).read_bytes() == (tmp_path / "2" / "out" / ROWS).read_bytes()
