"""The configuration of a multi-turn run. The keys of the original driver stand at the top under their own names.

Covers the four methods (`mlmt`, `rl_guided`, `score`, `archer`) for math and code. docs/multiturn.md maps every
original key, its default and ours.
"""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from reasoner.config.base import Section
from reasoner.config.contamination import ContaminationConfig
from reasoner.config.data import SourceConfig
from reasoner.config.problems import EnvType, ProblemsConfig
from reasoner.config.smart import ComputeConfig, EngineConfig, LoraConfig, ModelConfig, VerifyConfig

Method = Literal["mlmt", "rl_guided", "score", "archer"]


REPORTING = ("save_path", "use_wandb", "project_name", "run_name", "compute", "contamination")
"""Keys that change what is said of a run, not what it learns."""
TRAINING = (
    "iterations", "stage1_steps", "stage2_steps", "rollout_size", "group_size", "batch_size", "micro_tokens",
    "grad_accum_steps", "alpha", "beta1", "beta2", "kl", "baseline", "token_normalisation", "clip_low",
    "clip_high", "leak_penalty", "train_solver", "guidance_reward", "guidance_kl_coef", "guidance_baseline",
    "value_coef",    "value_loss_coef", "shaping", "update_ratio", "value_steps", "lm_lr", "guidance_lr", "value_lr",
    "critic_lr", "epochs", "actor_epochs", "warmup_iter", "capacity", "gamma", "tau", "advantage",
    "max_grad_norm", "warmup_steps", "precision", "gradient_checkpointing", "processes", "eval_freq",
    "save_freq", "checkpoint", "max_logprob_difference", "max_ratio_difference",
)  # fmt: skip
"""Keys that change what is learned, and nothing of how a given policy is evaluated."""


class CriticConfig(Section):
    """ArCHer's critic; `critic_lm` says what it stands on (METHODS 3.7)."""

    hidden: int = Field(default=256, ge=1)
    """Width of the heads' hidden layers."""
    max_length: int = Field(default=512, ge=8)
    """Tokens of a state or an action that the critic reads; the tail is kept, where the answer is."""


