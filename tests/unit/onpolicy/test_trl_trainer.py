"""TRL's GRPOTrainer on our sampler, with a tiny model.

Wrong if a step samples from old weights, if groups are torn, if the base moves, if samples of other weights are trained
on, if a resumed training ends with other bytes, or if a full device changes group or batch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.engines.protocol import EngineSettings
from reasoner.errors import UsageError
from reasoner.onpolicy.gate import Gate, OffPolicyError
from reasoner.onpolicy.memory import train_healing
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.parts import Parts
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.trl_trainer import make_grpo_trainer
from reasoner.training.checkpoints import all_checkpoints
from reasoner.training.trainer import Batch
from tests.unit.onpolicy.conftest import make_policy
from tests.unit.onpolicy.test_learner import FullDevice

GROUP = 4
pytestmark = pytest.mark.filterwarnings("ignore")


class Reward:
    """The share of small token ids; remembers the groups that it saw."""

    __name__ = "small"

    def __init__(self) -> None:
        self.groups: list[tuple[str, ...]] = []

    def __call__(self, prompts: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
        self.groups += [tuple(prompts[i : i + GROUP]) for i in range(0, len(prompts), GROUP)]
        assert columns["finish"] and set(columns["finish"]) <= {"stop", "length"}
        return [sum(t < 120 for t in ids) / len(ids) for ids in completion_ids]


def open_one(base: Path, folder: Path) -> OnPolicySampler:
    settings = EngineSettings("transformers", base, "float32", 3, options={"max_model_len": 256})
    return open_sampler(settings, log=folder / "log", in_process=True, say=lambda line: None)


def trainer(
    base: Path,
    work: Path,
    sampler: OnPolicySampler,
    *,
    batch: Batch | None = None,
    model: Any = None,
    **more: Any,
) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig

    cut = batch or Batch(8, 1)
    settings = {
        "output_dir": str(work), "per_device_train_batch_size": cut.size, "learning_rate": 5e-2,
        "gradient_accumulation_steps": cut.accum, "steps_per_generation": cut.accum,
        "num_generations": GROUP, "max_completion_length": 8, "max_steps": 4, "logging_steps": 1,
        "save_steps": 1, "bf16": False, "use_cpu": True, "report_to": "none", "seed": 5,
        "gradient_checkpointing": False, "beta": 0.02, "disable_tqdm": True,
    }  # fmt: skip
    gate = more.pop("gate", Gate("float32", threshold=0.002, stop=0.05))
    return make_grpo_trainer(
        sampler,
        gate=gate,
        parts=Parts(),
        model=model or make_policy(base, seed=1),
        args=GRPOConfig(**{**settings, **more.pop("settings", {})}),
        train_dataset=Dataset.from_dict({"prompt": [f"Problem {i}: how many cows?" for i in range(16)]}),
        reward_funcs=more.pop("reward", Reward()),
        **more,
    )


def trained(one: Any) -> dict[str, Any]:
    return {n: p.detach().clone() for n, p in one.model.named_parameters() if p.requires_grad}


def test_each_step_samples_from_the_weights_of_that_step(base: Path, tmp_path: Path) -> None:
    reward = Reward()
    with open_one(base, tmp_path) as sampler:
        asked: list[tuple[int, int]] = []
        original = sampler.sample
        sampler.sample = lambda requests, **more: (  # type: ignore[method-assign]
            asked.append((sampler.versions["policy"], len(requests))) or original(requests, **more)
        )
        one = trainer(base, tmp_path, sampler, reward=reward)
        frozen = {n: p.clone() for n, p in one.model.named_parameters() if not p.requires_grad}
        before = trained(one)
        one.train()
    assert asked == [(step + 1, 8) for step in range(4)]
    assert all(len(set(group)) == 1 for group in reward.groups) and len(reward.groups) == 8
    assert all(torch.equal(frozen[n], p) for n, p in one.model.named_parameters() if n in frozen)
    assert any(not torch.equal(before[n], p) for n, p in trained(one).items())
    logs = [entry for entry in one.state.log_history if "drift/mean" in entry]
    assert len(logs) == 4 and logs[0]["drift/mean"] < 0.002 and all(e["drift/mean"] < 0.05 for e in logs)
    for part in ("sync", "generate", "verdict", "forward_backward", "logprobs", "optimiser", "wall"):
        assert logs[-1][f"time/{part}"] > 0, part
    assert logs[-1]["time/other"] >= -1e-9


def test_an_engine_that_keeps_the_base_is_stopped(base: Path, tmp_path: Path) -> None:
    model = make_policy(base, seed=1, std=0.3)
    with open_one(base, tmp_path) as sampler:
        blank = make_policy(base, seed=2)
        sync = sampler.sync
        sampler.sync = lambda name, model: sync(name, blank)  # type: ignore[method-assign]
        one = trainer(base, tmp_path, sampler, model=model)
        before = trained(one)
        with pytest.raises(OffPolicyError, match="serves the bare base"):
            one.train()
        assert all(torch.equal(before[n], p) for n, p in trained(one).items())


def test_an_engine_that_keeps_old_weights_is_stopped(base: Path, tmp_path: Path) -> None:
    with open_one(base, tmp_path) as sampler:
        one = trainer(base, tmp_path, sampler, settings={"max_steps": 8})
        sync = sampler.sync
        sampler.sync = lambda *args: None if sampler.versions else sync(*args)  # type: ignore[method-assign]
        with pytest.raises(OffPolicyError, match="differ by"):
            one.train()
        assert 1 <= one.state.global_step < 8


@pytest.mark.parametrize("beta", [0.0, 0.02])
def test_a_resumed_training_has_the_bytes_of_an_undisturbed_one(
    base: Path, tmp_path: Path, beta: float
) -> None:
    """With beta TRL keeps a copy of the adapter beside it, and transformers' resume would read only that."""
    results = []
    for name, stops in (("alone", [4]), ("resumed", [2, 4])):
        for stop in stops:
            with open_one(base, tmp_path) as sampler:
                one = trainer(base, tmp_path / name, sampler, settings={"beta": beta})
                one.add_callback(stopping(stop))
                one.train(resume_from_checkpoint=bool(all_checkpoints(tmp_path / name)) or None)
                assert one.state.global_step == stop
        results.append(trained(one))
    assert all(torch.equal(results[0][n], results[1][n]) for n in results[0])


