"""What a masked group of completions does to a GRPO step: nothing. What is computed of a step: what moves something.

Wrong if the gradient shrinks with the share of groups that have rewards, if what is logged of rewards and lengths
leaves the masked ones out, if a step of masked groups alone moves something, if micro-batches that were regrouped have
another gradient, or if padding and settled groups are computed all the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from reasoner.training.grpo import active
from reasoner.training.grpo.active import active_trainer

GROUP = 4
LENGTHS = {"one": (3, 5, 4, 9), "two": (12, 2, 7, 15), "settled": (16, 3, 8, 6)}
"""Tokens of each completion: the groups differ, so that counting completions is not counting tokens."""


def rollout(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
    """The same completions of a prompt each time; no engine."""
    tokenizer, found = trainer.processing_class, []
    for i, prompt in enumerate(prompts):
        length = LENGTHS[prompt][i % GROUP]
        found.append([(7 * (i % GROUP) + 3 * t + len(prompt)) % 90 + 33 for t in range(length)])
    return {
        "prompt_ids": [tokenizer.encode(prompt) for prompt in prompts],
        "completion_ids": found,
        "logprobs": [[0.0] * len(ids) for ids in found],
    }


class Gradients(TrainerCallback):
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.found = torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])


def step(
    base: Path, room: Path, kind: Any, prompts: Sequence[str], rewarded: Sequence[str], size: int,
    settled: Sequence[str] = (), seen: list[tuple[int, int]] | None = None, full_reward: float = 1.0, **settings: Any,
) -> tuple[torch.Tensor, dict[str, Any], bool]:  # fmt: skip
    """The gradient of one step, its log, and whether a weight changed.

    One completion in four of a `rewarded` prompt is right, all of a `settled` one; others have no reward. `seen` gets
    the shape of what the model computes with gradients.
    """
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    gradients = Gradients()

    def reward(prompts: list[str], **_: Any) -> list[float | None]:
        right = [float(i % GROUP == 1) if p in rewarded else None for i, p in enumerate(prompts)]
        return [full_reward if p in settled else paid for p, paid in zip(prompts, right, strict=True)]

    def watch(module: Any, given: Any, named: dict[str, Any]) -> None:
        if seen is not None and torch.is_grad_enabled():
            seen.append(tuple(named["input_ids"].shape))

    model.register_forward_pre_hook(watch, with_kwargs=True)

    config = GRPOConfig(
        output_dir=str(room), per_device_train_batch_size=size,
        gradient_accumulation_steps=len(prompts) * GROUP // size, max_completion_length=16,
        logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, bf16=False,
        gradient_checkpointing=False, max_grad_norm=0.0, disable_tqdm=True,
        **{"beta": 0.0, "max_steps": 1, "learning_rate": 1e-2, "num_generations": GROUP, **settings},
    )  # fmt: skip
    from datasets import Dataset

    trainer = kind(
        model=model, reward_funcs=reward, args=config, train_dataset=Dataset.from_dict({"prompt": list(prompts)}),
        rollout_func=rollout, processing_class=AutoTokenizer.from_pretrained(base), callbacks=[gradients],
    )  # fmt: skip
    trainer.train()
    moved = any(not torch.equal(weight, before[name]) for name, weight in trainer.model.named_parameters())
    return gradients.found, trainer.state.log_history[-2], moved  # the last is of the whole training


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


def test_what_is_logged_of_rewards_and_lengths_is_of_all_completions(base: Path, tmp_path: Path) -> None:
    given = (["one", "two"], ["one"], 4)
    plain, expected, _ = step(base, tmp_path, GRPOTrainer, *given)
    ours, found, _ = step(base, tmp_path, active_trainer(), *given)
    everything, rewarded = sum(LENGTHS["one"]) + sum(LENGTHS["two"]), sum(LENGTHS["one"])
    torch.testing.assert_close(ours, plain * everything / rewarded, rtol=1e-3, atol=1e-6)
    assert found["completions/mean_length"] == pytest.approx(everything / 8)
    same = [name for name in expected if name.startswith(("completions/", "reward"))]
    assert len(same) > 8 and {n: found[n] for n in same} == {n: expected[n] for n in same}


def test_a_step_without_a_reward_moves_nothing(base: Path, tmp_path: Path) -> None:
    gradient, logged, moved = step(base, tmp_path, active_trainer(), ["one", "two"], [], 4)
    assert not gradient.any() and not moved and logged["loss"] == 0 and logged["entropy"] > 0


def test_where_all_have_rewards_the_step_is_trls(base: Path, tmp_path: Path) -> None:
    given = (["one", "two"], ["one", "two"], 4)
    ours, trls = (step(base, tmp_path, kind, *given)[0] for kind in (active_trainer(), GRPOTrainer))
    torch.testing.assert_close(ours, trls, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("loss", "beta"), [(loss, beta) for loss in ("dapo", "grpo", "dr_grpo", "bnpo") for beta in (0.0, 0.5)]
)
def test_regrouped_micro_batches_have_the_same_gradient(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, beta: float, size: int
) -> None:
    """Beside a group whose completions are all right, and one of other lengths."""
    shapes: list[list[tuple[int, int]]] = [[], []]
    given = (base, tmp_path, active_trainer(), ["one", "two", "settled"], ["one", "two"], size, ["settled"])
    # In a second step, since a policy that is its own reference has no KL; plain descent, which leaves rounding small.
    more = {"loss_type": loss, "beta": beta, "max_steps": 2, "optim": "sgd", "learning_rate": 0.5}
    ours, logged, _ = step(*given, shapes[0], **more)
    monkeypatch.setattr(active, "regrouped", lambda batches, *_: batches)
    plain, expected, _ = step(*given, shapes[1], **more)
    assert plain.abs().max() > 1e-3
    torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-6)
    assert logged["loss"] == pytest.approx(expected["loss"], abs=1e-5)
    computed, padded = (sum(rows * width for rows, width in seen) for seen in shapes)
    assert computed < padded
    assert len(shapes[0]) == len(shapes[1]) == 24 // size, "the trainer counts micro-batches"
    if loss != "bnpo" and beta == 0:
        moving = -(-8 // size)
        rows = moving * size + 12 // size - moving
        assert sum(count for count, _ in shapes[0]) == 2 * rows, "one row stands where none moves anything"
        assert computed < 0.8 * padded


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_logged_means_are_over_the_tokens_of_the_step(base: Path, tmp_path: Path, beta: float) -> None:
    """As TRL has them where one micro-batch holds all that counts: what moves something, or with a KL everything."""
    # The second step has a KL; without one the first, before which no other update has come.
    more = {
        "loss_type": "dapo",
        "beta": beta,
        "max_steps": 2 if beta else 1,
        "optim": "sgd",
        "learning_rate": 0.5,
    }
    prompts, moving = ["one", "two", "settled"], ["one", "two"]
    ours = step(base, tmp_path, active_trainer(), prompts, moving, 2, ["settled"], **more)[1]
    size, counted = (12, prompts) if beta else (8, moving)
    whole = step(base, tmp_path, active_trainer(), counted, moving, size, ["settled"], **more)[1]
    assert ours["entropy"] == pytest.approx(whole["entropy"], rel=1e-5)
    trls = step(base, tmp_path, GRPOTrainer, prompts, moving, 2, ["settled"], **more)[1]
    assert abs(trls["entropy"] - whole["entropy"]) > 1e-4 * whole["entropy"], (
        "or no order of rows would matter"
    )
    if beta:
        assert ours["kl"] == pytest.approx(whole["kl"], rel=1e-4) and whole["kl"] > 1e-3
        assert abs(trls["kl"] - whole["kl"]) > 0.01 * whole["kl"]


@pytest.mark.parametrize("reward", [0.9, 0.1])
def test_a_group_of_equal_rewards_moves_nothing(base: Path, tmp_path: Path, reward: float) -> None:
    """Eight, whose mean in float32 is another number."""
    assert torch.full((1, 8), reward).mean(1) != reward
    seen: list[tuple[int, int]] = []
    gradient, _, moved = step(
        base,
        tmp_path,
        active_trainer(),
        ["one", "two"],
        [],
        4,
        ["one", "two"],
        seen,
        full_reward=reward,
        num_generations=8,
    )
    assert not gradient.any() and not moved and [rows for rows, _ in seen] == [1, 1]


def test_rewards_of_a_group_are_alike_or_not() -> None:
    none = float("nan")
    rewards = torch.tensor([[0.9], [0.9], [0.9], [0.8], [none], [none], [none], [0.0]])
    assert active.alike(rewards, 2).tolist() == [True, True, False, False, True, True, False, False]
    two = torch.tensor([[1.0, 0.5], [1.0, 0.5], [1.0, 0.5], [1.0, 0.4]])
    assert active.alike(two, 2).tolist() == [True, True, False, False]


def test_a_step_of_settled_groups_computes_a_row_a_micro_batch(base: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    gradient, _, moved = step(
        base, tmp_path, active_trainer(), ["one", "two"], [], 4, ["one", "two"], seen, loss_type="dapo"
    )
    assert not gradient.any() and not moved
    assert [rows for rows, _ in seen] == [1, 1]
