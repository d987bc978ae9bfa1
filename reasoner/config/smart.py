"""The configuration of a SMART run. Defaults are the method's; the files under configs/ choose model and size."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section
from reasoner.config.contamination import ContaminationConfig
from reasoner.config.data import DataConfig
from reasoner.config.grpo import GrpoConfig
from reasoner.config.tracking import TrackingConfig
from reasoner.config.training import ComputeConfig, TrainConfig
from reasoner.config.training import Dtype as Dtype
from reasoner.config.training import LoraConfig as LoraConfig
from reasoner.records import Sampling, Strategy

Choice = Literal["policy", "untried", "each", "random"]
"""Who picks the strategy that a response names. `policy`: the model, freely. `untried`: the model, by constrained
decoding among the names that were not tried (at turn 1 among all, so that none is invalid). `each`: the samples of a
question go through those names in turn. `random`: drawn by seed among them; the model only solves."""
Turns = Literal["none", "last", "every"]
"""After which epochs something is measured."""


class ModelConfig(Section):
    """The base model."""

    path: str = Field(min_length=1)
    """A local folder, a Hub id, or `package:NAME/FILE.gguf` for a GGUF file that a Python package ships."""
    revision: str | None = None
    """The Hub commit; unset means the newest, whose commit is recorded."""


class EngineConfig(Section):
    """What generates."""

    kind: Literal["vllm", "transformers", "scripted"] = "vllm"
    """`scripted` answers with a Python function, for tests."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Precision to serve in; `auto` is bfloat16, or float32 on a processor without bfloat16 instructions."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the engine: `max_model_len`, `gpu_memory_utilization`, `block_size`, `max_num_seqs`, …"""


class SamplingConfig(Section):
    """Decoding."""

    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=512, ge=1)
    """The most tokens to generate."""
    stop: tuple[str, ...] = ()
    """Strings that end a generation, besides the end token."""

    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, 0, self.max_tokens, self.stop)


class FewShotConfig(Section):
    """Step 0: the base model solves every question with each strategy, shown worked examples."""

    exemplars: str = "gsm"
    """Which exemplars: a name under reasoner/prompts/exemplars/, or the path of a YAML file of the same shape."""
    shots: int = Field(default=8, ge=0)
    """How many exemplars are shown, the first ones of the file."""
    layout: Literal["plain", "chat"] = "plain"
    """`plain`: the examples and the question as one text, for base models. `chat`: as turns of the model's chat
    template, for instruct models, whose answers then end by themselves."""
    strategies: tuple[Strategy, ...] = (Strategy.COT, Strategy.SUB, Strategy.POT)
    """Which strategies are tried; `[cot, pot]` leaves one out."""
    decoding: SamplingConfig = SamplingConfig(stop=("\nProblem:", "\nQuestion:", "\nInput:"))
    shards: int = Field(default=1, ge=1)
    """Number of parts that the pool is cut into, by hash of the problem's id."""


class PromptConfig(Section):
    """The policy's prompt (METHODS 2.2)."""

    template: str = "smart"
    """A name under reasoner/prompts/templates/."""
    refine_context: Literal["name", "full"] = "name"
    """What a second attempt is told of the first: the strategy's name, or the name and the failed solution."""


class AskConfig(Section):
    """How a policy is asked. Not written in files: `SmartConfig.sampling` and `SmartConfig.answering` make it."""

    decoding: SamplingConfig
    samples: int = Field(ge=1)
    """Responses a prompt."""
    choice: Choice
    """Who picks the strategy."""
    strategies: tuple[Strategy, ...]
    """Those that may be picked."""
    prompt: PromptConfig
    engine: EngineConfig


class Epoch1Config(Section):
    """Which few-shot solutions become training records (METHODS 2.5)."""

    direct: Literal["all_correct", "one_random", "priority"] = "all_correct"
    """Which correct strategies of a question become `(tried none) -> strategy` records."""
    priority: tuple[Strategy, ...] = (Strategy.COT, Strategy.SUB, Strategy.POT)
    """The order for `direct: priority`: only the first correct strategy is kept."""
    refine: bool = True
    """Emit `(tried wrong) -> correct` records."""
    refine_pairs: Literal["all", "one_random"] = "all"
    """All wrong-correct pairs of a question, or one drawn at random."""
    drop_easy: bool = False
    """Leave out questions that every strategy solves: only those where the strategies disagree teach."""
    direct_subsample: float = Field(default=1.0, gt=0, le=1)
    """Keep this share of the direct records."""
    balance_strategies: bool = False
    """Cap each strategy at the count of the rarest."""
    rarity: float = Field(default=0.0, ge=0, le=1)
    """Repeat the records of rarer strategies: 0 does not, 1 until each strategy has as many as the most frequent."""
    max_records: int | None = Field(default=None, ge=1)
    """Keep at most this many records, drawn at random."""


