"""TRL's GRPOTrainer on the sampler: it samples with the adapter of the step, and the gate is asked each step."""

from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.errors import TrainingError
from reasoner.onpolicy import trl_rollout
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.trl_rollout import rollout_func
from tests.unit.onpolicy.conftest import move


def trainer(policy: Any, rollout: Any, folder: Path, steps: int = 3) -> Any:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    base = policy.get_base_model().config._name_or_path
    config = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=8, num_generations=4, max_completion_length=8,
        learning_rate=5e-2, max_steps=steps, logging_steps=1, report_to="none", save_strategy="no", use_cpu=True,
        bf16=False, gradient_checkpointing=False, beta=0.0, disable_tqdm=True,
    )  # fmt: skip

    def vowels(completions: list[str], **_: Any) -> list[float]:
        """A reward that differs inside every group."""
        return [
            float(sum(letter in "aeiou" for letter in text)) + 0.01 * i for i, text in enumerate(completions)
        ]

    rows = Dataset.from_dict({"prompt": ["one", "two", "three", "four"]})
    return GRPOTrainer(
        model=policy, reward_funcs=vowels, args=config, train_dataset=rows, rollout_func=rollout,
        processing_class=AutoTokenizer.from_pretrained(base),
    )  # fmt: skip


def test_each_step_samples_with_the_adapter_of_that_step(
    policy: Any, sampler: OnPolicySampler, tmp_path: Path
) -> None:
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    gate = Gate("float32", threshold=0.02, stop=0.02)
    made = trainer(policy, rollout_func(sampler, lambda p: (p, True), max_tokens=8, gate=gate), tmp_path)
    made.train()
    changed = {n for n, weight in policy.named_parameters() if not torch.equal(weight, before[n])}
    assert changed and all("lora_" in name for name in changed), "the adapter learns, the base does not"
    seen = [
        row["sampler_trainer_difference"]
        for row in made.state.log_history
        if "sampler_trainer_difference" in row
    ]
    assert len(seen) == 3 and max(seen) < 0.02
    assert sampler._folder._versions["policy"] == 3


def test_a_sampler_that_is_not_sent_the_adapter_stops_the_run(
    policy: Any, sampler: OnPolicySampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler.sync("policy", policy)
    monkeypatch.setattr(sampler, "sync", lambda *_: None)
    gate = Gate("float32", threshold=0.02, stop=0.02)
    made = trainer(policy, rollout_func(sampler, lambda p: (p, True), max_tokens=8, gate=gate), tmp_path)
    with pytest.raises(TrainingError, match="was the adapter sent after the last step"):
        made.train()


def test_the_gate_looks_at_several_prompts_without_dropout(
    policy: Any, sampler: OnPolicySampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group would not show a mixed-up prompt, and dropout would be taken for a difference of the two."""
    from peft.tuners.lora import LoraLayer

    move(policy, 1)
    for module in policy.modules():
        if isinstance(module, LoraLayer):
            module.lora_dropout["default"] = torch.nn.Dropout(0.5)
    prompts: list[Any] = []

    def watched(model: Any, given: Any, *more: Any, **options: Any) -> Any:
        prompts.extend(given)
        return token_logprobs(model, given, *more, **options)

    monkeypatch.setattr(trl_rollout, "token_logprobs", watched)
    gate = Gate("float32", threshold=0.02)
    rollout = rollout_func(sampler, lambda p: (p, True), max_tokens=8, gate=gate)
    made = trainer(policy, rollout, tmp_path, 1)
    made.model.train()
    rollout([name for name in ("one", "two", "three", "four") for _ in range(8)], made)
    assert len(prompts) == 8 and len(set(prompts)) == 4
    assert len(gate.history) == 1 and made.model.training
