"""What a masked group of completions does to a GRPO step: nothing.

Wrong if the gradient shrinks with the share of groups that have rewards, if what is logged leaves the masked ones out,
or if a step of masked groups alone moves something.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from reasoner.training.grpo.active import active_trainer

GROUP = 4
LENGTHS = {"one": (3, 5, 4, 9), "two": (12, 2, 7, 15)}
"""Tokens of each completion: the groups differ, so that counting completions is not counting tokens."""


def rollout(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
    """The same completions of a prompt each time; no engine."""
    tokenizer, found = trainer.processing_class, []
    for i, prompt in enumerate(prompts):
        length = LENGTHS[prompt][i % GROUP]
        found.append([(7 * i + 3 * t + len(prompt)) % 90 + 33 for t in range(length)])
    return {
        "prompt_ids": [tokenizer.encode(prompt) for prompt in prompts],
        "completion_ids": found,
        "logprobs": [[0.0] * len(ids) for ids in found],
    }


class Gradients(TrainerCallback):
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.found = torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])


def step(
    base: Path, room: Path, kind: Any, prompts: Sequence[str], rewarded: Sequence[str], size: int, **settings: Any
) -> tuple[torch.Tensor, dict[str, Any], bool]:  # fmt: skip
    """The gradient of one step, its log, and whether a weight changed."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    gradients = Gradients()

    def reward(prompts: list[str], **_: Any) -> list[float | None]:
        return [float(i % GROUP == 1) if p in rewarded else None for i, p in enumerate(prompts)]

    config = GRPOConfig(
        output_dir=str(room), per_device_train_batch_size=size,
        gradient_accumulation_steps=len(prompts) * GROUP // size, num_generations=GROUP, max_completion_length=16,
        max_steps=1, logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, bf16=False, beta=0.0,
        gradient_checkpointing=False, max_grad_norm=0.0, disable_tqdm=True, learning_rate=1e-2, **settings,
    )  # fmt: skip
    from datasets import Dataset

    trainer = kind(
        model=model, reward_funcs=reward, args=config, train_dataset=Dataset.from_dict({"prompt": list(prompts)}),
        rollout_func=rollout, processing_class=AutoTokenizer.from_pretrained(base), callbacks=[gradients],
    )  # fmt: skip
    trainer.train()
    moved = any(not torch.equal(weight, before[name]) for name, weight in trainer.model.named_parameters())
    return gradients.found, trainer.state.log_history[0], moved


@pytest.mark.parametrize(
    ("loss", "size"),
    [("dapo", 4), ("dapo", 2), ("grpo", 2), ("dr_grpo", 2), ("bnpo", 4)],
)
def test_a_masked_group_beside_another_leaves_its_gradient_as_it_is_alone(
    base: Path, tmp_path: Path, loss: str, size: int
) -> None:
    """In one micro-step a group, or in several; `bnpo` divides by a micro-step's tokens, so both are one there."""
    both = 8 if loss == "bnpo" else size
    alone, _, _ = step(base, tmp_path, active_trainer(), ["one"], ["one"], size, loss_type=loss)
    beside, _, _ = step(base, tmp_path, active_trainer(), ["one", "two"], ["one"], both, loss_type=loss)
    assert alone.abs().max() > 1e-3
    torch.testing.assert_close(beside, alone, rtol=1e-3, atol=1e-6)


def test_what_is_logged_is_of_all_completions(base: Path, tmp_path: Path) -> None:
    given = (["one", "two"], ["one"], 4)
    plain, expected, _ = step(base, tmp_path, GRPOTrainer, *given)
    ours, found, _ = step(base, tmp_path, active_trainer(), *given)
    everything, active = sum(map(sum, LENGTHS.values())), sum(LENGTHS["one"])
    torch.testing.assert_close(ours, plain * everything / active, rtol=1e-3, atol=1e-6)
    assert found["completions/mean_length"] == pytest.approx(everything / 8)
    same = [
        name for name in expected if name.startswith(("entropy", "completions/", "clip_ratio/", "reward"))
    ]
    assert len(same) > 10 and {n: found[n] for n in same} == {n: expected[n] for n in same}


def test_a_step_without_a_reward_moves_nothing(base: Path, tmp_path: Path) -> None:
    gradient, logged, moved = step(base, tmp_path, active_trainer(), ["one", "two"], [], 4)
    assert not gradient.any() and not moved and logged["loss"] == 0 and logged["entropy"] > 0


def test_where_all_have_rewards_the_step_is_trls(base: Path, tmp_path: Path) -> None:
    given = (["one", "two"], ["one", "two"], 4)
    assert torch.equal(
        step(base, tmp_path, active_trainer(), *given)[0], step(base, tmp_path, GRPOTrainer, *given)[0]
    )
