"""One AdamW a trained part, stepped alike in every process: gradients are summed over processes, clipped, applied.

Losses are divided by global counts, so the sum over processes is the gradient of the whole rollout whatever their
number. The state is kept in safetensors: nothing is pickled.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reasoner.errors import TrainingError
from reasoner.methods.multiturn.metrics import mean

CALM_EPSILON = 1e-2
"""Adam divides a gradient by its size plus this, usually 1e-8: one of rounding (1e-5) moves a thousandth of the rate
instead of all of it, one of 0.1 still nine tenths."""

SKIPPED_STOP = 3
"""So many iterations in a row in which a gradient is not finite end the run."""
IN_A_ROW = "skipped.in_a_row"
"""How many there have been, in the saved state."""


def norm_metrics(name: str, norms: Sequence[float | None]) -> dict[str, float]:
    """The mean norm of the gradients that were applied; nothing where none was."""
    applied = [norm for norm in norms if norm is not None]
    return {f"{name}_grad_norm": mean(applied)} if applied else {}


class Optimiser:
    """AdamW without weight decay on `parameters`; `reduce` sums a tensor over the processes in place or returns it."""

    def __init__(
        self, name: str, parameters: Sequence[Any], lr: float, max_grad_norm: float, warmup_steps: int = 0,
        reduce: Any = None, calm: Any = None, log: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        """`calm` is one of the parameters whose gradient may be rounding alone, and that then has to stay."""
        import torch

        self.name, self.parameters = name, list(parameters)
        self._lr, self._max_norm, self._warmup, self._reduce = lr, max_grad_norm, warmup_steps, reduce
        self._log, self._skipped = log, 0
        self._in_a_row, self._last_skip = 0, -1
        groups: list[dict[str, Any]] = [{"params": [p for p in self.parameters if p is not calm]}]
        if calm is not None:
            groups.append({"params": [calm], "eps": CALM_EPSILON})
        self._inner = torch.optim.AdamW(groups, lr=lr, weight_decay=0.0)

    def zero(self) -> None:
        """Forget gradients, of passes that were meant for other parts, too."""
        self._inner.zero_grad(set_to_none=True)

    def step(self, iteration: int) -> float | None:
        """Apply the gradients and forget them; returns their norm before clipping. `iteration` counts from 0.

        A gradient that is not finite is forgotten, and None returned: weights and moments stay as they are. All
        processes do so alike, since it is summed first. Raises TrainingError in the last of `SKIPPED_STOP` such
        iterations in a row.
        """
        import torch

        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        if self._reduce is not None:
            flat = self._reduce(torch.cat([g.reshape(-1).float() for g in grads]))
            at = 0
            for i, grad in enumerate(grads):
                grads[i] = flat[at : at + grad.numel()].view_as(grad).to(grad.dtype)
                at += grad.numel()
        for parameter, grad in zip(self.parameters, grads, strict=True):
            parameter.grad = grad
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self._max_norm))
        if not math.isfinite(norm):
            self._skip(norm, iteration)
            return None
        self._in_a_row = 0
        rate = self._lr * min(1.0, (iteration + 1) / self._warmup) if self._warmup else self._lr
        for group in self._inner.param_groups:
            group["lr"] = rate
        self._inner.step()
        self.zero()
        return norm

    def _skip(self, norm: float, iteration: int) -> None:
        self.zero()
        self._skipped += 1
        if iteration != self._last_skip:  # several steps of one iteration stand on the same data
            self._in_a_row, self._last_skip = self._in_a_row + 1, iteration
        said = f"the gradient of {self.name} is {norm} in iteration {iteration + 1}"
        if self._in_a_row >= SKIPPED_STOP:
            raise TrainingError(
                f"{said}, and was not finite in {SKIPPED_STOP} iterations in a row; lower its learning rate, or train "
                "with precision=fp32"
            )
        self._log(f"{said}: this step is skipped")

    def take_skipped(self) -> int:
        """How many steps were skipped since the last call."""
        taken, self._skipped = self._skipped, 0
        return taken

    def state(self) -> dict[str, Any]:
        """Adam's moments and step counts as tensors by `index.name`, and the iterations skipped in a row."""
        import torch

        return {IN_A_ROW: torch.tensor(self._in_a_row)} | {
            f"{i}.{key}": torch.as_tensor(value).detach().cpu().contiguous()
            for i, p in enumerate(self.parameters)
            for key, value in self._inner.state.get(p, {}).items()
        }

    def load_state(self, tensors: Mapping[str, Any]) -> None:
        """Take what `state` gave."""
        self._in_a_row = int(tensors.get(IN_A_ROW, 0))
        for i, p in enumerate(self.parameters):
            state: dict[str, Any] = {}
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if (value := tensors.get(f"{i}.{key}")) is not None:
                    state[key] = value.clone() if key == "step" else value.to(p.device, p.dtype).clone()
            if state:
                self._inner.state[p] = state
