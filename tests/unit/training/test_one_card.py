"""A process that trains alone uses one card, however many it sees: no `nn.DataParallel`.

Wrong if a Trainer would put a micro-batch on each card. Cards are counted by torch; here it is told that there are two.
"""

from pathlib import Path

import pytest
from transformers.training_args import ParallelMode

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig
from reasoner.config.smart import EngineConfig
from reasoner.config.training import TrainConfig
from reasoner.training.grpo.trainer import grpo_config
from reasoner.training.micro_batch import Batch
from reasoner.training.planner.spec import PlannerGrpoSpec
from reasoner.training.specs import SftSpec
from reasoner.training.trainer import trainer_config


def test_with_two_cards_in_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    folders = {"base": tmp_path, "base_name": "base", "output": tmp_path / "out", "work": tmp_path / "work"}
    sft = SftSpec(
        **folders, train_rows=tmp_path / "rows", end_token="</s>", train=TrainConfig(precision="fp32")
    )
    grpo = PlannerGrpoSpec(
        **folders, rows=tmp_path / "rows", start=None, prompts="demo", device="cuda", engine=EngineConfig(),
        worker=WorkerConfig(), reward=RewardConfig(), grpo=PlannerGrpoConfig(precision="fp32"),
    )  # fmt: skip
    for config in (
        trainer_config(sft, Batch(4, 2), "cuda", evaluate=False, packed=False, tracked=False),
        grpo_config(grpo, Batch(8, 8), "cuda"),
    ):
        assert config.parallel_mode is ParallelMode.NOT_PARALLEL
        assert config.train_batch_size == config.per_device_train_batch_size
