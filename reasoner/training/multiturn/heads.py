"""Small networks on hidden states: V's linear head, and the twin heads of ArCHer's critic."""

from typing import Any


def value_head(size: int) -> Any:
    """A linear head [*, H] -> [*, 1] that starts at 0."""
    from torch import nn

    head = nn.Linear(size, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def twin(size: int, hidden: int, seed: int) -> Any:
    """Two independent MLPs (layer norm, three linear layers, ReLU), as a module list."""
    import torch
    from torch import nn

    def one() -> Any:
        return nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    torch.manual_seed(seed)
    return nn.ModuleList([one(), one()])


def both(heads: Any, features_BH: Any) -> Any:
    """[2, B]: the outputs of a pair."""
    import torch

    return torch.stack([head(features_BH).squeeze(-1) for head in heads])
