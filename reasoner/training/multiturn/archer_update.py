"""One iteration's learning of ArCHer: critic steps on the buffer, then actor steps on freshly sampled attempts.

All fresh actions of the critic's steps are sampled in one engine call, since the policy stands still meanwhile; each
actor step samples anew, because the policy has moved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.ids import derived_seed
from reasoner.methods.multiturn import archer
from reasoner.methods.multiturn.episode import SOLVER, Episode, Kind
from reasoner.methods.multiturn.metrics import mean
from reasoner.onpolicy.parts import Part, Parts
from reasoner.training.multiturn.batching import longest_first
from reasoner.training.multiturn.gate import LoopGate
from reasoner.training.multiturn.parts import Learned
from reasoner.training.multiturn.policy_update import settings_of, update
from reasoner.training.multiturn.scoring import Processes, kl_metrics, score, turns_of

Fresh = Callable[[Sequence[str], str, bool], list[Episode]]
"""(problem ids, a name for the draw, whether to judge) -> one newly sampled attempt each, by the policy as it is."""


@dataclass
class ArcherLearner:
    """The critic, its buffer and the actor. `sync` hands the adapter to the engine."""

    learned: Learned
    config: MultiTurnConfig
    processes: Processes
    replay: archer.Replay
    fresh: Fresh
    sync: Callable[[], None]
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        self._gate = LoopGate(self.config, self.learned.policy.device.type)

    def learn(self, iteration: int) -> dict[str, float]:
        """Critic steps, then, after the warm-up, actor steps. The rollout is in the buffer already."""
        metrics = self._critic(iteration) | {"buffer": float(len(self.replay))}
        if iteration < self.config.warmup_iter:
            return metrics
        for epoch in range(self.config.actor_epochs):
            metrics |= self._actor(iteration, epoch)
            self.sync()
        return metrics

    @property
    def size(self) -> int:
        """Episodes a critic or actor step."""
        accumulated = self.config.grad_accum_steps
        return self.config.batch_size * accumulated if accumulated else self.config.rollout_size

    def _draw(self, iteration: int, name: str, count: int) -> list[Episode]:
        return self.replay.draw(count, derived_seed(self.config.seed, "replay", iteration, name))

    def _critic(self, iteration: int) -> dict[str, float]:
        """`epochs` steps on L_Q + L_V, the targets following after each."""
        config, critic = self.config, self.learned.critic
        assert critic is not None
        drawn = self._draw(iteration, "critic", config.epochs * self.size)
        fresh = self.fresh([e.problem_id for e in drawn], f"{iteration + 1:06d}-critic", False)
        self._fit(drawn)
        found: list[list[float]] = []
        for epoch in range(config.epochs):
            rows = range(epoch * self.size, (epoch + 1) * self.size)
            own = [i for i in rows if self.processes.owns(i)]
            optimiser, sums = self.learned.optimisers["critic"], [0.0, 0.0, 0.0]
            optimiser.zero()
            with self.parts.part(Part.FORWARD_BACKWARD):
                for shares in self._critic_pass(own, drawn, fresh, optimiser.zero):
                    sums = [s + share for s, share in zip(sums, shares, strict=True)]
            with self.parts.part(Part.OPTIMISER):
                optimiser.step(iteration)
                critic.follow(config.tau)
            found.append(self.processes.numbers(sums))
        q, v, error = (mean([row[k] for row in found]) for k in range(3))
        return {"q_loss": q, "v_loss": v, "q_error": error}

    def _fit(self, drawn: Sequence[Episode]) -> None:
        """The scale of the features, from the first draw's rows of this process and all others."""
        critic = self.learned.critic
        assert critic is not None
        if not critic.fitted:
            own = [e.attempt for i, e in enumerate(drawn) if self.processes.owns(i)]
            critic.fit(critic.prepare(own, self.learned.micro), self.processes.sum)

    def _critic_pass(
        self,
        own: Sequence[int],
        drawn: Sequence[Episode],
        fresh: Sequence[Episode],
        reset: Callable[[], None],
    ) -> list[list[float]]:
        """The gradient of a critic step's rows; the terms of each micro-batch, as shares of the step's means."""
        critic, micro = self.learned.critic, self.learned.micro
        assert critic is not None
        lengths = [len(e.attempt.prompt_ids) + len(e.attempt.token_ids) for e in drawn]
        seen, new = (
            dict(zip(own, critic.prepare([rows[i].attempt for i in own], micro), strict=True))
            for rows in (drawn, fresh)
        )

        def backward(piece: Sequence[int], _: float) -> list[float]:
            terms = self._critic_loss(
                [drawn[i] for i in piece], [seen[i] for i in piece], [new[i] for i in piece]
            )
            (sum(terms[:2]) * (len(piece) / self.size)).backward()
            return [float(t.detach()) * len(piece) / self.size for t in terms]

        # Q of what was seen and V of what is new: two graphs a row.
        costs = [2 * critic.cost] * len(drawn)
        found: list[list[float]] = micro.accumulate(longest_first(own, lengths), costs, backward, reset)
        return found

    def _critic_loss(
        self, drawn: Sequence[Episode], seen: Sequence[Any], new: Sequence[Any]
    ) -> tuple[Any, Any, Any]:
        """(L_Q, L_V, mean |Q - r|) of a micro-batch, prepared. An attempt ends the episode: d = 1."""
        import torch

        critic, device = self.learned.critic, self.learned.policy.device
        assert critic is not None
        rewards = torch.tensor([float(e.r1 or 0.0) for e in drawn], device=device)
        with torch.no_grad():
            next_value = torch.zeros((), device=device)  # there is no next state
            target = archer.q_target(rewards, torch.ones_like(rewards), next_value, self.config.gamma)
            target_q = critic.q(new, target=True)
        q = critic.q(seen)
        loss_q = archer.q_loss(q, target.expand_as(q))
        return loss_q, archer.v_loss(critic.v(new), target_q), (q.mean(0) - rewards).abs().mean()

    def _actor(self, iteration: int, epoch: int) -> dict[str, float]:
        """One policy step on fresh attempts at states of the buffer."""
        config = self.config
        drawn = self._draw(iteration, f"actor{epoch}", self.size)
        wants_reward = config.advantage == "r_minus_v"
        name = f"{iteration + 1:06d}-actor{epoch}"
        episodes = self.fresh([e.problem_id for e in drawn], name, wants_reward)
        episodes = [e for e in episodes if e.attempt.token_ids and (e.scored or not wants_reward)]
        if not episodes:
            return {}
        with self.parts.part(Part.LOGPROBS):
            scored = score(
                self.learned.policy,
                turns_of(episodes),
                config.temperature,
                self.learned.micro,
                self.processes,
            )
        self._gate.check(scored, iteration + 1, fresh=iteration == config.warmup_iter and epoch == 0)
        with self.parts.part(Part.LOGPROBS):
            advantages = self._advantages(episodes)
        if config.kl == "reward":
            kl = [scored.kl[i, Kind.ATTEMPT] for i in range(len(episodes))]
            advantages = [a - config.beta1 * k for a, k in zip(advantages, kl, strict=True)]
        credits = archer.actor_credits(episodes, advantages, config.beta1 if config.kl == "loss" else 0.0)
        metrics = update(
            self.learned.policy, SOLVER, self.learned.optimisers[SOLVER], credits, scored.reference,
            settings_of(config.model_copy(update={"grad_accum_steps": None}), SOLVER), self.processes,
            self.learned.micro, iteration=iteration, seed=derived_seed(config.seed, SOLVER, iteration, epoch),
            parts=self.parts,
        )  # fmt: skip
        return metrics | kl_metrics(scored) | {"advantage": mean(advantages)}

    def _advantages(self, episodes: Sequence[Episode]) -> list[float]:
        """min Q - min V (or r - min V) of every episode, in every process."""
        import torch

        critic, micro = self.learned.critic, self.learned.micro
        assert critic is not None
        own = [i for i in range(len(episodes)) if self.processes.owns(i)]
        prepared = dict(zip(own, critic.prepare([episodes[i].attempt for i in own], micro), strict=True))

        def compute(piece: Sequence[int], _: float) -> list[float]:
            states = [prepared[i] for i in piece]
            v = critic.v(states)
            if self.config.advantage == "q_minus_v":
                return list(archer.advantage(critic.q(states), v).tolist())
            rewards = torch.tensor([float(episodes[i].r1 or 0.0) for i in piece], device=v.device)
            return list((rewards - v.min(0).values).tolist())

        costs = [critic.cost] * len(episodes)
        with torch.no_grad():
            done = micro.accumulate(own, costs, compute, lambda: None, gradient=False)
        found = [0.0] * len(episodes)
        for row, value in zip(own, (value for piece in done for value in piece), strict=True):
            found[row] = value
        return self.processes.numbers(found)
