"""MLMT's value network: V(x), V(x,z), V(x,z,g) from one set of parameters. It never sees the refinement.

`shared`: a linear head on the feedback model's last hidden state. A causal model reads x, z, g once, and the three
values stand at the ends of the three parts. `encoder`: three texts, the first token's state. Texts are cut by tokens:
the whole problem, head and tail of the attempt, the head of the feedback.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reasoner.methods.multiturn.episode import FEEDBACK, Episode
from reasoner.onpolicy.memory import MicroBatches
from reasoner.records import Problem
from reasoner.training.multiturn.encoder import Encoder
from reasoner.training.multiturn.heads import Standardiser, value_head
from reasoner.training.multiturn.policy import Policy

TAGS = ("Problem:\n", "\n\nAttempt:\n", "\n\nAdvice:\n")
ENCODER_BUDGET = (160, 192, 128)
"""Tokens of problem, attempt and feedback that an encoder of 512 tokens reads."""
ENCODER_LENGTH = sum(ENCODER_BUDGET) + 32
"""Tokens of an encoder's text, with its tags."""
MAX_PROBLEM = 1024
"""Tokens of a problem that the shared network reads."""


@dataclass(frozen=True, slots=True)
class State:
    """The texts that a value depends on."""

    question: str
    attempt: str
    feedback: str

    @classmethod
    def of(cls, problem: Problem, episode: Episode) -> "State":
        """The state of an episode before its refinement."""
        return cls(problem.question, episode.attempt.text, episode.advice)


class ValueNetwork(Protocol):
    """Values of states. `prepare` does what does not depend on the network's own parameters, once a rollout."""

    cost: int
    """Tokens that `__call__` computes for a state."""

    def parameters(self) -> list[Any]: ...

    def prepare(self, states: Sequence[State], micro: MicroBatches) -> Sequence[Any]:
        """One opaque item a state; computed in micro-batches, without gradients."""

    def fit(self, prepared: Sequence[Any], total: Callable[[Any], Any], reward: float) -> None:
        """Called with every rollout's items and mean reward; the first one fixes the scale of the input and where the
        values start, where that is not learned."""

    def __call__(self, prepared: Sequence[Any]) -> Any:
        """[N, 3] values of prepared states, with a gradient into the network's parameters alone."""

    def state(self) -> dict[str, Any]: ...

    def load_state(self, tensors: Mapping[str, Any]) -> None: ...


class SharedValue:
    """The head on the feedback model: V = w·f/√H + b on standardised states f [H].

    Without 1/√H one step of Adam, which moves every weight alike, would move V by its rate times H. And b, which alone
    carries the mean reward, would need 1/rate steps to reach it, so it starts at the mean of the first rollout.
    """

    cost = 1

    def __init__(self, policy: Policy, tokenizer: Any, max_attempt: int, max_feedback: int) -> None:
        self.head: Any = value_head(policy.hidden_size).to(policy.device)
        self.norm = Standardiser(policy.hidden_size, policy.device)
        self._policy, self._tokenizer = policy, tokenizer
        self.adapter = FEEDBACK if FEEDBACK in policy.adapters else None
        """Whose hidden states are read: the feedback model's, or the base's where no writer is trained."""
        self._budgets = (MAX_PROBLEM, max_attempt, max_feedback)

    def parameters(self) -> list[Any]:
        """ψ: weight and bias of the head."""
        return list(self.head.parameters())

    def prepare(self, states: Sequence[State], micro: MicroBatches) -> Sequence[Any]:
        """[3, H] hidden states each."""
        return self._policy.states(self.adapter, [self.read(state) for state in states], micro)

    def hidden(self, states: Sequence[State]) -> Any:
        """[N, 3, H] with whatever gradient mode and adapter are on."""
        rows, ends = zip(*(self.read(state) for state in states), strict=True)
        return self._policy.hidden(rows, ends)

    def __call__(self, prepared: Sequence[Any]) -> Any:
        import torch

        return self.on(torch.stack(list(prepared)))

    def fit(self, prepared: Sequence[Any], total: Callable[[Any], Any], reward: float) -> None:
        """Fix the scale of hidden states by the first rollout, and start at its mean reward."""
        import torch

        if self.norm.fitted:
            return
        with torch.no_grad():
            self.head.bias.fill_(reward)
        size = len(self.norm.mean)
        self.norm.fit(torch.stack(list(prepared)).view(-1, size) if prepared else torch.zeros(0, size), total)

    def on(self, hidden_NKH: Any) -> Any:
        """[N, K] values of hidden states."""
        return self.head(self._features(hidden_NKH)).squeeze(-1)

    def _features(self, hidden_NKH: Any) -> Any:
        return self.norm(hidden_NKH) / math.sqrt(hidden_NKH.shape[-1])

    def frozen_head(self, hidden_NKH: Any) -> Any:
        """[N, K] values with ψ detached: the gradient reaches the hidden states alone."""
        from torch.nn import functional

        return functional.linear(
            self._features(hidden_NKH), self.head.weight.detach(), self.head.bias.detach()
        ).squeeze(-1)

    def read(self, state: State) -> tuple[list[int], list[int]]:
        """Token ids of the three parts, and the index of each part's last token."""
        ids: list[int] = []
        ends: list[int] = []
        texts = (state.question, state.attempt, state.feedback)
        for tag, text, budget in zip(TAGS, texts, self._budgets, strict=True):
            part = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            if len(part) > budget:
                half = budget // 2
                part = [*part[:half], *part[-half:]] if tag == TAGS[1] else part[:budget]
            ids += [*self._tokenizer(tag, add_special_tokens=False)["input_ids"], *part]
            ends.append(len(ids) - 1)
        return ids, ends

    def state(self) -> dict[str, Any]:
        head = {f"head.{name}": t.detach().cpu() for name, t in self.head.state_dict().items()}
        return head | self.norm.state("norm.")

    def load_state(self, tensors: Mapping[str, Any]) -> None:
        head = {n.removeprefix("head."): t for n, t in tensors.items() if n.startswith("head.")}
        self.head.load_state_dict(head)
        self.norm.load_state(tensors, "norm.")


