"""What benchmarks/scale.py says of several cards is what was measured.

Wrong if a ratio is taken across rounds, if warm steps or the worker's time are counted as tokens, or if the numbers of
cards train on other batches.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.benchmarks import benchmarks, program  # noqa: F401 (a fixture)


def arguments(out: Path | None = None, **more: Any) -> argparse.Namespace:
    return argparse.Namespace(counts=[1, 2], rounds=2, out=out, **more)


def test_a_ratio_is_that_of_its_round(tmp_path: Path) -> None:
    scale, given = program("scale"), arguments(tmp_path / "out.json")
    assert scale.turns(given) == [(0, 1), (0, 2), (1, 2), (1, 1)]
    rates = [10.0, 18.0, 40.0]
    found = [
        {"round": turn, "count": count, "tokens_per_s": rate}
        for (turn, count), rate in zip(scale.turns(given), rates, strict=False)
    ]
    scale.write(given, found)
    assert [row["scaling"] for row in found] == [1.0, 1.8, None], "its one has not run yet"
    found.append({"round": 1, "count": 1, "tokens_per_s": 20.0})
    scale.write(given, found)
    assert json.loads((tmp_path / "out.json").read_text())["scaling"] == {"1": [1.0, 1.0], "2": [1.8, 2.0]}
    found[0] = scale.failed(0, 1, RuntimeError("no card"))
    scale.write(given, found)
    assert found[0]["error"] == "RuntimeError: no card" and found[1]["scaling"] is None


def test_the_rate_is_tokens_by_wall_time() -> None:
    steps = [
        {"time/wall": 2.0, "time/generate": 1.0, "completions/mean_length": 100.0},
        {"time/wall": 6.0, "time/generate": 3.0, "time/verdict": 2.0, "completions/mean_length": 300.0},
    ]
    found = program("scale").rate_of(steps, 8)
    assert found["tokens_per_s"] == pytest.approx(8 * 400 / 8) and found["seconds_a_step"] == 4.0
    assert found["parts_s"] == {"generate": 2.0, "verdict": 1.0, "wall": 4.0}


@pytest.mark.parametrize("method", ["smart", "planner"])
def test_every_number_of_cards_has_the_same_batch(method: str, tmp_path: Path) -> None:
    given = arguments(
        method=method, model=tmp_path, prompts=16, samples=8, batch=8, steps=8, tokens=320, prompt_tokens=1024,
        share_card=False, gradient_checkpointing=False, device="cpu", kind="vllm", template="demo",
        option=['compilation_config={"mode":0}', "gpu_memory_utilization=0.35"],
    )  # fmt: skip
    for cards in (1, 2):
        module, spec = program("scale").grpo_spec(given, tmp_path / "rows", tmp_path, cards)
        assert method in module and (spec.processes, spec.engines) == (cards, cards)
        assert spec.grpo.batch_size * spec.grpo.grad_accum == 128 and spec.grpo.num_generations == 8
        assert spec.engine.options == {"compilation_config": {"mode": 0}, "gpu_memory_utilization": 0.35}