def stopping(step: int) -> Any:
    from transformers import TrainerCallback

    class Stopping(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
            control.should_training_stop = state.global_step >= step
            return control

    return Stopping()


def test_a_full_device_keeps_group_and_batch(base: Path, tmp_path: Path) -> None:
    reward, said, cuts = Reward(), list[str](), list[Batch]()
    with open_one(base, tmp_path) as sampler:

        def make(batch: Batch) -> Any:
            cuts.append(batch)
            one = trainer(base, tmp_path / "work", sampler, batch=batch, reward=reward)
            FullDevice(one.model, 4 * 64)  # 4 rows at once
            return one

        def last() -> str | None:
            found = all_checkpoints(tmp_path / "work")
            return str(found[-1]) if found else None

        one, batch = train_healing(make, Batch(8, 1), last, said.append)
    assert cuts == [Batch(8, 1), Batch(4, 2)] and batch == Batch(4, 2) and len(said) == 1
    assert one.state.global_step == 4 and one.num_generations == GROUP
    assert one.args.generation_batch_size == 8
    assert all(len(set(group)) == 1 for group in reward.groups)


def test_the_smaller_cut_gives_the_same_update(base: Path, tmp_path: Path) -> None:
    results = []
    for batch in (Batch(8, 1), Batch(2, 4)):
        with open_one(base, tmp_path) as sampler:
            one = trainer(base, tmp_path / str(batch.size), sampler, batch=batch, settings={"max_steps": 1})
            one.train()
            results.append(trained(one))
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"top_p": 0.9}, "top_p=0.9 biases"),
        ({"top_k": 7}, "top_k=7 biases"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
    ],
)
def test_settings_under_which_the_two_sides_differ_are_refused(
    base: Path, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with open_one(base, tmp_path) as sampler, pytest.raises(UsageError, match=words):
        trainer(base, tmp_path, sampler, settings=settings)


def test_use_vllm_and_a_model_without_adapters_are_refused(
    base: Path, tmp_path: Path, fresh: Callable[..., Any]
) -> None:
    from trl import GRPOConfig

    with open_one(base, tmp_path) as sampler:
        config = GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True)
        config.use_vllm = True
        with pytest.raises(UsageError, match="second engine"):
            make_grpo_trainer(sampler, args=config)
        with pytest.raises(UsageError, match="LoRA adapter named 'default'"):
            trainer(base, tmp_path, sampler, model=fresh(names=("other",)))
