"""Every example command of the original's README, with a tiny model and problems of ours in dataset/."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.problems import FIXTURES
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "engine=transformers", "~engine.options.gpu_memory_utilization", "engine.options.max_model_len=2048",
    "problems.test_size=4", "problems.validation_size=4", "rollout_size=4", "group_size=2", "max_tokens=6",
    "guidance_max_tokens=6", "iterations=1", "stage1_steps=1", "stage2_steps=1", "verify.workers=1", "value_steps=1",
]  # fmt: skip
ARCHER = ["critic_lm=base", "epochs=1", "actor_epochs=1", "warmup_iter=0", "grad_accum_steps=2"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that reads 2,048 tokens (its tokenizer makes nearly one of each letter)."""
    folder = make_model(tmp_path_factory.mktemp("tiny") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2048}))
    return folder


@pytest.fixture
def room(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES, tmp_path / "dataset")
    return tmp_path


def train(room: Path, tiny: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli", "train", *words, f"policy_lm={tiny}", *SMALL]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REASONER_HOME": str(room / "home"), **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=room, env=env, timeout=800)


@pytest.mark.parametrize(
    ("words", "mode", "parts"),
    [
        (["hydra.run.dir=outputs/mlmt_math", "save_path=outputs/mlmt_math/checkpoints"],
         "# method: mlmt on math, mode: full-grad", {"solver", "guidance", "value"}),
        (["stop_value_gradients=true"], "# method: mlmt on math, mode: stop-grad", {"solver", "guidance", "value"}),
        (["--config-name", "score_math", "--env-type", "math"], "# method: score on math", {"solver"}),
        (["--config-name", "score_math", "--env-type", "math", "train_guidance_model=true",
          "use_smart_corrections=true"],
         "# method: rl_guided on math", {"solver", "guidance"}),
        (["--config-name", "archer_math", "--env-type", "math", *ARCHER],
         "# method: archer on math", {"solver", "value"}),
        (["--config-name", "code_configs/bi_level_score_code.yaml", "--env-type", "code"],
         "# method: mlmt on code, mode: full-grad", {"solver", "guidance", "value"}),
        (["--config-name", "archer_code", "--env-type", "code", *ARCHER],
         "# method: archer on code", {"solver", "value"}),
    ],
)  # fmt: skip
def test_the_readmes_commands(room: Path, tiny: Path, words: list[str], mode: str, parts: set[str]) -> None:
    done = train(room, tiny, *words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert mode in done.stdout.splitlines() and "value_coef: 0.1" in done.stdout
    saved = next((room / "outputs").glob("*/checkpoints"))
    assert parts <= {p.name for p in saved.iterdir()} and not {"solver", "guidance", "value"} - parts & {
        p.name for p in saved.iterdir()
    }
    assert (saved / "solver" / "adapter_model.safetensors").is_file()
    training = json.loads((saved / "training.json").read_text())
    assert training["mode"] == (mode.partition("mode: ")[2]) and len(training["validations"]) == 2
    again = train(room, tiny, *words)
    assert again.returncode == 0 and "this run is done" in again.stderr


@pytest.mark.long
def test_another_training_puts_the_first_result_aside(room: Path, tiny: Path) -> None:
    where = ["--config-name", "score_math", "hydra.run.dir=run", "save_path=saved"]
    assert train(room, tiny, *where).returncode == 0
    done = train(room, tiny, *where, "seed=1")
    assert done.returncode == 0 and "saved.old" in done.stderr
    seeds = [
        json.loads((room / name / "training.json").read_text())["seed"] for name in ("saved.old", "saved")
    ]
    assert seeds == [0, 1]


@pytest.mark.long
def test_wandb_without_a_key_goes_on_offline(room: Path, tiny: Path) -> None:
    gone = {"WANDB_API_KEY": "", "HOME": str(room), "WANDB_MODE": ""}
    done = train(room, tiny, "--config-name", "score_math", "hydra.run.dir=run", "use_wandb=true", **gone)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "offline, no WANDB_API_KEY" in done.stderr
    assert list((room / "run" / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["problems.train.path=dataset/none.csv"], "there is no file dataset/none.csv; put it there"),
        (["save_path=.", "hydra.run.dir=run"], "save_path"),
        (["problems.test_size=30"], "too few problems"),
        (["--config-name", "archer_math", "critic_lm=./none"], "no such folder"),
    ],
)
def test_what_cannot_be_trained_is_told_in_a_line(
    room: Path, tiny: Path, words: list[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "train", f"policy_lm={tiny}", *SMALL, *words],
        capture_output=True, text=True, cwd=room,
        env={**os.environ, "PYTHONPATH": str(ROOT), "REASONER_HOME": str(room / "home")},
    )  # fmt: skip
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr[-2000:]
    assert len(done.stderr.strip().splitlines()) <= 3
