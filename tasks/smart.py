"""SMART's stages as cached tasks: open the references, call the work in `reasoner.stages`, say what came out."""

from pathlib import Path
from typing import Any

from reasoner.config.data import DataConfig
from reasoner.config.smart import (
    EngineConfig,
    Epoch1Config,
    Epoch2Config,
    EvaluationConfig,
    FewShotConfig,
    ModelConfig,
    PromptConfig,
    SamplingConfig,
    TrainConfig,
    VerifyConfig,
)
from reasoner.models import resolve
from reasoner.problems import sources_fingerprint
from reasoner.prompts import policy_hash, exemplars_hash
from reasoner.records import ArtifactRef, Strategy
from reasoner.stages import generation, problems as problem_stage, smart, training, verdicts
from reasoner.store import Draft, open_ref
from reasoner.verifiers import solutions
from reasoner.workbench import ModelFolder
from tasks.bench import bench
from tasks.context import current
from tasks.stage import stage
