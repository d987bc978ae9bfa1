"""What the planner's GRPO program is told. Importing this loads no torch."""

from dataclasses import dataclass, field

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig
from reasoner.training.grpo.spec import GrpoSpec


@dataclass(frozen=True)
class PlannerGrpoSpec(GrpoSpec):
    """One GRPO training of a planner adapter; the results also hold training_config.json."""

    grpo: PlannerGrpoConfig = field(default_factory=PlannerGrpoConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    prompts: str = "planner"
    """Name or path of the prompts."""
    revision: str = ""
    """Code revision for training_config.json; empty where a manifest records it."""
