"""The losses of SCoRe, RL-guided SCoRe and MLMT against their objectives' gradients, by enumeration of a small tree.

Every pair of leaves is a group of two, every verdict of both turns is drawn with its chance, and the module's own
credits go through the module's own losses: what comes out is the exact expectation of the update, leave-one-out
baseline and KL included. It must be minus the gradient of what METHODS 3.3, 3.5 and 3.6 write, turn by turn (γ = 0 but
for MLMT, both of whose solver turns earn the terminal reward).
"""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch

from reasoner.methods.multiturn import losses, mlmt, rl_guided, score
from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import Episode, Kind
from reasoner.methods.multiturn.score import Coefficients
from tests.unit.methods.multiturn.making import episode
from tests.unit.methods.multiturn.tree import FIRST_REWARD, Leaf, Tree

CLOSE = {"rtol": 0, "atol": 1e-12}
TURNS = {Kind.ATTEMPT: 0, Kind.FEEDBACK: 1, Kind.REFINEMENT: 2}
ALPHA, BETA1, BETA2, BETA_H, LEAK = 10.0, 0.3, 0.7, 0.4, 0.5
Credits = Callable[[Sequence[Episode], Sequence[Leaf]], list[Credit]]
"""Of two episodes and the leaves that they took."""


@pytest.fixture
def tree() -> Tree:
    return Tree(3)


@pytest.fixture
def reference() -> Tree:
    return Tree(8)


def verdicts(tree: Tree, leaf: Leaf) -> list[tuple[float, Episode]]:
    """The episode of a leaf under each pair of verdicts, with the pair's chance. Feedback 1 tells the answer."""
    first, second = float(FIRST_REWARD[leaf.z]), float(tree.reward(leaf))
    return [
        (
            (first if r1 else 1 - first) * (second if r2 else 1 - second),
            episode("p", 0, r1, r2, leak=bool(leaf.g)),
        )
        for r1, r2 in itertools.product((0, 1), repeat=2)
    ]


def expected_credit(tree: Tree, leaf: Leaf, kind: Kind, credits: Credits) -> tuple[float, float]:
    """E[advantage] of a leaf's turn over the other member of its group and all verdicts, and its KL coefficient."""
    advantage, coefficients = 0.0, set()
    for other in tree.leaves():
        for (p, a), (q, b) in itertools.product(verdicts(tree, leaf), verdicts(tree, other)):
            (credit,) = [c for c in credits([a, b], [leaf, other]) if c.episode == 0 and c.turn.kind == kind]
            advantage += float(tree.probability(other).detach()) * p * q * credit.advantage
            coefficients.add(credit.kl_coef)
    (coefficient,) = coefficients
    return advantage, coefficient


def expected_gradient(
    tree: Tree, reference: Tree, kind: Kind, wrt: torch.Tensor, credits: Credits
) -> torch.Tensor:
    """The expectation of the gradient of the loss, which is linear in the advantage while the ratio is 1."""
    turn, one = TURNS[kind], torch.ones(1, 1, dtype=torch.float64)
    total = torch.zeros_like(wrt)
    for leaf in tree.leaves():
        advantage, coefficient = expected_credit(tree, leaf, kind, credits)
        logp = tree.logp(leaf)[turn].reshape(1, 1)
        loss = losses.policy_loss(
            logp, logp.detach(), one, torch.tensor([advantage], dtype=torch.float64), clip_low=0.2, clip_high=0.2,
            norm=1.0,
        )  # fmt: skip
        base = reference.logp(leaf)[turn].detach().reshape(1, 1)
        loss = loss + coefficient * losses.kl_loss(logp, base, one, norm=1.0)
        (grad,) = torch.autograd.grad(loss.sum(), wrt)
        total += float(tree.probability(leaf).detach()) * grad
    return total


def gradient(objective: torch.Tensor, wrt: torch.Tensor) -> torch.Tensor:
    (grad,) = torch.autograd.grad(objective, wrt)
    return grad


def kls(tree: Tree, reference: Tree, leaves: Sequence[Leaf], kind: Kind) -> list[float]:
    return [float(tree.k1(leaf, reference, TURNS[kind]).detach()) for leaf in leaves]


def score_credits(tree: Tree, reference: Tree, stage: score.Stage, in_loss: bool) -> Credits:
    def made(rows: Sequence[Episode], leaves: Sequence[Leaf]) -> list[Credit]:
        first, second = (kls(tree, reference, leaves, k) for k in (Kind.ATTEMPT, Kind.REFINEMENT))
        return score.credits(rows, first, second, stage, Coefficients(ALPHA, BETA1, BETA2, in_loss))

    return made


def kl_of(tree: Tree, reference: Tree, kind: Kind, in_loss: bool) -> torch.Tensor:
    """The KL that each estimator descends: k3 in the loss KL(π_ref‖π), k1 in the reward KL(π‖π_ref)."""
    return (tree.forward_kl if in_loss else tree.reverse_kl)(reference, TURNS[kind])


def first_reward(leaf: Leaf) -> torch.Tensor:
    return FIRST_REWARD[leaf.z]


@pytest.mark.parametrize("in_loss", [False, True], ids=["kl in the reward", "kl in the loss"])
def test_stage_1_moves_turn_2_and_holds_turn_1(tree: Tree, reference: Tree, in_loss: bool) -> None:
    """max E[ r2 - β_1·KL(y2) ] by turn 2, and -β_2·KL(y1) alone by turn 1, though its choice moves r1 and r2."""
    credits = score_credits(tree, reference, 1, in_loss)
    found = expected_gradient(tree, reference, Kind.ATTEMPT, tree.z, credits)
    held = BETA2 * kl_of(tree, reference, Kind.ATTEMPT, in_loss)
    torch.testing.assert_close(found, gradient(held, tree.z), **CLOSE)

    found = expected_gradient(tree, reference, Kind.REFINEMENT, tree.y, credits)
    wanted = tree.expected(tree.reward) - BETA1 * kl_of(tree, reference, Kind.REFINEMENT, in_loss)
    torch.testing.assert_close(found, -gradient(wanted, tree.y), **CLOSE)
    for turns, wrt in ((first_reward, tree.z), (tree.reward, tree.z), (tree.reward, tree.y)):
        assert float(gradient(tree.expected(turns), wrt).abs().max()) > 0.01, (
            "there is something to get wrong"
        )


