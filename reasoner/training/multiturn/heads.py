"""Small networks on hidden states: V's linear head, the twin heads of ArCHer's critic, and what evens their input.

A language model's hidden states have a large common part and small differences between texts; without taking the common
part off, the heads learn next to nothing (a critic on a tiny model: loss 0.50 after 300 steps, 0.005 with it).
"""

from collections.abc import Callable, Mapping
from typing import Any

FLOOR = 0.05
"""Least scale of a dimension, as a share of the mean scale: dimensions that hardly vary are not blown up."""


class Standardiser:
    """(h - mean)/scale by dimension, with the mean and the scale of the first rollout, then fixed."""

    def __init__(self, size: int, device: Any) -> None:
        import torch

        self.mean, self.scale = torch.zeros(size, device=device), torch.ones(size, device=device)
        self.fitted = False

    def fit(self, states_NH: Any, total: Callable[[Any], Any]) -> None:
        """Take the moments of [N, H] states, which `total` sums over the processes. Later calls change nothing.

        Moments that are not finite are not taken: the next rollout's may be.
        """
        import torch

        if self.fitted:
            return
        ones = torch.full((1,), float(len(states_NH)), device=self.mean.device, dtype=torch.float64)
        states = states_NH.double() if len(states_NH) else torch.zeros(0, len(self.mean), dtype=torch.float64)
        parts = total(torch.cat([states.sum(0).to(ones.device), (states**2).sum(0).to(ones.device), ones]))
        if not torch.isfinite(parts).all():
            return
        count, size = parts[-1].clamp(min=1.0), len(self.mean)
        mean = parts[:size] / count
        scale = (parts[size : 2 * size] / count - mean**2).clamp(min=0.0).sqrt()
        self.mean = mean.float()
        self.scale = scale.clamp(min=max(FLOOR * float(scale.mean()), 1e-6)).float()
        self.fitted = True

    def __call__(self, states_H: Any) -> Any:
        return (states_H - self.mean) / self.scale

    def state(self, prefix: str) -> dict[str, Any]:
        """Moments as tensors on the CPU; none before they are fitted."""
        found = {f"{prefix}mean": self.mean.cpu(), f"{prefix}scale": self.scale.cpu()}
        return found if self.fitted else {}

    def load_state(self, tensors: Mapping[str, Any], prefix: str) -> None:
        """Take what `state` gave."""
        if f"{prefix}mean" in tensors:
            self.mean = tensors[f"{prefix}mean"].to(self.mean.device)
            self.scale = tensors[f"{prefix}scale"].to(self.scale.device)
            self.fitted = True


def value_head(size: int) -> Any:
    """A linear head [*, H] -> [*, 1] that starts at 0."""
    from torch import nn

    head = nn.Linear(size, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def twin(size: int, hidden: int, seed: int) -> Any:
    """Two independent MLPs of three linear layers and ReLU, as a module list."""
    import torch
    from torch import nn

    def one() -> Any:
        return nn.Sequential(
            nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    torch.manual_seed(seed)
    return nn.ModuleList([one(), one()])


def both(heads: Any, features_BH: Any) -> Any:
    """[2, B]: the outputs of a pair."""
    import torch

    return torch.stack([head(features_BH).squeeze(-1) for head in heads])