class Epoch2Config(Section):
    """How a policy's own samples become records (METHODS 2.7); used by every epoch after the first."""

    init: Literal["epoch1", "base"] = "epoch1"
    """What is fine-tuned: the merged model of the epoch before, or the base."""
    samples: int = Field(default=10, ge=1)
    """Samples a question and turn."""
    decoding: SamplingConfig = SamplingConfig(temperature=0.7)
    biasing: Literal["none", "add", "replace"] = "add"
    """Implicit biasing: also (`add`) or instead (`replace`) put a strategy that succeeded at turn 2 first."""
    accept: Literal["majority", "any"] = "majority"
    """Whose correct samples become records: a strategy's with more correct samples than wrong ones, or (`any`) with at
    least one, as rejection sampling takes them, so that hard questions teach too. Second turns are asked for alike."""
    keep_per_strategy: int = Field(default=1, ge=1)
    """How many distinct correct samples of an accepted strategy become records."""
    turn1: Choice = "policy"
    """Who picks the strategy of a first attempt; `each` samples every strategy, whatever the policy has become."""
    turn2: Choice = "policy"
    """Who picks the strategy of a second attempt; `untried` refuses to repeat the one that failed."""
    disagreement_only: bool = False
    """Records only from questions on which the base's few-shot strategies disagree."""
    balance_strategies: bool = False
    """Cap each strategy at the count of the rarest."""
    rarity: float = Field(default=0.0, ge=0, le=1)
    """As `epoch1.rarity`."""
    max_records: int | None = Field(default=None, ge=1)
    """Keep at most this many records, drawn at random."""
    max_turn2: int | None = Field(default=None, ge=1)
    """Ask for at most this many second turns, drawn at random."""


class EvaluationConfig(Section):
    """What is measured of a policy, greedy: first attempts always, the rest after the epochs that are named."""

    decoding: SamplingConfig = SamplingConfig()
    turn1: Choice = "policy"
    """Who picks the strategy of a first attempt."""
    turn2: Choice = "policy"
    """Who picks the strategy of a second attempt."""
    second_turn: Turns = "every"
    """A second attempt at every question, told what was tried: acc@t2, and acc@t2_oracle beside it."""
    each_strategy: Turns = "last"
    """Every question with each strategy forced: the vote, the policy's own oracle and a random choice."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    max_invalid_prefix: float = Field(default=0.05, ge=0, le=1)
    """A trained policy that names no strategy in more than this share of its responses stops the run."""


class VerifyConfig(Section):
    """Verdicts."""

    workers: int | None = Field(default=None, ge=1)
    """Sandboxes at once; unset means one a core."""
    timeout: float = Field(default=5.0, gt=0)
    """Wall-clock seconds a program may take."""
    max_unscored: float = Field(default=0.05, ge=0, le=1)
    """The run stops when a larger share of verdicts is unscored."""


class SmartVerifyConfig(VerifyConfig):
    """Verdicts on responses that name a strategy."""

    by_form: bool = False
    """Judge a policy's response by what it holds, a program or prose, and not by the strategy that it names: for
    `control=shuffled_labels`, whose names say nothing of the solution behind them."""


class SmartGrpoConfig(GrpoConfig):
    """GRPO on top of the last epoch, with first attempts' verdicts as reward (METHODS 1.3). Off by default."""

    enabled: bool = False
    """Whether it is done."""
    lr: float = Field(default=2e-5, gt=0)
    max_steps: int = Field(default=200, ge=1)
    """Optimiser steps."""
    max_samples: int | None = Field(default=None, ge=1)
    """Training questions, chosen by hash and seed; unset takes all."""
    save_steps: int = Field(default=25, ge=1)
    """Optimiser steps between checkpoints."""


class ControlConfig(Section):
    """What the records are made of instead of SMART's, to see what SMART's choice adds (METHODS 2.8, 5)."""

    kind: Literal["none", "rft", "star", "random_strategy", "shuffled_labels", "given_solutions"] = "none"
    """`rft`, `star`: correct solutions of one strategy only. `random_strategy`: SMART's records, and whoever
    configures it sets `turn1` and `turn2` to `random`. `shuffled_labels`: SMART's records with the names exchanged.
    `given_solutions`: the solutions that came with the questions."""
    strategy: Literal["best", "cot", "sub", "pot"] = "best"
    """The one strategy; `best` is the most accurate few-shot strategy on the pool."""
    samples: int = Field(default=0, ge=0)
    """Few-shot samples a question for the first epoch; 0 takes the greedy few-shot solutions that are there."""
    temperature: float = Field(default=0.7, ge=0)
    """Of those samples."""
    keep: int = Field(default=4, ge=1)
    """At most this many distinct correct solutions of a question become records."""
    max_records: int | None = Field(default=None, ge=1)
    """Keep at most this many records, drawn at random."""

    @property
    def prefix(self) -> str:
        """What a report writes before an epoch, such as `rft `."""
        return "" if self.kind == "none" else f"{self.kind.replace('_', ' ')} "


