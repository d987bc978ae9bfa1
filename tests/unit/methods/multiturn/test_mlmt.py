"""MLMT's credits against exact enumeration on a small tree, and the two derived facts of METHODS 3.3."""

import pytest
import torch

from reasoner.errors import UsageError
from reasoner.methods.multiturn import mlmt
from reasoner.methods.multiturn.mlmt import FeedbackSettings, SolverSettings, Values
from tests.unit.methods.multiturn.making import episode
from tests.unit.methods.multiturn.tree import Leaf, Tree

CLOSE = {"rtol": 0, "atol": 1e-12}


def values_at(tree: Tree, leaf: Leaf, off: float = 0.0) -> Values:
    """The accurate values of a leaf's states; `off` is added to V3."""
    return Values([tree.value()], [tree.value(z=leaf.z)], [tree.value(z=leaf.z, g=leaf.g) + off], [0.35])


def solver_advantage(tree: Tree, kind: str, baseline: str):
    """A(leaf) by the module's own credits. The tree's expected reward stands for R, so it is put in by linearity:
    the credit of R = 1 weighs E[R], that of R = 0 the rest."""

    def of(leaf: Leaf) -> float:
        settings = SolverSettings(baseline, 0.0, False)
        both = []
        for r in (0, 1):
            found = mlmt.solver_credits([episode("p", 0, 0, r)], [0], [0], values_at(tree, leaf), settings)
            both.append(next(c.advantage for c in found if c.turn.kind == kind))
        share = float(tree.reward(leaf))
        return (1 - share) * both[0] + share * both[1]

    return of


def feedback_advantage(tree: Tree, **fields):
    defaults = {
        "shaping": "v3_minus_v2", "value_coef": 0.1, "baseline": "v2", "scale": "binary", "kl_coef": 0.0,
        "in_loss": False,
    }  # fmt: skip
    off = fields.pop("off", 0.0)
    settings = FeedbackSettings(**{**defaults, **fields})

    def of(leaf: Leaf) -> float:
        both = [
            mlmt.feedback_credits([episode("p", 0, 0, r)], [0], values_at(tree, leaf, off), settings)[
                0
            ].advantage
            for r in (0, 1)
        ]
        share = float(tree.reward(leaf))
        return (1 - share) * both[0] + share * both[1]

    return of


@pytest.fixture
def tree() -> Tree:
    return Tree(3)


def test_per_state_gives_the_true_gradient_of_both_solver_turns(tree):
    for turn, kind, wrt in ((0, "attempt", tree.z), (2, "refinement", tree.y)):
        found = tree.score_gradient(solver_advantage(tree, kind, "per_state"), turn, wrt)
        torch.testing.assert_close(found, tree.true_gradient(wrt), **CLOSE)
    assert float(tree.true_gradient(tree.z).abs().max()) > 0.01


def test_fact_1_the_literal_solver_loss_starves_turn_1(tree):
    """With V3 in both places the expected gradient on lp(z) is zero; V(x) gives the true one."""
    starved = tree.score_gradient(solver_advantage(tree, "attempt", "single"), 0, tree.z)
    assert float(starved.abs().max()) < 1e-15
    refined = tree.score_gradient(solver_advantage(tree, "refinement", "single"), 2, tree.y)
    torch.testing.assert_close(refined, tree.true_gradient(tree.y), **CLOSE)


@pytest.mark.parametrize("shaping", ["v3", "v3_minus_v2"])
@pytest.mark.parametrize("lam", [0.0, 0.1, 1.0])
def test_fact_2_an_accurate_value_adds_no_new_signal(tree, shaping, lam):
    found = tree.score_gradient(feedback_advantage(tree, shaping=shaping, value_coef=lam), 1, tree.g)
    torch.testing.assert_close(found, (1 + lam) * tree.true_gradient(tree.g), **CLOSE)


