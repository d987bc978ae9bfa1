"""A small z → g → ŷ tree with softmax policies, for exact enumeration: two actions a turn."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

SOLVER_REWARD = torch.tensor([[[0.1, 0.9], [0.6, 0.3]], [[0.8, 0.2], [0.4, 0.7]]], dtype=torch.float64)
"""E[R | z, g, y]."""
FIRST_REWARD = torch.tensor([0.25, 0.65], dtype=torch.float64)
"""E[r1 | z]: what the attempt itself earns, which SCoRe's solver is paid for."""


class Leaf(NamedTuple):
    z: int
    g: int
    y: int


class Tree:
    """Policies π(z), π(g|z), π(y|z,g) with their logits as parameters, and a known reward."""

    def __init__(self, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.z = torch.randn(2, generator=draw, dtype=torch.float64, requires_grad=True)
        self.g = torch.randn(2, 2, generator=draw, dtype=torch.float64, requires_grad=True)
        self.y = torch.randn(2, 2, 2, generator=draw, dtype=torch.float64, requires_grad=True)

    def leaves(self) -> Iterator[Leaf]:
        yield from (Leaf(*leaf) for leaf in itertools.product((0, 1), repeat=3))

    def logp(self, leaf: Leaf) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        z, g, y = leaf
        return (
            self.z.log_softmax(-1)[z],
            self.g[z].log_softmax(-1)[g],
            self.y[z, g].log_softmax(-1)[y],
        )

    def probability(self, leaf: Leaf) -> torch.Tensor:
        return torch.stack(self.logp(leaf)).sum().exp()

    def reward(self, leaf: Leaf) -> torch.Tensor:
        return SOLVER_REWARD[leaf]

    def expected(self, value: Callable[[Leaf], torch.Tensor]) -> torch.Tensor:
        """Σ p(leaf)·value(leaf)."""
        return torch.stack([self.probability(leaf) * value(leaf) for leaf in self.leaves()]).sum()

    def value(self, **known: int) -> float:
        """E[R | what is known of z and g]."""
        chosen = [leaf for leaf in self.leaves() if all(getattr(leaf, k) == v for k, v in known.items())]
        p = torch.stack([self.probability(leaf) for leaf in chosen]).detach()
        r = torch.stack([self.reward(leaf) for leaf in chosen])
        return float((p * r).sum() / p.sum())

    def score_gradient(
        self, advantage: Callable[[Leaf], float], turn: int, wrt: torch.Tensor
    ) -> torch.Tensor:
        """E[A(leaf)·∇ log π(turn)], the expected policy-gradient estimate, by enumeration."""
        total = torch.zeros_like(wrt)
        for leaf in self.leaves():
            (grad,) = torch.autograd.grad(self.logp(leaf)[turn], wrt)
            total += float(self.probability(leaf).detach()) * advantage(leaf) * grad
        return total

    def k1(self, leaf: Leaf, reference: "Tree", turn: int) -> torch.Tensor:
        """log π - log π_ref of a turn: the sequence KL of one sample."""
        return self.logp(leaf)[turn] - reference.logp(leaf)[turn].detach()

    def reverse_kl(self, reference: "Tree", turn: int) -> torch.Tensor:
        """E[KL(π ‖ π_ref)] of a turn over what comes before it."""
        return self.expected(lambda leaf: self.k1(leaf, reference, turn))

    def forward_kl(self, reference: "Tree", turn: int) -> torch.Tensor:
        """E[KL(π_ref ‖ π)] of a turn over what comes before it, which π draws."""
        parts = []
        for leaf in self.leaves():
            own, other = self.logp(leaf)[turn], reference.logp(leaf)[turn].detach()
            before = (self.probability(leaf) / own.exp()).detach()
            parts.append(before * other.exp() * (other - own))
        return torch.stack(parts).sum()

    def true_gradient(self, wrt: torch.Tensor) -> torch.Tensor:
        """∇ E[R]."""
        (grad,) = torch.autograd.grad(self.expected(self.reward), wrt)
        return grad
