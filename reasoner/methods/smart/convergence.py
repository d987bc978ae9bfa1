"""When to stop: first-attempt accuracy by epoch, on questions that no result is reported on (METHODS 2.7)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.evaluation import evaluate
from reasoner.methods.smart.measured import Measured
from reasoner.statistics import Estimate


@dataclass(frozen=True, slots=True)
class Convergence(Measured):
    """Accuracy by epoch, and what follows of it."""

    accuracy: tuple[Estimate, ...]
    stop: bool
    best: int
    """The epoch, from 1, with the highest accuracy; of equal ones the first."""
    reason: str


def convergence(epochs: Sequence[Iterable[Attempt]], min_delta: float, max_epochs: int) -> Convergence:
    """Judge the first attempts of each epoch so far, at least one.

    Stop where the newest accuracy is not at least `min_delta` above the best of the epochs before, or where
    there are `max_epochs`. Raises DataError where an epoch has no scored answer.
    """
    found = tuple(evaluate(attempts).accuracy for attempts in epochs)
    if any(estimate.value is None for estimate in found):
        raise DataError(
            "epochs=until-converged has no scored validation answers to go by; set data.validation above 0, "
            "or converged_on=pool"
        )
    values = [estimate.value or 0.0 for estimate in found]
    best = max(range(len(values)), key=lambda i: values[i])
    # A small term, or 0.503 - 0.5 would be below 0.003.
    risen = len(values) == 1 or values[-1] - max(values[:-1]) >= min_delta - 1e-12
    shown = ", ".join(f"{value:.3f}" for value in values)
    if not risen:
        reason = f"converged: {shown}; epoch {len(values)} added less than {min_delta:g}"
    elif len(values) >= max_epochs:
        reason = f"stopped at max_epochs={max_epochs}, not converged: {shown}"
    else:
        reason = f"still rising: {shown}"
    return Convergence(found, not risen or len(values) >= max_epochs, best + 1, reason)
