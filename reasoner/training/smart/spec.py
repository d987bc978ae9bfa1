"""What SMART's GRPO program is told. Importing this loads no torch."""

from dataclasses import dataclass, field

from reasoner.config.smart import PromptConfig, SmartGrpoConfig, SmartVerifyConfig
from reasoner.training.grpo.spec import GrpoSpec

PROGRAM = "reasoner.training.smart.grpo"


@dataclass(frozen=True)
class SmartGrpoSpec(GrpoSpec):
    """One GRPO training of a policy that chooses its strategy and solves."""

    grpo: SmartGrpoConfig = field(default_factory=SmartGrpoConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    verify: SmartVerifyConfig = field(default_factory=SmartVerifyConfig)
