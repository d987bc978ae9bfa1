"""The configuration of a planner run (METHODS 4). Defaults are ours; `reasoner train-planner` has the original's."""

from typing import Any, Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section
from reasoner.config.contamination import ContaminationConfig
from reasoner.config.data import DataConfig
from reasoner.config.grpo import GrpoConfig
from reasoner.config.smart import (
    ComputeConfig,
    Dtype,
    EngineConfig,
    LoraConfig,
    ModelConfig,
    SamplingConfig,
    TrainConfig,
)
from reasoner.extensions import source_hash
from reasoner.methods.planner.plan import MAX_SUBPROBLEMS, MIN_SUBPROBLEMS


class PlannerPromptConfig(Section):
    """The planner's and the worker's prompts (METHODS 4.3)."""

    template: str = "planner"
    """A name under reasoner/prompts/planner/, or the path of a YAML file of the same shape."""


class WorkerConfig(Section):
    """The frozen worker: the bare base."""

    decoding: SamplingConfig = SamplingConfig()
    """Greedy by default: sampled workers make the reward noisy."""
    samples: int = Field(default=1, ge=1)
    """How often each plan is carried out; a plan's correctness is the mean. More than one needs a temperature."""
    seed: int = 0

    @model_validator(mode="after")
    def _samples_differ(self) -> "WorkerConfig":
        if self.samples > 1 and self.decoding.temperature == 0:
            raise ValueError("worker.samples above 1 needs worker.decoding.temperature above 0")
        return self


class RewardConfig(Section):
    """What a plan is worth (METHODS 4.4)."""

    mode: Literal["gated", "original"] = "gated"
    """`gated`: side terms count only where the answer is right, and an invalid plan is worth 0. `original`: the
    documented sum, which also pays wrong plans for being short and diverse; an invalid plan is worth 0.1."""
    correctness_weight: float = Field(default=1.0, ge=0)
    token_weight: float = Field(default=0.2, ge=0)
    independence_weight: float = Field(default=0.3, ge=0)
    token_budget: int = Field(default=1000, ge=1)
    """Tokens at which efficiency is 0."""
    count_planner_tokens: bool = True
    """Whether the planner's own tokens count in the efficiency. `original` never counts them."""
    format_bonus: float = Field(default=0.0, ge=0, le=0.1)
    """`gated` only: what any valid plan gets. More than 0.1 invites plans that are merely well formed."""
    neutral_independence: float = Field(default=0.5, ge=0, le=1)
    """Independence of an atomic plan."""
    embedder: str = ""
    """Sentence embedder: a folder or a Hub id; empty is all-MiniLM-L6-v2."""
    filter_zero_variance: Literal["correctness", "none"] = "correctness"
    """`correctness` takes groups out of the update whose plans are all equally right, whatever their side terms."""
    mask_all_correct_side_terms: bool = False
    """Without that filter: take all-right groups out, which only teach to be short (where decomposition dies out)."""
    max_unscored: float = Field(default=0.05, ge=0, le=1)
    """The run stops when a larger share of a step's plans is unscored."""
    function: str = ""
    """A reward of your own in place of `mode`'s formula, as `module:name` (docs/extending.md)."""

    @property
    def content_id(self) -> dict[str, Any]:
        """With a function of the user's own, its code counts too; without one the key is as it always was."""
        plain = self.model_dump(exclude=None if self.function else {"function"})
        return {**plain, "source": source_hash(self.function, "reward.function")} if self.function else plain


PARSE_RATE = 0.95
"""Share of valid plans that a warm start is to reach (METHODS 4.6)."""


