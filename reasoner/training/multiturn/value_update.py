"""The value network's part of an iteration of MLMT: values of a rollout's states, their regression, full-grad."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.ids import derived_seed
from reasoner.methods.multiturn import mlmt
from reasoner.methods.multiturn.episode import FEEDBACK, Episode
from reasoner.methods.multiturn.metrics import explained_variance, mean
from reasoner.methods.multiturn.mlmt import Values
from reasoner.onpolicy.parts import Part, Parts
from reasoner.training.multiturn.batching import steps
from reasoner.training.multiturn.optimiser import norm_metrics
from reasoner.training.multiturn.parts import Learned
from reasoner.training.multiturn.policy_update import Extra, settings_of
from reasoner.training.multiturn.scoring import Processes
from reasoner.training.multiturn.values import SharedValue, State, ValueNetwork, as_of, evaluate


@dataclass
class ValueUpdate:
    """One rollout's states. Items exist for the rows that this process owns."""

    learned: Learned
    config: MultiTurnConfig
    episodes: Sequence[Episode]
    states: Sequence[State]
    processes: Processes
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        assert self.learned.value is not None
        self._network: ValueNetwork = self.learned.value
        self._micro = self.learned.micro
        self._own = [i for i in range(len(self.states)) if self.processes.owns(i)]
        with self.parts.part(Part.LOGPROBS):
            items = self._network.prepare([self.states[i] for i in self._own], self._micro)
        self._rewards = [float(e.r2 or 0.0) for e in self.episodes]
        self._network.fit(items, self.processes.sum, mean(self._rewards))
        self._items = dict(zip(self._own, items, strict=True))

    def values(self, vstar: bool) -> Values:
        """V1, V2, V3 of every episode; with `vstar`, V3 by ψ before the cycle and V* by ψ after its solver updates."""
        if not vstar:
            return Values(*self._columns())
        with as_of(self._network, self.learned.before):
            v1, v2, v3 = self._columns()
        with as_of(self._network, self.learned.after):
            star = self._columns()[2]
        return Values(v1, v2, v3, star)

    def _columns(self) -> list[list[float]]:
        table = [[0.0] * len(self.states) for _ in range(3)]
        with self.parts.part(Part.LOGPROBS):
            found = evaluate(self._network, [self._items[i] for i in self._own], self._micro)
        for row, values in zip(self._own, found, strict=True):
            for column, value in enumerate(values):
                table[column][row] = value
        return [self.processes.numbers(column) for column in table]

    def regress(self, iteration: int) -> dict[str, float]:
        """`value_steps` steps on L_V; ψ alone learns. Returns metrics."""
        optimiser, first = self.learned.optimisers["value"], 0.0
        norms: list[float | None] = []
        costs = [self._network.cost] * len(self.states)

        def backward(piece: Sequence[int], _: float) -> float:
            loss = self._loss(self._network([self._items[i] for i in piece]), piece)
            loss = loss * (len(piece) / len(self.states))
            loss.backward()
            return float(loss.detach())

        for step in range(self.config.value_steps):
            optimiser.zero()
            total = 0.0
            for rows in steps(
                len(self.states), None, derived_seed(self.config.seed, "value", iteration, step)
            ):
                own = [i for i in rows if i in self._items]
                with self.parts.part(Part.FORWARD_BACKWARD):
                    total += sum(self._micro.accumulate(own, costs, backward, optimiser.zero))
            with self.parts.part(Part.OPTIMISER):
                norms.append(optimiser.step(iteration))
            if step == 0:
                (first,) = self.processes.numbers([total])
            if norms[-1] is None:
                break  # the other steps would stand on the same states
        return {"value_loss": first} | norm_metrics("value", norms)

    def _loss(self, values_N3: Any, rows: Sequence[int]) -> Any:
        import torch

        rewards = torch.tensor([self._rewards[i] for i in rows], device=values_N3.device)
        return mlmt.value_loss(values_N3[:, 0], values_N3[:, 1], values_N3[:, 2], rewards)

    def explained(self, values: Values) -> dict[str, float]:
        """Explained variance of R by each value, where R varies."""
        columns = {"v1": values.v1, "v2": values.v2, "v3": values.v3}
        found = {name: explained_variance(column, self._rewards) for name, column in columns.items()}
        return {f"explained_variance_{name}": value for name, value in found.items() if value is not None}

    def extra(self) -> Extra | None:
        """What the feedback's step adds: full-grad's -λ·V(x,z,g) and c_V·L_V, or the literal form; else None."""
        if self.config.value_reaches_feedback:
            return self._full_grad
        literal = self.config.full_grad_mode == "literal" and not self.config.stop_value_gradients
        return self._literal if literal and self.config.value_coef > 0 else None

    def beside(self) -> list[int]:
        """Tokens that `extra` computes for a turn, by episode."""
        network = self._network
        if self.config.value_reaches_feedback and isinstance(network, SharedValue):
            return [len(network.read(state)[0]) for state in self.states]
        return [network.cost] * len(self.states)

    def _full_grad(self, rows: Sequence[int], weight: float, logp_B: Any) -> None:
        """-λ·V with ψ detached reaches φ alone; c_V·L_V reaches both, so that V stays calibrated.

        Both are divided by the constant that L_H's tokens are divided by: λ and c_V weigh against R.
        """
        network, config = self.learned.value, self.config
        assert isinstance(network, SharedValue)
        # Checkpointing works in training mode alone; V is read without dropout, as everywhere else.
        with self.learned.policy.speaking(FEEDBACK, train=config.gradient_checkpointing, dropout=False):
            hidden = network.hidden([self.states[i] for i in rows])
            pushed = network.frozen_head(hidden[:, 2:])[:, 0]
            term = mlmt.full_grad_term(pushed, config.value_coef, config.guidance_reward).sum() * weight
            regression = self._loss(network.on(hidden), rows) * len(rows) * weight
            ((term + config.value_loss_coef * regression) / self._norm).backward()

    @property
    def _norm(self) -> float:
        """Tokens that the feedback's losses are divided by."""
        return settings_of(self.config, FEEDBACK).norm

    def _literal(self, rows: Sequence[int], weight: float, logp_B: Any) -> None:
        """The original's -lp·λV: a gradient on ψ, in the feedback's step. Tokens are normalised as in L_H."""
        config = self.config
        v3 = self._network([self._items[i] for i in rows])[:, 2]
        term = mlmt.literal_term(logp_B / self._norm, v3, config.value_coef, config.guidance_reward)
        (term.sum() * weight).backward()
