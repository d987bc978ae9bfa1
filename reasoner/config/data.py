"""Where questions come from and how they are split."""

from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from reasoner.config.base import Section

FILE_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
HELD_OUT = "held-out"
"""The evaluation set that `data.held_out` cuts from the pool."""


class ColumnMap(Section):
    """Which columns of a data set hold what."""

    question: tuple[str, ...] = ("question",)
    """Columns that make the question, joined by one space (SVAMP: `Body`, `Question`)."""
    answer: str | tuple[str, ...] = "answer"
    """Column with the gold answer; of several, the first that the data set has."""
    original: str | None = None
    """Column with the original question, where rows are rephrasings of it (MetaMathQA: `original_question`)."""
    solution: str | None = None
    """Column with a worked solution."""
    tags: tuple[str, ...] = ()
    """Further columns to keep with each problem."""


class SourceConfig(Section):
    """One data set: from the Hub, from a local file, or generated."""

    name: str
    """The name that reports and file names use; in `pool` and `evaluation` it is the key unless it is set."""
    kind: Literal["hub", "file", "generated"]
    """Unset: `file` where the path ends like a data file (.jsonl, .json, .csv, .parquet), else `hub`."""
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
    where: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Keep rows whose column equals one of the values; a value that ends in `*` is a prefix (`type: [GSM*]`)."""
    limit: int | None = Field(default=None, ge=1)
    """Keep this many problems, chosen by hash of the question and the seed; unset keeps all.
    For a generator: the number of problems to make (must be set)."""
    max_unreadable: float = Field(default=0.05, ge=0, le=1)
    """The run stops when a larger share of the golds can't be read as a number."""
    seed: int = 0
    """For generators and for `limit`."""

    @model_validator(mode="before")
    @classmethod
    def _kind_of_path(cls, values: Any) -> Any:
        """So that `path=/my/folder/gsm8k.jsonl` is all it takes to read a Hub data set from a file."""
        if not isinstance(values, dict) or not isinstance(values.get("path"), str):
            return values
        is_file = PurePath(values["path"]).suffix.lower() in FILE_SUFFIXES
        if is_file and values.get("kind") in (None, "hub"):
            return {**values, "kind": "file"}
        return values if values.get("kind") else {**values, "kind": "hub"}

    @model_validator(mode="after")
    def _generators_need_a_size(self) -> "SourceConfig":
        if self.kind == "generated" and self.limit is None:
            raise ValueError("set `limit`: how many problems to generate")
        return self


class DataConfig(Section):
    """Training questions, validation questions and evaluation sets; no question may be in two of them."""

    pool: dict[str, SourceConfig]
    """The training questions, from one or more sources by name; a question that several have is kept once.
    Answers are used only to check the model's own solutions."""
    validation: float = Field(default=0.1, ge=0, lt=1)
    """Share of the pool kept for validation, by hash of the original question."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the pool kept for evaluation as the set `held-out`, by hash of the original question."""
    evaluation: dict[str, SourceConfig] = Field(default_factory=dict)
    """Further evaluation sets by name."""

    overlap: Literal["error", "drop"] = "error"
    """Pool questions that are also in an evaluation set: stop the run, or leave them out of the pool."""

    @field_validator("pool", "evaluation", mode="before")
    @classmethod
    def _names_are_keys(cls, sources: Any) -> Any:
        if not isinstance(sources, dict):
            return sources
        return {
            key: {"name": key, **value} if isinstance(value, dict) else value
            for key, value in sources.items()
        }

    @model_validator(mode="after")
    def _shares(self) -> "DataConfig":
        if not self.pool:
            raise ValueError("no training questions: name a set under data.pool")
        if self.held_out and HELD_OUT in self.evaluation:
            raise ValueError(
                f"data.evaluation.{HELD_OUT} would hide the set that data.held_out makes: rename it"
            )
        if self.validation + self.held_out >= 1:
            raise ValueError("validation + held_out must be below 1, or nothing is left to train on")
        if not self.evaluation and self.held_out == 0:
            raise ValueError("no evaluation questions: name a set under data.evaluation or set data.held_out")
        return self

    @property
    def evaluation_names(self) -> tuple[str, ...]:
        """Names of the evaluation sets, `held-out` first where the pool is cut."""
        return ((HELD_OUT,) if self.held_out else ()) + tuple(self.evaluation)
