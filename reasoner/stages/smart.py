"""SMART's own stages: analysis, records of epoch 1 and of later epochs, evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.config.smart import Epoch1Config, Epoch2Config, EvaluationConfig
from reasoner.errors import CollapseError
from reasoner.methods.smart import analysis, epoch1, epoch2, evaluation
from reasoner.methods.smart.records import SolutionRecord
from reasoner.stages import problems as problem_stage
from reasoner.stages import verdicts
from reasoner.store.rows import read_rows, write_rows
