"""The seconds of multi-turn iterations that ran alone on a card: docs/results/LOG.md, 2026-11-30.

Wrong if an iteration's seconds are missed by more than a quarter, if iterations do not follow one another (a rollout's
turns wait for the turn before, and for the longest of it), or if smaller micro-batches cost nothing beside a card.
"""

from typing import Any

import pytest

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.planning import device, multiturn
from reasoner.planning.architecture import KNOWN
from reasoner.planning.calibration import Speed
from reasoner.planning.estimate import Estimate, Scene, Tokens
from reasoner.records import ArtifactRef

MODEL, PROBLEMS = ArtifactRef("model", "1" * 64, ""), ArtifactRef("problems", "2" * 64, "")
OPTIONS = {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL"}, "max_num_seqs": 256}
RUN: dict[str, Any] = {
    "env_type": "code", "policy_lm": "a", "rollout_size": 64, "group_size": 8, "batch_size": 8, "max_tokens": 512,
    "guidance_max_tokens": 192, "gradient_checkpointing": False, "eval_freq": 1000,
    "problems": {"train": {"name": "mbpp", "kind": "file", "path": "mbpp.jsonl"}},
    "engine": {"kind": "vllm", "options": OPTIONS},
}  # fmt: skip
SCORE = {"method": "score", "train_guidance_model": False, "use_smart_corrections": False}
MLMT = {"method": "mlmt", "train_guidance_model": True, "use_smart_corrections": True}


def training(settings: dict[str, Any], iterations: int = 10) -> Estimate:
    steps = {"iterations": iterations, "stage1_steps": iterations // 2, "stage2_steps": iterations // 2}
    config = MultiTurnConfig.model_validate({**RUN, **settings, **steps})
    card = Speed.of(device.find("h200"), None)
    splits = {"splits": {"validation": 100}}
    scene = Scene(card, KNOWN["qwen2.5-coder-1.5b"], Tokens(None), lambda ref: splits, 16, 1 << 40)
    return multiturn.train(scene, {"model": MODEL, "problems": PROBLEMS, "config": config})


@pytest.mark.parametrize(("settings", "measured"), [(SCORE, 13.6), (MLMT, 26.0)])
def test_an_iteration_on_a_card(settings: dict[str, Any], measured: float) -> None:
    twenty, ten = training(settings, 20), training(settings, 10)
    assert (twenty.seconds - ten.seconds) / 10 == pytest.approx(measured, rel=0.25)
    assert (twenty.new_tokens, twenty.trained_tokens) == pytest.approx(
        (2 * ten.new_tokens, 2 * ten.trained_tokens), rel=0.2
    )


def test_micro_batches_by_tokens_are_faster() -> None:
    assert training({**MLMT, "micro_tokens": 14_000}).seconds < 0.8 * training(MLMT).seconds


def test_full_grad_costs_more_than_stop_grad() -> None:
    assert training(MLMT).seconds > 1.05 * training({**MLMT, "stop_value_gradients": True}).seconds


def test_what_is_frozen_or_rests_costs_less() -> None:
    """A cycle of 3:1 has three iterations of the solver's two turns, then one of the feedback's and its value's."""
    whole = training(MLMT).trained_tokens
    assert training({**MLMT, "train_solver": False}).trained_tokens == pytest.approx(whole / 2)
    assert training({**MLMT, "update_ratio": "3:1"}).trained_tokens == pytest.approx(whole * 2 / 4)


def test_archers_rollouts_are_attempts_alone() -> None:
    archer = {
        "method": "archer",
        "train_guidance_model": False,
        "use_smart_corrections": False,
        "actor_epochs": 1,
    }
    assert training(archer).new_tokens < 0.75 * training(SCORE).new_tokens


def test_a_value_that_is_not_needed_is_not_read() -> None:
    """With rloo and no shaping nothing asks V; its pass over the states costs seconds and no learning."""
    none = {**MLMT, "stop_value_gradients": True, "baseline": "rloo", "value_coef": 0.0}
    read, unread = training({**none, "value_coef": 0.1}), training(none)
    assert unread.seconds < read.seconds and unread.trained_tokens == read.trained_tokens
