"""Where questions come from and how they are split."""

from typing import Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section


class ColumnMap(Section):
    """Which columns of a data set hold what."""

    question: tuple[str, ...] = ("question",)
    """Columns that make the question, joined by one space (SVAMP: `Body`, `Question`)."""
    answer: str = "answer"
    """Column with the gold answer."""
    original: str | None = None
    """Column with the original question, where rows are rephrasings of it (MetaMathQA: `original_question`)."""
    solution: str | None = None
    """Column with a worked solution."""
    tags: tuple[str, ...] = ()
    """Further columns to keep with each problem."""


class SourceConfig(Section):
    """One data set: from the Hub, from a local file, or generated."""

    name: str
    """The name that reports and file names use."""
    kind: Literal["hub", "file", "generated"] = "file"
    path: str
    """A Hub id (`openai/gsm8k`), a file (.jsonl, .json, .csv, .parquet), or a generator's name."""
    config: str | None = None
    """The Hub data set's configuration, such as `main`."""
    split: str = "train"
    """The Hub data set's split."""
    revision: str | None = None
    """The Hub data set's commit; unset means the newest, whose commit is recorded."""
    columns: ColumnMap = ColumnMap()
    answer_format: Literal["plain", "hash_marks", "marker", "first_token"] = "plain"
    """How the gold is read: the whole cell; after `####`; after the last "The answer is:"; the first token."""
    where: dict[str, tuple[str, ...]] = {}
    """Keep rows whose column equals one of the values; a value that ends in `*` is a prefix (`type: [GSM*]`)."""
    limit: int | None = Field(default=None, ge=1)
    """Keep this many rows, chosen by hash of the question and the seed; unset keeps all."""
    max_unreadable: float = Field(default=0.05, ge=0, le=1)
    """The run stops when a larger share of the golds can't be read as a number."""
    seed: int = 0
    """For generators and for `limit`."""


class DataConfig(Section):
    """Training questions, validation questions and evaluation sets; no question may be in two of them."""

    pool: SourceConfig
    """The training questions; answers are used only to check the model's own solutions."""
    validation: float = Field(default=0.1, ge=0, lt=1)
    """Share of the pool kept for validation, by hash of the original question."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the pool kept for evaluation as the set `held-out`, by hash of the original question."""
    evaluation: dict[str, SourceConfig] = {}
    """Further evaluation sets by name."""

    @model_validator(mode="after")
    def _shares(self) -> "DataConfig":
        if self.validation + self.held_out >= 1:
            raise ValueError("validation + held_out must be below 1, or nothing is left to train on")
        if not self.evaluation and self.held_out == 0:
            raise ValueError("no evaluation questions: name a set under data.evaluation or set data.held_out")
        return self
