"""What our own optimiser loop is given: samples with advantages."""

from dataclasses import dataclass

from reasoner.errors import TrainingError
from reasoner.onpolicy.sampler import Sample
from reasoner.records import Record


@dataclass(frozen=True, slots=True)
class Row(Record):
    """One training row: a sample with its advantage."""

    sample: Sample
    advantage: float | tuple[float, ...]
    """One number, or one a completion token [T]."""
    kl: float = 0.0
    """Coefficient of this row's KL to the reference in the loss."""
    weight: float = 1.0
    """0 masks the row out and counts it (an unscored completion); it is never a reward of 0."""

    def advantages(self) -> list[float]:
        """One advantage a token. Raises TrainingError where their number is not that of the tokens."""
        count = len(self.sample.token_ids)
        if isinstance(self.advantage, int | float):
            return [float(self.advantage)] * count
        if len(self.advantage) != count:
            raise TrainingError(f"a row has {len(self.advantage)} advantages for {count} tokens")
        return list(self.advantage)