@pytest.mark.parametrize("in_loss", [False, True], ids=["kl in the reward", "kl in the loss"])
def test_stage_2_pays_each_turn_for_itself_and_shapes_turn_2(
    tree: Tree, reference: Tree, in_loss: bool
) -> None:
    """γ = 0: turn 1 climbs E[r1] - β_1·KL(y1) and nothing of r2; turn 2 climbs E[r2 + α(r2 - r1)] - β_1·KL(y2)."""
    credits = score_credits(tree, reference, 2, in_loss)
    found = expected_gradient(tree, reference, Kind.ATTEMPT, tree.z, credits)
    wanted = tree.expected(first_reward) - BETA1 * kl_of(tree, reference, Kind.ATTEMPT, in_loss)
    torch.testing.assert_close(found, -gradient(wanted, tree.z), **CLOSE)

    found = expected_gradient(tree, reference, Kind.REFINEMENT, tree.y, credits)
    shaped = tree.expected(lambda leaf: tree.reward(leaf) + ALPHA * (tree.reward(leaf) - first_reward(leaf)))
    wanted = shaped - BETA1 * kl_of(tree, reference, Kind.REFINEMENT, in_loss)
    torch.testing.assert_close(found, -gradient(wanted, tree.y), **CLOSE)


@pytest.mark.parametrize("in_loss", [False, True], ids=["kl in the reward", "kl in the loss"])
@pytest.mark.parametrize(("scale", "factor"), [("binary", 1.0), ("pm1", 2.0)])
@pytest.mark.parametrize("penalty", [0.0, LEAK])
def test_the_writer_climbs_the_refinements_reward(
    tree: Tree, reference: Tree, scale: rl_guided.RewardScale, factor: float, penalty: float, in_loss: bool
) -> None:
    """L_H = -mean((R' - b)·lp(g)) + β_H·KL(g): R' is R or 2R - 1, less the penalty for a feedback that tells."""

    def credits(rows: Sequence[Episode], leaves: Sequence[Leaf]) -> list[Credit]:
        rewards = rl_guided.feedback_rewards(rows, scale, penalty)
        kl = kls(tree, reference, leaves, Kind.FEEDBACK)
        return rl_guided.feedback_credits(rows, rewards, kl, BETA_H, in_loss)

    found = expected_gradient(tree, reference, Kind.FEEDBACK, tree.g, credits)
    paid = tree.expected(lambda leaf: factor * tree.reward(leaf) - penalty * leaf.g)
    wanted = paid - BETA_H * kl_of(tree, reference, Kind.FEEDBACK, in_loss)
    torch.testing.assert_close(found, -gradient(wanted, tree.g), **CLOSE)
    assert float(tree.true_gradient(tree.g).abs().max()) > 0.01


@pytest.mark.parametrize("in_loss", [False, True], ids=["kl in the reward", "kl in the loss"])
def test_mlmts_solver_climbs_the_terminal_reward_near_its_reference(
    tree: Tree, reference: Tree, in_loss: bool
) -> None:
    """max E[R] - β·KL(z) by the attempt and E[R] - β·KL(y) by the refinement."""
    settings = mlmt.SolverSettings("rloo", BETA2, in_loss)

    def credits(rows: Sequence[Episode], leaves: Sequence[Leaf]) -> list[Credit]:
        first, second = (kls(tree, reference, leaves, k) for k in (Kind.ATTEMPT, Kind.REFINEMENT))
        return mlmt.solver_credits(rows, first, second, None, settings)

    for kind, wrt in ((Kind.ATTEMPT, tree.z), (Kind.REFINEMENT, tree.y)):
        wanted = tree.expected(tree.reward) - BETA2 * kl_of(tree, reference, kind, in_loss)
        found = expected_gradient(tree, reference, kind, wrt, credits)
        torch.testing.assert_close(found, -gradient(wanted, wrt), **CLOSE)


@pytest.mark.parametrize("in_loss", [False, True], ids=["kl in the reward", "kl in the loss"])
@pytest.mark.parametrize(("scale", "factor"), [("binary", 1.0), ("pm1", 2.0)])
def test_mlmts_writer_climbs_the_same_near_its_own_reference(
    tree: Tree, reference: Tree, scale: rl_guided.RewardScale, factor: float, in_loss: bool
) -> None:
    """Without a value (λ = 0): R' less the penalty for a feedback that tells, and β_H·KL(g)."""
    settings = mlmt.FeedbackSettings("v3_minus_v2", 0.0, "rloo", scale, BETA_H, in_loss, LEAK)

    def credits(rows: Sequence[Episode], leaves: Sequence[Leaf]) -> list[Credit]:
        return mlmt.feedback_credits(rows, kls(tree, reference, leaves, Kind.FEEDBACK), None, settings)

    found = expected_gradient(tree, reference, Kind.FEEDBACK, tree.g, credits)
    paid = tree.expected(lambda leaf: factor * tree.reward(leaf) - LEAK * leaf.g)
    wanted = paid - BETA_H * kl_of(tree, reference, Kind.FEEDBACK, in_loss)
    torch.testing.assert_close(found, -gradient(wanted, tree.g), **CLOSE)