class MultiTurnEvaluation(Section):
    """Greedy evaluation of both turns on all problems of a split."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Unset: as in training."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    controls: tuple[Literal["empty", "shuffled", "frozen", "independent"], ...] = (
        "empty", "shuffled", "frozen", "independent",
    )  # fmt: skip
    """Second turns to compare with: no feedback; feedback to another problem; feedback of the untrained model; and
    two independent first attempts, sampled, at equal compute."""


class MultiTurnConfig(Section):
    """A whole multi-turn run."""

    method: Method = "mlmt"
    env_type: EnvType = "math"
    """Which environment judges: answers in LaTeX, or programs with tests."""
    agent_type: Literal["bi_level_score", "rl_guided_score", "score", "archer"] | None = None
    """The original's name of the method, kept with the run; `method` decides."""
    policy_lm: str = Field(min_length=1)
    """The base model: a folder, a Hub id, or `package:NAME/FILE.gguf`."""
    policy_revision: str | None = None
    """The Hub commit of `policy_lm`."""
    correction_model: str | None = None
    """Another model that writes the feedback, untrained; null is `policy_lm`."""
    problems: ProblemsConfig
    prompts: str = "math"
    """Prompt templates: a name under reasoner/prompts/multiturn/, or the path of a YAML file of the same shape."""
    show_tests: Literal["none", "first", "all"] = "first"
    """Code: which tests the solver sees; all of them judge, and those not shown are reported apart."""
    show_error: Literal["none", "shown", "all"] = "none"
    """Code: what the feedback writer is told of the attempt's tests. `shown`: whether it passes those that the task
    shows, and why not; anyone can run these. `all` (or true): why it failed, whatever test; that leaks hidden tests,
    at inference too."""

    seed: int = 0
    iterations: int = Field(default=280, ge=0)
    """Rollouts, each followed by one update of what is active. SCoRe's stages replace it where they are set."""
    stage1_steps: int = Field(default=138, ge=0)
    """SCoRe: iterations of stage I (move turn 2, keep turn 1 near the reference)."""
    stage2_steps: int = Field(default=142, ge=0)
    """SCoRe: iterations of stage II (both turns, shaped)."""
    rollout_size: int = Field(default=32, ge=1)
    """Episodes an iteration: problems times `group_size`."""
    group_size: int = Field(default=8, ge=1)
    """Independent episodes a problem, G."""
    batch_size: int = Field(default=2, ge=1)
    """Turns in a micro-batch, a device."""
    micro_tokens: int | None = Field(default=None, ge=1)
    """The most tokens in a micro-batch, padding counted (rows × longest row), a device: as many rows as fit, and one at
    least, whatever `batch_size` says; four times as many where there is no gradient. `batch_size × grad_accum_steps`
    stays the size of an optimiser step."""
    grad_accum_steps: int | None = Field(default=None, ge=1)
    """Micro-batches an optimiser step; null takes the whole rollout in one step (REINFORCE)."""
    max_tokens: int = Field(default=512, ge=1)
    """The most tokens of a solver's turn."""
    guidance_max_tokens: int = Field(default=256, ge=1)
    """The most tokens of a feedback."""
    temperature: float = Field(default=1.0, gt=0)
    """Of every sampled turn; log-probabilities of the trainer are scaled alike. top-p is 1 and top-k off."""

    alpha: float = Field(default=10.0, ge=0)
    """SCoRe: weight of r(y2) - r(y1) in turn 2's reward."""
    beta1: float = Field(default=0.01, ge=0)
    """KL coefficient of the solver: β_1."""
    beta2: float = Field(default=0.1, ge=0)
    """SCoRe, stage I: KL coefficient of turn 1, β_2."""
    kl: Literal["reward", "loss"] = "reward"
    """`reward`: the sequence KL (k1) is taken off each turn's reward; `loss`: k3 a token, with a gradient."""
    baseline: Literal["per_state", "single", "rloo"] = "per_state"
    """MLMT, solver: V(x) for z and V(x,z,g) for the refinement; V(x,z,g) for both (the README's literal form, which
    starves turn 1); or leave-one-out over the group, without a value network."""
    token_normalisation: Literal["max_tokens", "sum"] = "max_tokens"
    """A turn's token losses are divided by the constant `max_tokens`, or by 1; never by the turn's own length."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    leak_penalty: float = Field(default=0.0, ge=0)
    """Taken off the feedback's reward where the feedback contains the gold answer; the rate is always reported."""

    train_solver: bool = True
    """False freezes the solver (an ablation of mlmt and rl_guided: only the feedback writer learns)."""
    train_guidance_model: bool = False
    """Whether the feedback writer is trained; with `method: score` that is RL-guided SCoRe."""
    use_smart_corrections: bool = False
    """Feedback written by a model in place of the fixed correction."""
    guidance_reward: Literal["binary", "pm1"] = "binary"
    """The feedback's reward R' on {0, 1}, or on {-1, +1} as in the original."""
    guidance_kl_coef: float = Field(default=0.05, ge=0)
    """KL coefficient of the feedback writer, β_H."""
    guidance_baseline: Literal["rloo", "v2"] = "rloo"
    """The feedback's baseline: leave-one-out over the group, or V(x,z)."""
    value_coef: float = Field(default=0.1, ge=0)
    """λ: weight of the value in the feedback's objective. The sweep is 0.1, 0.01, 0.001."""
    value_loss_coef: float = Field(default=0.5, ge=0)
    """c_V: weight of the value loss in the feedback's step, where the value reaches the feedback model."""
    shaping: Literal["v3_minus_v2", "v3", "v3_minus_vstar"] = "v3_minus_v2"
    stop_value_gradients: bool = False
    """True: the value is a number in the feedback's reward (stop-grad). False: it also sends a gradient into the
    feedback model, whose last hidden state it reads (full-grad)."""
    full_grad_mode: Literal["total", "literal"] = "total"
    """`literal` is the original's expression -lp·(R + λV) with V not detached, whose gradient moves the value network
    only: an ablation."""
    update_ratio: str = Field(default="1:1", pattern=r"^[1-9]\d*:[1-9]\d*$")
    """Solver updates to feedback updates, t_L:t_H; 1:1 updates both in every iteration."""
    value_backbone: str = "shared"
    """`shared`: a head on the feedback model's last hidden state; else an encoder: a folder, a Hub id, or
    `package:NAME/FOLDER`."""
    value_steps: int = Field(default=4, ge=1)
    """Optimiser steps of the value network an iteration."""

    lm_lr: float = Field(default=5e-6, gt=0)
    """Learning rate of the solver's adapter. LoRA usually needs 1e-5 or more."""
    guidance_lr: float = Field(default=1e-6, gt=0)
    """Learning rate of the feedback writer's adapter."""
    value_lr: float = Field(default=1e-5, gt=0)
    """Learning rate of the value network. The shared head needs about 1e-3: one step moves V by about this times the
    root of the model's width."""
    critic_lr: float = Field(default=2e-5, gt=0)
    """ArCHer: learning rate of the critic."""
    critic_lm: str = "base"
    """ArCHer: `base` puts the critic on the frozen base model; else an encoder, as `value_backbone`."""
    critic: CriticConfig = CriticConfig()
    epochs: int = Field(default=5, ge=1)
    """ArCHer: critic steps an iteration."""
    actor_epochs: int = Field(default=4, ge=1)
    """ArCHer: actor steps an iteration."""
    warmup_iter: int = Field(default=1, ge=0)
    """ArCHer: iterations in which only the critic learns."""
    capacity: int = Field(default=100_000, ge=1)
    """ArCHer: episodes that the replay buffer keeps."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """ArCHer: discount of the next state's value."""
    tau: float = Field(default=0.1, gt=0, le=1)
    """ArCHer: step of the target networks (Polyak)."""
    advantage: Literal["q_minus_v", "r_minus_v"] = "q_minus_v"
    """ArCHer: min Q - min V, or the sampled reward minus min V."""

    max_grad_norm: float = Field(default=1.0, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    """Iterations over which learning rates rise linearly."""
    lora: LoraConfig = LoraConfig()
    use_lora: Literal[True] = True
    """The reference is the base without its adapters, so the policies are adapters."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """`bf16` computes in bfloat16 autocast over float32 adapter weights; `auto` is that on an accelerator."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    processes: int | None = Field(default=None, ge=1)
    """Training processes, one a device; unset is `compute.processes`. They learn what one learns, and a training goes
    on with another number of them."""
    max_logprob_difference: float | None = Field(default=None, gt=0)
    """The gate of a process's first two updates: the largest mean difference between the sampler's and the trainer's
    log-probabilities, in nats a token; unset goes by the coarser precision of the two. A later one stops at 0.5."""
    max_ratio_difference: float = Field(default=0.01, gt=0)
    """The same gate: how far the mean ratio may be from 1."""

    eval_freq: int = Field(default=20, ge=1)
    """Iterations between validations; there is one at the end, too."""
    save_freq: int = Field(default=20, ge=1)
    """Iterations between checkpoints."""
    checkpoint: Literal["best_validation", "last"] = "best_validation"
    """Which checkpoint is kept: that of the highest validation accuracy at turn 2 (the earliest of equals), or the
    last."""
    save_path: str | None = None
    """Where `reasoner train` leaves solver/, guidance/ and value/; null is checkpoints/ in the run's folder."""
    use_wandb: bool = False
    project_name: str = "reasoner"
    """The project in W&B."""
    run_name: str | None = None
    """The run's name in W&B."""

    engine: EngineConfig = EngineConfig()
    verify: VerifyConfig = VerifyConfig(timeout=10.0)
    evaluation: MultiTurnEvaluation = MultiTurnEvaluation()
    contamination: ContaminationConfig = ContaminationConfig()
    compute: ComputeConfig = ComputeConfig()

    @field_validator("show_error", mode="before")
    @classmethod
    def _error_of_flag(cls, value: Any) -> Any:
        """It was a switch once."""
        return {"false": "none", "true": "all"}.get(str(value).lower(), value)

    @model_validator(mode="before")
    @classmethod
    def _method_of_flags(cls, values: Any) -> Any:
        """`score` with a trained writer of corrections is RL-guided SCoRe, as in the original's README."""
        if not isinstance(values, dict) or values.get("method") != "score":
            return values
        if _true(values.get("train_guidance_model")):
            if not _true(values.get("use_smart_corrections")):
                raise ValueError(
                    "train_guidance_model=true trains the writer of corrections: set use_smart_corrections=true too"
                )
            return {**values, "method": "rl_guided"}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> "MultiTurnConfig":
        checks = (
            self._check_rollout, self._check_guidance, self._check_value, self._check_vstar, self._check_told,
        )  # fmt: skip
        for check in checks:
            if message := check():
                raise ValueError(message)
        return self

    def _check_rollout(self) -> str:
        if self.rollout_size % self.group_size:
            return f"rollout_size {self.rollout_size} must be a multiple of group_size {self.group_size}"
        needs_group = self.method in ("score", "rl_guided") or self.baseline == "rloo" or self.guided
        if self.method != "archer" and needs_group and self.group_size < 2:
            return "group_size must be 2 or more: the baseline of an episode is the mean of the others"
        return ""

    def _check_guidance(self) -> str:
        if self.method in ("mlmt", "rl_guided") and not self.use_smart_corrections:
            return f"method {self.method} has a feedback writer: set use_smart_corrections=true"
        if not self.train_solver and not self.guided:
            return "train_solver=false leaves nothing to train: set train_guidance_model=true with mlmt or rl_guided"
        if self.method == "archer" and self.train_guidance_model:
            return "archer has no feedback writer to train: set train_guidance_model=false"
        if self.correction_model is not None and self.train_guidance_model:
            return "correction_model is an untrained writer: set train_guidance_model=false, or leave it null"
        if self.correction_model is not None and not self.use_smart_corrections:
            return "correction_model writes smart corrections: set use_smart_corrections=true"
        return ""

    def _check_value(self) -> str:
        if self.method != "mlmt" or self.value_backbone == "shared":
            return ""
        if not self.stop_value_gradients and self.full_grad_mode != "literal":
            return (
                "full-grad needs value_backbone=shared: with an encoder of its own the value sends no gradient into "
                "the feedback model. Set stop_value_gradients=true, or full_grad_mode=literal for the ablation"
            )
        return ""

    def _check_vstar(self) -> str:
        if self.method == "mlmt" and self.shaping == "v3_minus_vstar" and self.ratio[0] < 2:
            return (
                f"shaping=v3_minus_vstar estimates V* after the solver's updates of a cycle; update_ratio "
                f"{self.update_ratio} has too few: use 2:1 or more, or shaping=v3_minus_v2"
            )
        return ""

    def _check_told(self) -> str:
        if self.show_error != "none" and self.env_type != "code":
            return (
                f"show_error={self.show_error} tells of a program's tests: env_type={self.env_type} has none"
            )
        if self.show_error != "none" and not self.use_smart_corrections:
            return (
                f"show_error={self.show_error} tells the feedback writer, and a fixed correction has none: set "
                "use_smart_corrections=true or show_error=none"
            )
        if self.show_error == "shown" and self.show_tests == "none":
            return "show_error=shown tells of tests that are shown, and there are none: set show_tests=first"
        return ""

    @property
    def ratio(self) -> tuple[int, int]:
        """(solver updates, feedback updates) of a cycle."""
        solver, feedback = self.update_ratio.split(":")
        return int(solver), int(feedback)

    @property
    def guided(self) -> bool:
        """Whether a feedback writer is trained."""
        return self.train_guidance_model and self.method in ("mlmt", "rl_guided")

    @property
    def steps(self) -> int:
        """Iterations in all: of the two stages together for SCoRe, else `iterations`."""
        if self.method in ("score", "rl_guided"):
            return self.stage1_steps + self.stage2_steps
        return self.iterations

    @property
    def uses_value(self) -> bool:
        """Whether MLMT's value network is needed."""
        if self.method != "mlmt":
            return False
        return self.baseline != "rloo" or (
            self.guided and (self.value_coef > 0 or self.guidance_baseline == "v2")
        )

    @property
    def value_reaches_feedback(self) -> bool:
        """Full-grad: whether the value's gradient enters the feedback model."""
        shared = self.value_backbone == "shared" and self.full_grad_mode == "total"
        return (
            self.guided
            and self.uses_value
            and not self.stop_value_gradients
            and shared
            and self.value_coef > 0
        )

    @property
    def mode(self) -> str:
        """`full-grad` or `stop-grad` for MLMT, empty for the others; what the console says."""
        if self.method != "mlmt":
            return ""
        if self.stop_value_gradients:
            return "stop-grad"
        return "full-grad" if self.full_grad_mode == "total" else "full-grad (literal)"

    @property
    def content_id(self) -> dict[str, Any]:
        """Where it is computed, and by how many processes, changes no result, so it counts in no stage's key."""
        return self.model_dump(exclude={"compute"}) | {"processes": 1}

    @property
    def trainers(self) -> int:
        """Training processes."""
        return self.processes or self.compute.processes

    @property
    def samplers(self) -> int:
        """Engines that a training starts to sample with; 0 where a server does."""
        return 0 if self.compute.server.url else self.compute.engines

    def learned(self) -> "MultiTurnConfig":
        """The same training without what only reports on it: two runs that learn alike have one key."""
        length = {"max_tokens": self.evaluation.max_tokens}
        here = self.compute  # the training must know where it runs
        compute = ComputeConfig(
            one_card=here.one_card, processes=here.processes, engines=here.engines, server=here.server
        )  # fmt: skip
        kept = {"evaluation": MultiTurnEvaluation.model_validate(length), "compute": compute}
        return self._with_defaults(*REPORTING, **kept)

    def measured(self) -> "MultiTurnConfig":
        """The same evaluation without what only trains: a changed learning rate re-uses the baseline."""
        return self._with_defaults(*REPORTING, *TRAINING, evaluation=self.evaluation)

    def _with_defaults(self, *names: str, **kept: Any) -> "MultiTurnConfig":
        """Problems and models reach a stage as artifacts, so neither their paths nor their names are in its key."""
        plain = {name: MultiTurnConfig.model_fields[name].get_default() for name in names}
        plain |= {
            "policy_lm": "base", "policy_revision": None, "agent_type": None,
            "correction_model": "correction" if self.correction_model else None,
            "problems": ProblemsConfig(train=SourceConfig(name="problems", kind="file", path="problems.jsonl")),
        }  # fmt: skip
        return self.model_copy(update={**plain, **kept})

    @property
    def model(self) -> ModelConfig:
        """The base model as the shared sections know it."""
        return ModelConfig(path=self.policy_lm, revision=self.policy_revision)


def _true(value: Any) -> bool:
    return value is True or str(value).lower() == "true"