class SmartConfig(Section):
    """A whole SMART run."""

    method: Literal["smart"] = "smart"
    epochs: Annotated[int, Field(ge=1)] | Literal["until-converged"] = 2
    """1 stops after the few-shot epoch; 2 adds one self-sampling epoch; more repeat it. `until-converged` stops when
    first-attempt accuracy no longer rises by `min_delta`, at the latest after `max_epochs`."""
    max_epochs: int = Field(default=5, ge=1)
    """Where `until-converged` ends in any case."""
    min_delta: float = Field(default=0.003, ge=0, lt=1)
    """How much accuracy, as a share, an epoch must add for another one to follow."""
    converged_on: Literal["validation", "pool"] = "validation"
    """The questions that decide on it; never an evaluation set."""
    control: ControlConfig = ControlConfig()
    variants: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Further trainings beside the main one, each a name and its overrides (`{rft: [control=rft]}`): they share every
    stage that does not differ, and stand in the same tables."""
    seed: int = 0
    model: ModelConfig
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    prompt: PromptConfig = PromptConfig()
    few_shot: FewShotConfig = FewShotConfig()
    epoch1: Epoch1Config = Epoch1Config()
    epoch2: Epoch2Config = Epoch2Config()
    train: TrainConfig = TrainConfig()
    train_later: dict[str, Any] = Field(default_factory=dict)
    """Training settings that differ in later epochs, by the names of `train` (for example `lr`)."""
    grpo: SmartGrpoConfig = SmartGrpoConfig()
    verify: SmartVerifyConfig = SmartVerifyConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    contamination: ContaminationConfig = ContaminationConfig()
    compute: ComputeConfig = ComputeConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _later_training_is_valid(self) -> "SmartConfig":
        self.train_for(2)
        return self

    @model_validator(mode="after")
    def _convergence_has_questions(self) -> "SmartConfig":
        if (
            self.epochs == "until-converged"
            and self.converged_on == "validation"
            and not self.data.validation
        ):
            raise ValueError(
                "epochs=until-converged goes by validation questions, and data.validation=0 leaves none; set it above "
                "0, or converged_on=pool"
            )
        return self

    @model_validator(mode="after")
    def _given_solutions_are_learnt_once(self) -> "SmartConfig":
        if self.control.kind == "given_solutions" and self.epochs != 1:
            raise ValueError("control=given_solutions has nothing for a second epoch; set epochs=1")
        return self

    @model_validator(mode="after")
    def _grpo_trains_what_is_evaluated(self) -> "SmartConfig":
        if self.grpo.enabled and self.evaluation.turn1 in ("each", "random"):
            raise ValueError(
                f"grpo.enabled trains a policy that chooses its strategy; evaluation.turn1={self.evaluation.turn1} "
                "chooses for it"
            )
        return self

    @property
    def grpo_here(self) -> SmartGrpoConfig:
        """The GRPO settings with what follows from `compute`."""
        return self.grpo.on(self.compute)

    @property
    def verify_shown(self) -> SmartVerifyConfig:
        """Verdicts on few-shot solutions: their strategy is known, so that every control shares them."""
        return self.verify.model_copy(update={"by_form": False})

    def sampling(self, turn: Literal[1, 2]) -> AskConfig:
        """How the policy is sampled for training data."""
        later = self.epoch2
        return self._asking(later.decoding, later.samples, later.turn1 if turn == 1 else later.turn2)

    def answering(self, turn: Literal[1, 2]) -> AskConfig:
        """How the policy is evaluated: one response."""
        how = self.evaluation
        return self._asking(how.decoding, 1, how.turn1 if turn == 1 else how.turn2)

    def answering_each(self) -> AskConfig:
        """How the policy is evaluated with every strategy forced in turn."""
        return self._asking(self.evaluation.decoding, len(self.few_shot.strategies), "each")

    def _asking(self, decoding: SamplingConfig, samples: int, choice: Choice) -> AskConfig:
        return AskConfig(
            decoding=decoding, samples=samples, choice=choice, strategies=self.few_shot.strategies,
            prompt=self.prompt, engine=self.engine,
        )  # fmt: skip

    def train_for(self, epoch: int) -> TrainConfig:
        """The training settings of an epoch, counted from 1, cut to the machine's memory."""
        later = self.train_later if epoch > 1 else {}
        return self.compute.cut(TrainConfig.model_validate({**self.train.model_dump(), **later}))