def test_a_wrong_value_is_bias_and_vstar_is_another_objective(tree):
    """A constant error of V3 changes nothing; V* that differs a state does."""
    moved = tree.score_gradient(feedback_advantage(tree, off=0.2), 1, tree.g)
    torch.testing.assert_close(moved, 1.1 * tree.true_gradient(tree.g), **CLOSE)

    def vstar_advantage(leaf: Leaf) -> float:
        values = values_at(tree, leaf)
        star = Values(values.v1, values.v2, values.v3, [0.9 if leaf.g else values.v3[0]])
        settings = FeedbackSettings("v3_minus_vstar", 1.0, "v2", "binary", 0.0, False)
        both = [
            mlmt.feedback_credits([episode("p", 0, 0, r)], [0], star, settings)[0].advantage for r in (0, 1)
        ]
        share = float(tree.reward(leaf))
        return (1 - share) * both[0] + share * both[1]

    penalised = tree.score_gradient(vstar_advantage, 1, tree.g)
    true = tree.true_gradient(tree.g)
    cosine = torch.nn.functional.cosine_similarity(penalised.flatten(), true.flatten(), dim=0)
    assert float(cosine) < 0.99, "the penalty changes the direction"
    gap = torch.stack([
        torch.as_tensor([tree.value(z=z, g=g) - (0.9 if g else tree.value(z=z, g=g)) for g in (0, 1)],
                        dtype=torch.float64) for z in (0, 1)
    ])  # fmt: skip
    objective = tree.expected(lambda leaf: tree.reward(leaf) + gap[leaf.z, leaf.g])
    (wanted,) = torch.autograd.grad(objective, tree.g)
    torch.testing.assert_close(penalised, wanted, **CLOSE)


@pytest.mark.parametrize("shaping", ["v3", "v3_minus_v2", "v3_minus_vstar"])
def test_pm1_is_twice_binary_for_every_shaping(tree, shaping):
    """R' and the values are on one scale: the gradient under ±1 is exactly twice that under 0/1."""
    binary = tree.score_gradient(feedback_advantage(tree, shaping=shaping), 1, tree.g)
    pm1 = tree.score_gradient(feedback_advantage(tree, shaping=shaping, scale="pm1"), 1, tree.g)
    torch.testing.assert_close(pm1, 2 * binary, **CLOSE)


def test_rloo_is_unbiased_with_the_values_in_the_reward(tree):
    """Two independent leaves as a group: the expected gradient is that of the shaped reward."""
    settings = FeedbackSettings("v3_minus_v2", 0.1, "rloo", "binary", 0.0, False)
    total = torch.zeros_like(tree.g)
    for a in tree.leaves():
        (grad,) = torch.autograd.grad(tree.logp(a)[1], tree.g)
        for b in tree.leaves():
            weight = float((tree.probability(a) * tree.probability(b)).detach())
            for ra in (0, 1):
                for rb in (0, 1):
                    chance = weight * _bernoulli(tree, a, ra) * _bernoulli(tree, b, rb)
                    values = _two(values_at(tree, a), values_at(tree, b))
                    rows = [episode("p", 0, 0, ra), episode("p", 1, 0, rb)]
                    total += (
                        chance * mlmt.feedback_credits(rows, [0, 0], values, settings)[0].advantage * grad
                    )
    torch.testing.assert_close(total, 1.1 * tree.true_gradient(tree.g), **CLOSE)


def _bernoulli(tree: Tree, leaf: Leaf, r: int) -> float:
    share = float(tree.reward(leaf))
    return share if r else 1 - share


def _two(a: Values, b: Values) -> Values:
    return Values([*a.v1, *b.v1], [*a.v2, *b.v2], [*a.v3, *b.v3])


def test_full_grad_reaches_phi_and_not_psi_and_stop_reaches_neither():
    """φ moves V's input, ψ is its head. L_H stop: no path to either; full: φ gets the derivative of -λV, ψ nothing."""
    phi = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    psi = torch.tensor([1.5, 0.4], dtype=torch.float64, requires_grad=True)

    def loss(full: bool, lam: float) -> torch.Tensor:
        logp = phi.log_softmax(-1)[0]
        advantage = 0.7
        total = -advantage * logp
        if full:
            v3 = torch.tanh(phi) @ psi.detach()
            total = total + mlmt.full_grad_term(v3, lam, "binary")
        return total

    (stop,) = torch.autograd.grad(loss(False, 0.1), phi)
    (full,) = torch.autograd.grad(loss(True, 0.1), phi, retain_graph=True)
    assert torch.autograd.grad(loss(True, 0.1), psi, allow_unused=True) == (None,)
    assert torch.autograd.grad(loss(False, 0.1), psi, allow_unused=True) == (None,)
    step = 1e-6
    numeric = torch.stack([
        (_with(phi, i, step, loss) - _with(phi, i, -step, loss)) / (2 * step) for i in range(2)
    ])  # fmt: skip
    torch.testing.assert_close(full, numeric, rtol=0, atol=1e-8)
    assert float((full - stop).abs().max()) > 1e-3
    (none,) = torch.autograd.grad(loss(True, 0.0), phi)
    torch.testing.assert_close(none, stop, **CLOSE)


