"""One iteration of ArCHer's learner: what its critic is fitted to, when its actor moves, and by which advantages.

Wrong if V is fitted to the actions of the buffer instead of fresh ones, if the targets do not follow by τ, if the actor
moves during the warm-up, or if its credits are not min Q - min V (or r - min V) less the KL. The sampler is replaced by
fixed attempts; model, critic, buffer and losses are the program's own.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from reasoner.methods.multiturn import archer
from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import Episode, Kind
from reasoner.training.multiturn import archer_update
from reasoner.training.multiturn.archer_update import ArcherLearner
from tests.unit.training.multiturn.conftest import build, change, config, sampled

TAU, BETA, CLOSE = 0.25, 0.3, {"rtol": 1e-5, "atol": 1e-6}
ARCHER: dict[str, Any] = {
    "method": "archer", "use_smart_corrections": False, "train_guidance_model": False, "warmup_iter": 1, "epochs": 1,
    "actor_epochs": 2, "tau": TAU, "beta1": BETA, "critic_lr": 1e-2, "max_logprob_difference": 100.0,
    "max_ratio_difference": 100.0,
}  # fmt: skip
REWARDS = [(1, 0), (0, 0), (0, 0), (1, 0)]


class Room:
    """A learner with four episodes in its buffer, and other attempts at the same problems as fresh ones."""

    def __init__(self, base: Any, tokenizer: Any, processes: Any, **fields: Any) -> None:
        fields = {**ARCHER, **fields}
        self.learned = build(base, tokenizer, processes, **fields)
        change(self.learned, "solver", scale=0.1)
        self.solver = [p.detach().clone() for p in self.learned.policy.parameters("solver")]
        single = [
            Episode(e.problem_id, e.index, e.attempt)
            for e in sampled(self.learned, tokenizer, REWARDS, guided=False)
        ]
        replay = archer.Replay(100)
        replay.add(
            single[:1] + single[2:3]
        )  # one a problem: the right one of the first, the wrong one of the second
        self.others = {single[1].problem_id: single[1], single[3].problem_id: single[3]}
        self.synced, self.asked = 0, list[tuple[str, bool]]()
        self.learner = ArcherLearner(self.learned, config(**fields), processes, replay, self.fresh, self.sync)

    def fresh(self, ids: Sequence[str], name: str, judge: bool) -> list[Episode]:
        self.asked.append((name, judge))
        return [self.others[i] for i in ids]

    def sync(self) -> None:
        self.synced += 1

    def prepared(self, episodes: Sequence[Episode]) -> list[Any]:
        return list(self.learned.critic.prepare([e.attempt for e in episodes], self.learned.micro))

    @property
    def moved(self) -> bool:
        now = self.learned.policy.parameters("solver")
        return any(not torch.equal(a, b) for a, b in zip(self.solver, now, strict=True))


@pytest.fixture
def parts(base: Any, tokenizer: Any, processes: Any) -> tuple[Any, ...]:
    return base, tokenizer, processes


def test_the_critic_is_fitted_to_rewards_and_to_fresh_actions_and_its_targets_follow(parts: Any) -> None:
    room = Room(*parts)
    critic, learner = room.learned.critic, room.learner
    drawn = learner._draw(0, "critic", learner.size)
    critic.fit(room.prepared(drawn), lambda tensor: tensor)
    new = room.prepared([room.others[e.problem_id] for e in drawn])
    rewards = torch.tensor([e.r1 for e in drawn])
    with torch.no_grad():
        q, v, target = critic.q(room.prepared(drawn)), critic.v(new), critic.q(new, target=True)
        of_the_buffer = critic.q(room.prepared(drawn), target=True)
    before = {name: tensor.clone() for name, tensor in critic.state().items()}
    found = learner.learn(0)
    assert found["q_loss"] == pytest.approx(float(archer.q_loss(q, rewards.expand_as(q))), rel=1e-4)
    assert found["v_loss"] == pytest.approx(float(archer.v_loss(v, target)), rel=1e-4)
    assert abs(found["v_loss"] - float(archer.v_loss(v, of_the_buffer))) > 1e-5
    after = critic.state()
    names = [name.removeprefix("target.") for name in before if name.startswith("target.")]
    assert {name.split(".")[0] for name in names} == {"q", "v"}
    for name in names:
        assert not torch.equal(before[f"trained.{name}"], after[f"trained.{name}"])
        wanted = (1 - TAU) * before[f"target.{name}"] + TAU * after[f"trained.{name}"]
        torch.testing.assert_close(after[f"target.{name}"], wanted, **CLOSE)


def test_the_actor_waits_for_the_warm_up(parts: Any) -> None:
    room = Room(*parts)
    room.learner.learn(0)
    assert not room.moved and room.synced == 0 and [name for name, _ in room.asked] == ["000001-critic"]
    room.learner.learn(1)
    assert room.moved and room.synced == 2
    assert [name for name, _ in room.asked[1:]] == ["000002-critic", "000002-actor0", "000002-actor1"]


@pytest.mark.parametrize("kl", ["reward", "loss"])
@pytest.mark.parametrize("advantage", ["q_minus_v", "r_minus_v"])
def test_the_actors_credits(parts: Any, monkeypatch: pytest.MonkeyPatch, advantage: str, kl: str) -> None:
    room = Room(*parts, advantage=advantage, kl=kl, actor_epochs=1)
    seen: list[Credit] = []
    scored: list[Any] = []
    score = archer_update.score
    monkeypatch.setattr(archer_update, "score", lambda *given: scored.append(score(*given)) or scored[-1])
    monkeypatch.setattr(archer_update, "update", lambda *given, **rest: seen.extend(given[3]) or {})
    room.learner.learn(1)
    rows = [room.others[e.problem_id] for e in room.learner._draw(1, "actor0", room.learner.size)]
    with torch.no_grad():
        prepared = room.prepared(rows)
        q, v = room.learned.critic.q(prepared).min(0).values, room.learned.critic.v(prepared).min(0).values
    worth = q if advantage == "q_minus_v" else torch.tensor([e.r1 for e in rows])
    kls = torch.tensor([scored[0].kl[i, Kind.ATTEMPT] for i in range(len(rows))])
    assert float(kls.abs().min()) > 1e-3, "there is something to take off"
    wanted = worth - v - (BETA * kls if kl == "reward" else 0.0)
    torch.testing.assert_close(torch.tensor([c.advantage for c in seen]), wanted, **CLOSE)
    assert {c.kl_coef for c in seen} == {0.0 if kl == "reward" else BETA}
    assert room.asked[-1] == ("000002-actor0", advantage == "r_minus_v")
