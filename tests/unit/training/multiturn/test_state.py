"""Checkpoints: what comes back, which is the best, what is dropped after a kill."""

import functools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.engines.start import open_engine
from reasoner.errors import InfrastructureError, TrainingError
from reasoner.records import Problem
from reasoner.store.rows import read_rows
from reasoner.training import checkpoints
from reasoner.training.multiturn import checkpointing, sampling
from reasoner.training.multiturn.checkpointing import State
from reasoner.training.multiturn.learner import Learner
from reasoner.training.multiturn.loop import METRICS, Loop, batch_of, keep_metrics
from reasoner.training.multiturn.optimiser import IN_A_ROW, Optimiser
from tests.support.signal import write_templates
from tests.unit.methods.multiturn.making import episode
from tests.unit.training.multiturn.conftest import PROBLEMS, REWARDS, build, config, sampled

NO_SAMPLES = SimpleNamespace(sync=lambda policy: None)


def fingerprint(learned) -> dict[str, bytes]:
    found = {
        a: torch.cat([p.detach().flatten() for p in learned.policy.parameters(a)])
        for a in learned.policy.adapters
    }
    return {name: tensor.numpy().tobytes() for name, tensor in found.items()}


@pytest.mark.parametrize("shaping", ["v3_minus_v2", "v3_minus_vstar"])
def test_a_restored_run_takes_the_same_next_step(base, tokenizer, processes, tmp_path: Path, shaping):
    fields = {"shaping": shaping, "update_ratio": "2:1" if shaping == "v3_minus_vstar" else "1:1"}
    first = build(base, tokenizer, processes, **fields)
    learner = Learner(first, config(**fields), processes)
    for step in range(2):
        learner.learn(step, sampled(first, tokenizer, REWARDS), PROBLEMS)
    folder = checkpointing.save(tmp_path, first, State(2), "acc_t2", 2)
    assert checkpoints.is_complete(folder)
    assert not [p for p in folder.rglob("*") if p.suffix in (".pt", ".pth", ".bin", ".pkl")], (
        "nothing is pickled"
    )
    second = build(base, tokenizer, processes, **fields)
    state = checkpointing.load(folder, second)
    assert state.step == 2 and fingerprint(second) == fingerprint(first)
    for learned in (first, second):
        Learner(learned, config(**fields), processes).learn(2, sampled(learned, tokenizer, REWARDS), PROBLEMS)
    assert fingerprint(second) == fingerprint(first)
    for name, tensor in first.value.state().items():
        assert torch.equal(tensor, second.value.state()[name])


def test_the_best_is_the_earliest_of_the_highest_and_never_the_untrained():
    rows = [{"step": s, "acc_t2": a} for s, a in ((0, 0.9), (2, 0.5), (4, 0.7), (6, 0.7))]
    assert State(6, rows).best("acc_t2") == 4
    assert State(0, rows[:1]).best("acc_t2") is None


def test_the_best_checkpoint_survives_the_rotation(base, tokenizer, processes, tmp_path: Path):
    learned = build(base, tokenizer, processes)
    state = State()
    for step, accuracy in ((1, 0.2), (2, 0.8), (3, 0.1), (4, 0.3), (5, 0.4)):
        state.step = step
        state.validations.append({"step": step, "acc_t2": accuracy})
        checkpointing.save(tmp_path, learned, state, "acc_t2", 2)
    assert [checkpoints.step_of(p) for p in checkpoints.all_checkpoints(tmp_path)] == [2, 4, 5]
    assert checkpoints.last_complete(tmp_path).name == "checkpoint-5"


