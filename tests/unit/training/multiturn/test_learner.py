"""What of the configuration an iteration's updates are made with: every number that is set reaches its loss.

Wrong if a coefficient, a clip, a temperature, a reward's scale or a baseline is another than the configured one, if a
KL belongs to another turn, or if values are read after they were fitted to the very rewards that they are to foresee.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from reasoner.methods.multiturn import mlmt, rl_guided, score
from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import Episode, Kind
from reasoner.training.multiturn import learner
from reasoner.training.multiturn.learner import Learner
from reasoner.training.multiturn.policy_update import Settings
from reasoner.training.multiturn.program import announce
from reasoner.training.multiturn.scoring import Scored
from reasoner.training.multiturn.value_update import ValueUpdate
from tests.unit.training.multiturn.conftest import PROBLEMS, REWARDS, build, change, config, sampled

ODD: dict[str, Any] = {
    "alpha": 7.0, "beta1": 0.3, "beta2": 0.6, "guidance_kl_coef": 0.9, "temperature": 0.7, "clip_low": 0.1,
    "clip_high": 0.3, "guidance_reward": "pm1", "leak_penalty": 0.5, "value_coef": 0.4, "stage1_steps": 1,
    "stage2_steps": 1, "guidance_max_tokens": 6, "max_logprob_difference": 100.0, "max_ratio_difference": 100.0,
}  # fmt: skip
SCORE = {"method": "score", "use_smart_corrections": False, "train_guidance_model": False}


class Seen:
    """An iteration of a learner whose updates are only looked at."""

    def __init__(
        self, room: Sequence[Any], monkeypatch: pytest.MonkeyPatch, iteration: int, **fields: Any
    ) -> None:
        fields = {**ODD, **fields}
        learned = build(*room, **fields)
        for seed, adapter in enumerate(learned.policy.adapters):
            change(learned, adapter, seed)
        self.rows: list[Episode] = sampled(learned, room[1], REWARDS)
        self.order: list[str] = []
        self.updates: dict[str, tuple[list[Credit], Settings]] = {}
        real = learner.score_turns

        def scoring(policy: Any, turns: Any, temperature: float, *rest: Any) -> Scored:
            self.scored = real(policy, turns, temperature, *rest)
            self.temperature = temperature
            return self.scored

        def update(policy: Any, adapter: str, optimiser: Any, credits: Any, references: Any, settings: Any,
                   *rest: Any, **options: Any) -> dict[str, float]:  # fmt: skip
            assert references is self.scored.reference
            self.updates[adapter] = (credits, settings)
            return {}

        values, regress = ValueUpdate.values, ValueUpdate.regress

        def reading(self_: ValueUpdate, vstar: bool) -> Any:
            self.order.append("values")
            self.values = values(self_, vstar)
            return self.values

        def fitting(self_: ValueUpdate, iteration: int) -> Any:
            self.order.append("regress")
            return regress(self_, iteration)

        for target, name, double in (
            (learner, "score_turns", scoring), (learner, "update", update),
            (ValueUpdate, "values", reading), (ValueUpdate, "regress", fitting),
        ):  # fmt: skip
            monkeypatch.setattr(target, name, double)
        Learner(learned, config(**fields), room[2]).learn(iteration, self.rows, PROBLEMS)

    def kl(self, kind: Kind) -> list[float]:
        found = [self.scored.kl[i, kind] for i in range(len(self.rows))]
        assert all(abs(value) > 1e-3 for value in found), "there is something to get wrong"
        return found


@pytest.fixture
def room(base: Any, tokenizer: Any, processes: Any) -> tuple[Any, ...]:
    return base, tokenizer, processes


@pytest.mark.parametrize("kl", ["loss", "reward"])
@pytest.mark.parametrize(("iteration", "stage"), [(0, 1), (1, 2)])
def test_score(
    room: Any, monkeypatch: pytest.MonkeyPatch, iteration: int, stage: score.Stage, kl: str
) -> None:
    seen = Seen(room, monkeypatch, iteration, kl=kl, **SCORE)
    wanted = score.credits(
        seen.rows, seen.kl(Kind.ATTEMPT), seen.kl(Kind.REFINEMENT), stage,
        score.Coefficients(7.0, 0.3, 0.6, kl == "loss"),
    )  # fmt: skip
    assert seen.updates == {"solver": (wanted, Settings(0.7, 0.1, 0.3, 8.0, None))}
    assert seen.temperature == 0.7


@pytest.mark.parametrize("kl", ["loss", "reward"])
def test_rl_guideds_writer(room: Any, monkeypatch: pytest.MonkeyPatch, kl: str) -> None:
    seen = Seen(
        room, monkeypatch, 0, method="rl_guided", kl=kl, grad_accum_steps=2, token_normalisation="sum"
    )
    rewards = rl_guided.feedback_rewards(seen.rows, "pm1", 0.5)
    wanted = rl_guided.feedback_credits(seen.rows, rewards, seen.kl(Kind.FEEDBACK), 0.9, kl == "loss")
    assert seen.updates["feedback"] == (wanted, Settings(0.7, 0.1, 0.3, 1.0, 6))
    assert set(seen.updates) == {"solver", "feedback"}


@pytest.mark.parametrize("kl", ["loss", "reward"])
@pytest.mark.parametrize(
    ("baseline", "of_writer", "shaping"),
    [("per_state", "v2", "v3_minus_v2"), ("single", "rloo", "v3"), ("rloo", "v2", "v3")],
)
def test_mlmt(
    room: Any,
    monkeypatch: pytest.MonkeyPatch,
    baseline: mlmt.Baseline,
    of_writer: Any,
    shaping: mlmt.Shaping,
    kl: str,
) -> None:
    fields = {"baseline": baseline, "guidance_baseline": of_writer, "shaping": shaping}
    seen = Seen(room, monkeypatch, 0, kl=kl, **fields)
    assert seen.order == ["values", "regress"]
    solver = mlmt.solver_credits(
        seen.rows, seen.kl(Kind.ATTEMPT), seen.kl(Kind.REFINEMENT), seen.values,
        mlmt.SolverSettings(baseline, 0.3, kl == "loss"),
    )  # fmt: skip
    writer = mlmt.feedback_credits(
        seen.rows, seen.kl(Kind.FEEDBACK), seen.values,
        mlmt.FeedbackSettings(shaping, 0.4, of_writer, "pm1", 0.9, kl == "loss", 0.5),
    )  # fmt: skip
    assert seen.updates == {
        "solver": (solver, Settings(0.7, 0.1, 0.3, 8.0, None)),
        "feedback": (writer, Settings(0.7, 0.1, 0.3, 6.0, None)),
    }


def test_the_literal_solver_loss_is_warned_of() -> None:
    said: dict[str, list[str]] = {}
    for baseline in ("single", "per_state"):
        announce(config(baseline=baseline), "cpu", 0, said.setdefault(baseline, []).append)
    assert any("starves turn 1" in line for line in said["single"])
    assert not any("starves" in line for line in said["per_state"])
