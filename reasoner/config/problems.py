"""The judged problems of a multi-turn run: where they are from and how they are split."""

from typing import Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section
from reasoner.config.data import SourceConfig

EnvType = Literal["math", "code"]


class ProblemsConfig(Section):
    """The problems of a run and how they are split. No question may be in two parts."""

    train: SourceConfig
    """The problems to learn from; golds and reference programs are tried at load."""
    test: SourceConfig | None = None
    """A set of its own for the final evaluation; unset cuts `test_size` problems from `train`."""
    test_size: int = Field(default=500, ge=0)
    """Problems for the final evaluation: so many are cut from `train`, or kept of `test`."""
    validation_size: int = Field(default=60, ge=1)
    """Problems of `train` for the periodic validation."""
    tests_per_problem: int | None = Field(default=3, ge=1)
    """Code: a row with another number of tests is left out; null takes any number."""
    max_rejected: float = Field(default=0.05, ge=0, le=1)
    """The run stops when a larger share of golds or reference programs fails its own check."""
    overlap: Literal["error", "drop"] = "error"
    """Training problems that are also in `test`: stop, or leave them out."""
    seed: int = 0
    """Which problems are test and validation. Apart from the training's seed, so that several trainings of one file are
    tested on the same problems."""

    @model_validator(mode="after")
    def _something_to_test(self) -> "ProblemsConfig":
        if self.test is None and self.test_size < 1:
            raise ValueError("no evaluation problems: set problems.test or a test_size of 1 or more")
        return self