def test_a_torn_line_and_what_is_behind_the_checkpoint_are_cut(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1}\n{"step":2}\n{"step":3}\n{"st')
    keep_metrics(path, 2)
    assert [r["step"] for r in read_rows(path)] == [1, 2]
    keep_metrics(tmp_path / "new.jsonl", 2)
    assert read_rows(tmp_path / "new.jsonl") == []


def test_a_gradient_that_is_not_finite_changes_nothing_and_three_in_a_row_stop_the_run():
    """As if the step had not been: the next gradient moves weights as in a run without it."""
    said: list[str] = []

    def stepped(gradients: list[float]) -> tuple[torch.Tensor, dict[str, torch.Tensor], Optimiser]:
        weight = torch.zeros(2, requires_grad=True)
        optimiser = Optimiser("solver", [weight], 1e-3, 1.0, log=said.append)
        for number, gradient in enumerate(gradients):
            weight.grad = torch.tensor([gradient, 0.5])
            norm = optimiser.step(number)
            assert weight.grad is None and (norm is None) is not math.isfinite(gradient)
        return weight.detach(), optimiser.state(), optimiser

    nan, inf = float("nan"), float("inf")
    plain, state, _ = stepped([0.3, -0.2])
    weight, kept, optimiser = stepped([0.3, nan, inf, -0.2, nan, nan])
    assert torch.equal(plain, weight) and plain.abs().min() > 0
    assert (state.pop(IN_A_ROW), kept.pop(IN_A_ROW)) == (0, 2)
    assert all(torch.equal(state[name], kept[name]) for name in state | kept) and state
    assert said[:2] == [
        f"the gradient of solver is {what} in iteration {at}: this step is skipped"
        for what, at in (("nan", 2), ("inf", 3))
    ]
    assert len(said) == 4 and (optimiser.take_skipped(), optimiser.take_skipped()) == (4, 0)
    with pytest.raises(
        TrainingError, match=r"gradient of solver is nan in iteration 3.* in 3 iterations in a row"
    ):
        stepped([nan, nan, nan])


def test_steps_of_one_iteration_count_once_and_the_count_is_kept():
    weight = torch.zeros(2, requires_grad=True)

    def fail(optimiser: Optimiser, iteration: int) -> None:
        weight.grad = torch.tensor([float("nan"), 0.5])
        assert optimiser.step(iteration) is None

    first, second = (Optimiser("value", [weight], 1e-3, 1.0, log=lambda _: None) for _ in range(2))
    for iteration in (0, 0, 0, 0, 1):
        fail(first, iteration)
    second.load_state(first.state())
    with pytest.raises(TrainingError, match="in 3 iterations in a row"):
        fail(second, 2)


def test_a_state_that_is_not_finite_skips_one_step_of_the_value_and_is_not_its_scale(
    base, tokenizer, processes, monkeypatch
):
    learned = build(base, tokenizer, processes)
    learner = Learner(learned, config(), processes)
    read = learned.policy.states

    def spoilt(*given):
        found = read(*given)
        found[0] = found[0] * float("nan")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(learned.policy, "states", spoilt)
        learner.learn(0, sampled(learned, tokenizer, REWARDS), PROBLEMS)
    skipped = learned.skipped()
    assert skipped["value_skipped"] == 1.0 and not learned.value.norm.fitted
    learner.learn(1, sampled(learned, tokenizer, REWARDS), PROBLEMS)
    assert learned.value.norm.fitted and set(learned.skipped().values()) == {0.0}
    assert all(torch.isfinite(tensor).all() for tensor in learned.value.state().values())


def test_an_iteration_with_a_skipped_step_is_counted_and_the_run_goes_on(
    base, tokenizer, processes, tmp_path, monkeypatch
):
    """One NaN in the first gradient: metrics without numbers that are none, and a second iteration."""
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))
    prompts = str(write_templates(tmp_path / "prompts.yaml", "hint"))
    fields = {"iterations": 2, "eval_freq": 5, "prompts": prompts, "kl": "loss",
              "engine": {"kind": "transformers", "options": {}}}  # fmt: skip
    learned = build(base, tokenizer, processes, **fields)
    weight = learned.policy.parameters("solver")[0]
    spoilt = iter([float("nan")])
    weight.register_hook(lambda gradient: gradient + next(spoilt, 0.0))
    problems, settings = list(PROBLEMS.values()), config(**fields)
    loop = Loop(
        settings, tmp_path, learned, processes, problems, problems, None, lambda **_: None, lambda _: None
    )
    with sampling.open_sampler(settings, base, None, tmp_path, 512, loop.parts) as sampler:
        loop.sampler = sampler
        loop.run()
    first, second = read_rows(tmp_path / METRICS)
    assert (first["solver_skipped"], second["solver_skipped"]) == (1.0, 0.0)
    assert (
        first["feedback_skipped"] == 0.0 and "solver_grad_norm" not in first and "solver_grad_norm" in second
    )
    assert torch.isfinite(weight).all()


def test_learning_rates_rise_over_the_warm_up():
    weight = torch.zeros(1, requires_grad=True)
    optimiser = Optimiser("solver", [weight], 0.1, 10.0, warmup_steps=4)
    moves = []
    for step in range(5):
        before = float(weight.detach())
        weight.grad = torch.ones(1)
        optimiser.step(step)
        moves.append(before - float(weight.detach()))
    assert moves == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1], rel=1e-3)


def test_every_problem_comes_once_a_pass_and_never_twice_in_a_batch():
    problems = [Problem.make(f"q{i}", "1", "d") for i in range(7)]
    batches = [batch_of(problems, 3, 0, i) for i in range(7)]
    assert all(len({p.id for p in b}) == 3 for b in batches)
    seen = [p.id for b in batches[:2] for p in b]
    assert len(set(seen)) == 6
    assert [p.id for p in batch_of(problems, 3, 0, 4)] == [p.id for p in batches[4]]
    assert {p.id for p in batch_of(problems[:2], 3, 0, 0)} == {p.id for p in problems[:2]}


def loop(base, tokenizer, processes, work: Path, **fields) -> Loop:
    learned = build(base, tokenizer, processes, **fields)
    problems = list(PROBLEMS.values())
    settings: MultiTurnConfig = config(**fields)
    return Loop(
        settings, work, learned, processes, problems, problems, NO_SAMPLES, lambda **_: None, lambda _: None
    )


def test_a_rollout_with_too_many_unscored_episodes_stops_the_run(base, tokenizer, processes, tmp_path: Path):
    made = loop(base, tokenizer, processes, tmp_path)
    made._check_unscored([episode("p", i, 0, -1 if i == 0 else 1) for i in range(20)])
    with pytest.raises(InfrastructureError, match=r"2 of 20 episodes are unscored \(test 2\)"):
        made._check_unscored([episode("p", i, 0, -1 if i < 2 else 1) for i in range(20)])


def test_files_behind_the_checkpoint_are_dropped_before_going_on(base, tokenizer, processes, tmp_path: Path):
    made = loop(base, tokenizer, processes, tmp_path)
    for folder in ("episodes", "validations"):
        (tmp_path / folder).mkdir()
        for step in (1, 2, 3):
            (tmp_path / folder / f"{step:06d}.jsonl").write_text("")
    made.state.step = 2
    made._forget_later()
    for folder in ("episodes", "validations"):
        assert sorted(p.stem for p in (tmp_path / folder).iterdir()) == ["000001", "000002"]
