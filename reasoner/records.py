"""The nouns of the system: frozen, slotted dataclasses whose ids are content hashes.

On disk a record is one JSON object (`to_row`, `from_row`) with a `schema` number in the file that holds it.
An `unscored` verdict is never a reward of 0: it is masked and counted.
"""

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from reasoner.extensions import added_strategies
from reasoner.ids import content_hash

SCHEMA = 1
ADDED = added_strategies()
"""Strategies of the user's own, see `reasoner.extensions`."""


class Record:
    """Turns a dataclass into a row of plain data and back."""

    __slots__ = ()

    def to_row(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        known = cls.__dataclass_fields__  # type: ignore[attr-defined]
        return cls(**{name: value for name, value in row.items() if name in known})


class Strategy(StrEnum):
    """How a solution is written. The value is the word used in files, options and columns."""

    _ignore_ = ["_members", "_added"]  # noqa: RUF012  (enum takes it away)

    COT = "cot"
    """Chain of Thought: prose steps."""
    SUB = "sub"
    """Sub-questioning (least to most): numbered sub-questions with their answers."""
    POT = "pot"
    """Program of Thought: one Python program that assigns `answer`."""
    _members = vars()
    for _added in ADDED:
        _members[_added.value.upper()] = _added.value

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name a model writes before the colon."""
        return STRATEGY_TITLES[self]


STRATEGY_TITLES = {
    Strategy.COT: "Chain of Thought",
    Strategy.SUB: "Sub-questioning",
    Strategy.POT: "Program of Thought",
    **{Strategy(added.value): added.title for added in ADDED},
}


class Outcome(StrEnum):
    """What a verifier says of an answer."""

    CORRECT = "correct"
    """The answer equals the gold."""
    INCORRECT = "incorrect"
    """The model's answer is wrong, missing or unusable, and that is the model's doing."""
    UNSCORED = "unscored"
    """Nothing is known: the gold is unreadable or the verifier failed. Never a reward of 0."""


@dataclass(frozen=True, slots=True)
class Problem(Record):
    """One question with its gold answer.

    `id` is the hash of data set, question and gold; `group` the hash of the original question, which keeps
    rephrasings of one question in one split.
    """

    id: str
    question: str
    gold: str
    dataset: str
    group: str
    solution: str = ""
    """A worked solution that came with the data, or an empty string."""
    tags: dict[str, str] = field(default_factory=dict)
    """Further columns worth keeping, such as a grade or a type."""

    @classmethod
    def make(
        cls,
        question: str,
        gold: str,
        dataset: str,
        *,
        original: str | None = None,
        solution: str = "",
        tags: dict[str, str] | None = None,
    ) -> "Problem":
        """A problem with its ids filled in; `original` is the question that this one rephrases, if any."""
        return cls(
            id=content_hash([dataset, question, gold], 16),
            question=question,
            gold=gold,
            dataset=dataset,
            group=content_hash(normalised_text(original or question), 16),
            solution=solution,
            tags=dict(tags or {}),
        )


def normalised_text(text: str) -> str:
    """Text for comparing questions: case folded, only letters and digits, single spaces."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())


@dataclass(frozen=True, slots=True)
class Sampling(Record):
    """Decoding settings. `temperature` 0 is greedy; `max_tokens` counts generated tokens only."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 switches top-k off."""
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    """The text must be one of these, by constrained decoding; empty leaves it free."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "choices", tuple(self.choices))
        object.__setattr__(self, "temperature", float(self.temperature))  # 0 and 0.0 are one key
        object.__setattr__(self, "top_p", float(self.top_p))

    def to_row(self) -> dict[str, Any]:
        """Without `choices` where there are none: requests from before the field keep their keys."""
        row = dataclasses.asdict(self)
        if not self.choices:
            del row["choices"]
        return row


@dataclass(frozen=True, slots=True)
class GenerationRequest(Record):
    """One sample that is wanted: sample `index` of `prompt` under `sampling`.

    `prompt` is the rendered text that the model sees. `add_special_tokens` is false when a chat template has
    already put them there. `adapter` names a loaded adapter, or is empty for the bare base.
    """

    problem_id: str
    prompt: str
    sampling: Sampling
    seed: int = 0
    index: int = 0
    adapter: str = ""
    add_special_tokens: bool = True

    def to_row(self) -> dict[str, Any]:
        """The same row without copying each value: there is one request a sample."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "sampling": dataclasses.asdict(self.sampling)
        }

    def key(self, model_fingerprint: str) -> str:
        """The ledger's key: problem, prompt, model (base and adapter), sampling, seed and sample index."""
        return content_hash(
            [
                self.problem_id,
                self.prompt,
                model_fingerprint,
                self.sampling.to_row(),
                self.seed,
                self.index,
                self.add_special_tokens,
            ],
            32,
        )


@dataclass(frozen=True, slots=True)
class Completion(Record):
    """What an engine generated for one request.

    `finish` is `stop` (end token or stop string), `length` (cut at max_tokens) or `error`. Token counts are the
    model's own tokens. `token_ids` and `logprobs` ([T], natural log, of the sampled token) are kept only where
    they were asked for.
    """

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()

    def to_row(self) -> dict[str, Any]:
        """The same row without copying each token: there may be thousands."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """A verifier's word on one answer. `reason` says why in one word, `extracted` what was compared."""

    outcome: Outcome
    reason: str
    extracted: str | None = None
    seconds: float = 0.0
    """Wall-clock time that the verdict took; not part of any content hash."""

    @property
    def correct(self) -> bool:
        return self.outcome == Outcome.CORRECT

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Verdict":
        return cls(Outcome(row["outcome"]), row["reason"], row.get("extracted"), row.get("seconds", 0.0))


@dataclass(frozen=True, slots=True)
class TrainingExample(Record):
    """One supervised example: the loss is taken on `completion` and its end token only.

    `kind` is `direct` or `refine`; `tried` holds the strategies that the prompt names as failed.
    """

    problem_id: str
    prompt: str
    completion: str
    strategy: str = ""
    kind: str = "direct"
    tried: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tried", tuple(self.tried))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ArtifactRef(Record):
    """A reference to a stored artifact: what kind it is, the digest of its content, and where it lies.

    Only references travel between stages. Two references are the same content when their digests are equal. They can be
    weakly referenced, by which Prefect tells a reference from another one at the same address.
    """

    kind: str
    digest: str
    uri: str

    @property
    def content_id(self) -> list[str]:
        """Counts by digest, never by path."""
        return [self.kind, self.digest]
