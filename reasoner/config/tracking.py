"""Where a run's numbers are shown besides its own report."""

from pydantic import Field

from reasoner.config.base import Section


class TrackingConfig(Section):
    """Weights & Biases. A key comes from the environment (WANDB_API_KEY); without one, runs are written offline."""

    wandb: bool = False
    """Show training losses and evaluations in Weights & Biases; needs the extra `wandb`."""
    project: str = Field(default="reasoner", min_length=1)
    """The project's name there."""
