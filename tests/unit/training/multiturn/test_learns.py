"""Every method learns the toy task that shows what it claims, from three seeds; from exchanged verdicts it does not.

The loop, the judge, and transformers as the engine are the program's own; only the processes around them are missing.
Settings were chosen on other seeds (see `signal.METHODS`); benchmarks/multiturn_toy.py measures the same with more.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.environments import Environment, open_environment
from tests.support import signal
from tests.support.toy_run import exchanged, train

LONG = pytest.mark.long
SEEDS = (0, 1, 2)
CONTROLS = ("score", "mlmt", pytest.param("rl_guided", marks=LONG), pytest.param("archer", marks=LONG))


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return signal.make_ready(tmp_path_factory.mktemp("ready") / "base")


@pytest.fixture(scope="module")
def judge() -> Iterator[Environment]:
    with open_environment("math", show_tests="none", workers=1, timeout=60.0) as opened:
        yield opened


@pytest.mark.parametrize("seed", SEEDS)
def test_score_corrects_itself_and_keeps_its_first_attempts(
    seed: int, ready: Path, judge: Environment, tmp_path: Path
) -> None:
    """The key is told at turn 2 only: turn 2 becomes right, turn 1 stays a guess that stage I holds near the base."""
    found = train(tmp_path, ready, judge, "score", seed=seed)
    assert found.learnt and found.before["delta"] <= 0.15 and found.best["delta"] >= 0.4
    stage1 = [row for row in found.rows if row["stage"] == 1][-1]
    assert stage1["attempt_kl"] < stage1["refinement_kl"]


@pytest.mark.parametrize("method", ["rl_guided", "mlmt"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_writer_learns_to_name_the_hint_and_the_solver_to_use_it(
    method: str, seed: int, ready: Path, judge: Environment, tmp_path: Path
) -> None:
    """The solver never sees the key, so it is right only where the writer names the right hint and it is followed."""
    found = train(tmp_path, ready, judge, method, seed=seed)
    assert found.learnt and found.hints_right >= 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_archers_actor_improves_with_its_critic(
    seed: int, ready: Path, judge: Environment, tmp_path: Path
) -> None:
    found = train(tmp_path, ready, judge, "archer", seed=seed)
    assert found.learnt
    assert found.rows[-1]["q_error"] < 0.2 < found.rows[0]["q_error"]


@pytest.mark.parametrize("method", CONTROLS)
def test_nothing_is_learnt_from_exchanged_verdicts(
    method: str, ready: Path, judge: Environment, tmp_path: Path
) -> None:
    """The control: the same runs, but each episode is told the verdicts of another."""
    found = train(tmp_path, ready, judge, method, exchanged)
    assert not found.learnt
