"""Where an iteration's time goes, by a clock that only what is planted moves.

Wrong if the seconds of scoring, of a gradient or of an optimiser's step stand under another part, or twice.
"""

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.engines.start import open_engine
from reasoner.onpolicy.parts import Parts
from reasoner.store.rows import read_rows
from reasoner.training.multiturn import sampling
from reasoner.training.multiturn.loop import METRICS, TIMES, Loop
from reasoner.training.multiturn.optimiser import Optimiser
from reasoner.training.multiturn.policy import Policy
from tests.support.signal import write_templates
from tests.unit.training.multiturn.conftest import PROBLEMS, build, config

SECONDS = {"logprobs": 1.0, "forward_backward": 100.0, "optimiser": 10_000.0}
ARCHER: dict[str, Any] = {
    "kl": "reward", "train_guidance_model": False, "use_smart_corrections": False, "epochs": 2, "warmup_iter": 0,
}  # fmt: skip


@pytest.mark.parametrize("method", ["mlmt", "archer"])
def test_each_part_has_its_own_seconds(
    method: str, base: Path, tokenizer: Any, processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls = [0.0], Counter[str]()

    def spend(part: str) -> None:
        now[0] += SECONDS[part]
        calls[part] += 1

    logprobs, step = Policy.logprobs, Optimiser.step

    def scored(self: Policy, *arguments: Any) -> Any:
        spend("forward_backward" if torch.is_grad_enabled() else "logprobs")
        return logprobs(self, *arguments)

    def stepped(self: Optimiser, iteration: int) -> float:
        spend("optimiser")
        return step(self, iteration)

    monkeypatch.setattr(Policy, "logprobs", scored)
    monkeypatch.setattr(Optimiser, "step", stepped)
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))
    engine = {"kind": "transformers", "options": {}}
    prompts = str(write_templates(tmp_path / "prompts.yaml", "hint"))
    fields = {"method": method, "iterations": 2, "eval_freq": 5, "engine": engine, "prompts": prompts}
    fields |= ARCHER if method == "archer" else {}
    settings, problems, parts = config(**fields), list(PROBLEMS.values()), Parts(clock=lambda: now[0])
    learned = build(base, tokenizer, processes, **fields)
    with sampling.open_sampler(settings, base, None, tmp_path, 512, parts) as sampler:
        Loop(
            settings, tmp_path, learned, processes, problems, problems, sampler, lambda **_: None, lambda _: None,
            parts,
        ).run()  # fmt: skip
    rows = read_rows(tmp_path / TIMES)
    assert len(rows) == 2 and set(SECONDS) == set(calls)
    for part, seconds in SECONDS.items():
        assert sum(row[part] for row in rows) == seconds * calls[part] > 0, part
    assert sum(row["wall"] for row in rows) == sum(seconds * calls[part] for part, seconds in SECONDS.items())
    assert all(row["verdict"] == row["generate"] == row["sync"] == row["learn"] == 0.0 for row in rows)
    assert not {*SECONDS, "wall"} & set(read_rows(tmp_path / METRICS)[0]), "equal inputs give equal bytes"