class SftPlannerConfig(Section):
    """Warm start: targets by rejection sampling from the base, then supervised fine-tuning (METHODS 4.6)."""

    enabled: bool = True
    samples: int = Field(default=8, ge=1)
    """Plans drawn from the base for every training question."""
    decoding: SamplingConfig = SamplingConfig(temperature=1.0, max_tokens=256)
    keep: int = Field(default=1, ge=1)
    """Targets kept a question, the shortest first."""
    max_records: int | None = Field(default=None, ge=1)
    """Keep at most this many targets, chosen by hash."""
    max_subproblems: int = Field(default=3, ge=MIN_SUBPROBLEMS, le=MAX_SUBPROBLEMS)
    """Of a target. The prompt asks for 2 or 3; a plan may have 4."""
    balance_decisions: bool = False
    """Cap atomic targets at the count of decomposed ones, and the other way round."""
    min_parse_rate: float = Field(default=PARSE_RATE, ge=0, le=1)
    """The run stops before GRPO where fewer of the planner's greedy outputs are valid plans. The report
    says whether the warm start reached 95 %, whatever this is."""
    train: TrainConfig = TrainConfig(lr=1e-4, epochs=2.0, lora=LoraConfig(dropout=0.05))


class PlannerGrpoConfig(GrpoConfig):
    """GRPO of the planner."""

    enabled: bool = True
    warm_start: bool = True
    """Begin with the supervised adapter, where `sft.enabled` made one."""


class WandbConfig(Section):
    """Weights & Biases. The same numbers always go to metrics.jsonl."""

    enabled: bool = False
    project: str = "recursive-reasoner-grpo"

    @property
    def content_id(self) -> list[str]:
        """Where numbers are shown changes no result, so it counts in no stage's key."""
        return ["wandb"]


class PlannerEvaluationConfig(Section):
    """The five arms of METHODS 4.7, greedy."""

    decoding: SamplingConfig = SamplingConfig()
    """The planner's; the worker's are `worker.decoding`."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    bootstrap: int = Field(default=10_000, ge=100)
    """Resamples for the intervals of paired differences."""


class PublishConfig(Section):
    """The last stage: push the merged model to the Hub. Off by default."""

    enabled: bool = False
    repo: str = ""
    """`owner/name`."""
    private: bool = True

    @model_validator(mode="after")
    def _repo_is_named(self) -> "PublishConfig":
        if self.enabled and self.repo.count("/") != 1:
            raise ValueError("publish.repo must be set as owner/name where publish.enabled is true")
        return self


class PlannerConfig(Section):
    """A whole planner run."""

    method: Literal["planner"] = "planner"
    seed: int = 0
    model: ModelConfig
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    prompt: PlannerPromptConfig = PlannerPromptConfig()
    worker: WorkerConfig = WorkerConfig()
    reward: RewardConfig = RewardConfig()
    sft: SftPlannerConfig = SftPlannerConfig()
    grpo: PlannerGrpoConfig = PlannerGrpoConfig()
    merge_dtype: Dtype = "bfloat16"
    """Precision of the merged model's weights on disk."""
    evaluation: PlannerEvaluationConfig = PlannerEvaluationConfig()
    contamination: ContaminationConfig = ContaminationConfig()
    wandb: WandbConfig = WandbConfig()
    compute: ComputeConfig = ComputeConfig()
    publish: PublishConfig = PublishConfig()

    @property
    def grpo_here(self) -> PlannerGrpoConfig:
        """The GRPO settings with what follows from `compute`."""
        return self.grpo.on(self.compute)

    @model_validator(mode="after")
    def _something_is_trained(self) -> "PlannerConfig":
        if not (self.sft.enabled or self.grpo.enabled):
            raise ValueError("nothing is trained: set sft.enabled or grpo.enabled")
        sft, grpo = self.sft.train.lora, self.grpo.lora
        same = (sft.r, sft.alpha, sft.modules) == (grpo.r, grpo.alpha, grpo.modules)
        if self.sft.enabled and self.grpo.enabled and self.grpo.warm_start and not same:
            raise ValueError("a warm start needs one adapter shape: sft.train.lora and grpo.lora differ")
        return self