class EncoderValue:
    """An encoder of its own with a linear head."""

    cost = 3 * ENCODER_LENGTH

    def __init__(self, name: str, device: Any) -> None:
        self._encoder = Encoder(name, device, ENCODER_LENGTH)
        self.head: Any = value_head(self._encoder.hidden_size).to(device)

    def parameters(self) -> list[Any]:
        return [*self._encoder.model.parameters(), *self.head.parameters()]

    def prepare(self, states: Sequence[State], micro: MicroBatches) -> Sequence[Any]:
        """The three texts of each state, cut to fit."""
        keeps = ("head", "ends", "head")
        found = []
        for state in states:
            texts = (state.question, state.attempt, state.feedback)
            parts = [
                tag + self._encoder.cut(text, budget, keep)
                for tag, text, budget, keep in zip(TAGS, texts, ENCODER_BUDGET, keeps, strict=True)
            ]
            found.append(["".join(parts[: k + 1]) for k in range(3)])
        return found

    def fit(self, prepared: Sequence[Any], total: Callable[[Any], Any], reward: float) -> None:
        """An encoder that is trained needs none: its texts' states have a large common part."""

    def __call__(self, prepared: Sequence[Any]) -> Any:
        states_NH = self._encoder([text for texts in prepared for text in texts])
        return self.head(states_NH).view(len(prepared), 3)

    def state(self) -> dict[str, Any]:
        """Encoder and head as tensors on the CPU."""
        encoder = {
            f"encoder.{name}": t.detach().cpu() for name, t in self._encoder.model.state_dict().items()
        }
        return encoder | {f"head.{name}": t.detach().cpu() for name, t in self.head.state_dict().items()}

    def load_state(self, tensors: Mapping[str, Any]) -> None:
        for prefix, module in (("encoder.", self._encoder.model), ("head.", self.head)):
            module.load_state_dict(
                {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            )


def evaluate(network: ValueNetwork, prepared: Sequence[Any], micro: MicroBatches) -> list[list[float]]:
    """[N, 3] values as numbers."""
    import torch

    def compute(piece: Sequence[int], _: float) -> list[list[float]]:
        values: list[list[float]] = network([prepared[i] for i in piece]).tolist()
        return values

    count = len(prepared)
    with torch.no_grad():
        done = micro.accumulate(range(count), [network.cost] * count, compute, lambda: None, gradient=False)
    return [row for piece in done for row in piece]


def snapshot(network: ValueNetwork) -> dict[str, Any]:
    """A copy of ψ."""
    return {name: tensor.clone() for name, tensor in network.state().items()}


@contextlib.contextmanager
def as_of(network: ValueNetwork, then: Mapping[str, Any]) -> Iterator[None]:
    """Compute with an earlier ψ."""
    now = snapshot(network)
    network.load_state(then)
    try:
        yield
    finally:
        network.load_state(now)