def _with(phi: torch.Tensor, i: int, step: float, loss) -> torch.Tensor:
    with torch.no_grad():
        phi[i] += step
        value = loss(True, 0.1).clone()
        phi[i] -= step
    return value


def test_the_literal_form_moves_the_value_down_with_the_length_of_the_feedback():
    v3 = torch.tensor([0.5, 0.5], requires_grad=True)
    logp = torch.tensor([-3.0, -30.0], requires_grad=True)
    mlmt.literal_term(logp, v3, 0.1, "binary").sum().backward()
    assert v3.grad.tolist() == pytest.approx([0.3, 3.0]) and logp.grad is None


def test_value_loss_is_the_mean_of_three_squares():
    v = torch.tensor([0.2, 0.8])
    found = mlmt.value_loss(v, v, v, torch.tensor([0.0, 1.0]))
    assert float(found) == pytest.approx(0.04)


def test_leak_penalty_is_taken_off_the_feedback_alone():
    rows = [episode("p", 0, 0, 1, leak=True), episode("p", 1, 0, 1, leak=False)]
    settings = FeedbackSettings("v3_minus_v2", 0.0, "rloo", "binary", 0.0, False, leak_penalty=0.5)
    assert [c.advantage for c in mlmt.feedback_credits(rows, [0, 0], None, settings)] == [-0.5, 0.5]
    solver = mlmt.solver_credits(rows, [0, 0], [0, 0], None, SolverSettings("rloo", 0.0, False))
    assert [c.advantage for c in solver] == [0, 0, 0, 0]


def test_the_update_ratio():
    assert [mlmt.active(s, (1, 1)) for s in range(2)] == [(True, True)] * 2
    assert [mlmt.active(s, (2, 1)) for s in range(4)] == [
        (True, False), (True, False), (False, True), (True, False),
    ]  # fmt: skip


def test_missing_values_are_named():
    rows = [episode("p", 0, 0, 1)]
    with pytest.raises(UsageError, match="baseline=rloo"):
        mlmt.solver_credits(rows, [0], [0], None, SolverSettings("per_state", 0.0, False))
    with pytest.raises(UsageError, match="V\\*"):
        mlmt.shaped(Values([0], [0], [0]), "v3_minus_vstar")


def test_the_value_pushes_on_the_scale_of_the_reward():
    """V in [0, 1] becomes 2V - 1 beside R' = 2R - 1, so that λ weighs the same."""
    pushes = []
    for scale in ("binary", "pm1"):
        value = torch.tensor([0.3], requires_grad=True)
        mlmt.full_grad_term(value, 0.1, scale).sum().backward()
        pushes.append(float(value.grad))
    assert pushes == pytest.approx([-0.1, -0.2])


@pytest.mark.parametrize("scale", ["binary", "pm1"])
@pytest.mark.parametrize("shaping", ["v3", "v3_minus_v2"])
def test_where_all_is_foreseen_nothing_is_learnt(shaping, scale):
    """V2 = V3 = R: the baseline of a shaped reward is (1 + λ)·V2 for `v3`, V2 for a difference."""
    sure = Values([1.0], [1.0], [1.0], [1.0])
    settings = FeedbackSettings(shaping, 0.25, "v2", scale, 0.0, False)
    (credit,) = mlmt.feedback_credits([episode("p", 0, 1, 1)], [0], sure, settings)
    assert credit.advantage == pytest.approx(0.0)
