"""The page of a multi-turn run: each method is tested on the turn that it trains, ArCHer against its criterion."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reasoner.methods.multiturn.metrics import rollout_metrics, two_turns
from reasoner.report import criterion
from reasoner.report import multiturn as page
from reasoner.store.rows import write_rows
from tests.unit.methods.multiturn.making import episode

N = 12


def evaluation(folder: Path, firsts: Sequence[float], seconds: Sequence[float]) -> Path:
    """What a greedy evaluation leaves, from both turns' rewards by problem."""
    folder.mkdir(parents=True)
    made = [episode(f"p{i}", 0, a, b) for i, (a, b) in enumerate(zip(firsts, seconds, strict=True))]
    write_rows(folder / "episodes.jsonl", [e.to_row() for e in made])
    facts = {"two_turns": two_turns(made).to_row(), "signals": rollout_metrics(made)}
    (folder / "evaluation.json").write_text(json.dumps(facts))
    return folder


def training(
    folder: Path, method: str, rollouts: Sequence[Sequence[float]], warmup: int = 1, told: str | None = None
) -> Path:
    """What a training leaves, from the rewards of its rollouts' attempts; every rollout has problems of its own."""
    folder.mkdir(parents=True)
    config = {"warmup_iter": warmup} | ({"show_error": told} if told else {})
    (folder / "training.json").write_text(
        json.dumps({
            "method": method, "mode": "", "env_type": "math", "seed": 0, "steps": len(rollouts),
            "exported_step": 1, "chosen_by": "last", "validations": [], "config": config,
        })
    )  # fmt: skip
    for step, rewards in enumerate(rollouts, 1):
        rows = [episode(f"t{step}-{i}", 0, r, None) for i, r in enumerate(rewards)]
        (folder / "episodes").mkdir(exist_ok=True)
        write_rows(folder / "episodes" / f"{step:06d}.jsonl", [e.to_row() for e in rows])
    return folder


def written(
    room: Path, method: str, rollouts: Sequence[Sequence[float]] = (), told: str | None = None
) -> tuple[dict[str, Any], str]:
    """The report of a run that moved turn 1 of every problem, and turn 2 of none."""
    for name in ("problems", "out"):
        (room / name).mkdir()
    write_rows(room / "problems" / "left-out.jsonl", [])
    page.write(
        room / "out", "title", "tiny", room / "problems", evaluation(room / "base", [0] * N, [1] * N),
        training(room / "trained", method, rollouts, told=told), evaluation(room / "final", [1] * N, [1] * N), {},
    )  # fmt: skip
    return json.loads((room / "out" / "report.json").read_text()), (room / "out" / "report.md").read_text()


@pytest.mark.parametrize(("method", "turn", "moved"), [("archer", 1, N), ("score", 2, 0), ("mlmt", 2, 0)])
def test_the_turn_that_is_trained_is_tested(tmp_path: Path, method: str, turn: int, moved: int) -> None:
    facts, text = written(tmp_path, method)
    against = facts["trained_against_untrained"]
    assert facts["trained_turn"] == turn and (against["only_main"], against["only_control"]) == (moved, 0)
    assert against["p"] == pytest.approx(2 * 0.5**N if moved else 1.0)
    assert f"Turn {turn}, which is trained" in text and f"(N={N}): {moved} right" in text
    assert ("Criterion" in text) == (method == "archer") == ("criterion" in facts)


def test_archer_has_improved_where_the_training_reward_is_above_the_bases(tmp_path: Path) -> None:
    base, better = [1, 0, 0, 0] * 6, [1, 1, 1, 0] * 6
    facts, text = written(tmp_path, "archer", [base, base, [0] * 24, better, better])
    found = facts["criterion"]
    assert (found["before"], found["after"]) == (0.25, 0.75)
    assert found["rollouts"] == [2, 2], "warm-up and the next rollout are the untrained policy's"
    assert found["improved"] is True and found["p"] < 0.001
    assert "**improved**" in text and "0.250 of the untrained policy (2 rollouts, 48 problems)" in text


@pytest.mark.parametrize(
    "later", [[1, 0, 0, 0] * 6, [0] * 24, [1, 1, 0, 0, 0, 0] * 4], ids=["equal", "worse", "within chance"]
)
def test_archer_has_not_improved_otherwise(tmp_path: Path, later: list[float]) -> None:
    facts, text = written(tmp_path, "archer", [[1, 0, 0, 0] * 6, [1, 0, 0, 0] * 6, later, later])
    assert facts["criterion"]["improved"] is False and facts["criterion"]["p"] > 0.05
    assert "**not improved**" in text


def test_without_a_rollout_after_an_actor_step_nothing_is_decided(tmp_path: Path) -> None:
    facts, text = written(tmp_path, "archer", [[1, 0], [1, 1]])
    assert facts["criterion"]["improved"] is None and facts["criterion"]["p"] is None
    assert "not decided" in text


def test_a_problem_counts_once_and_an_unscored_attempt_not_at_all(tmp_path: Path) -> None:
    trained = training(tmp_path / "trained", "archer", [[1, 0]], warmup=0)
    rows = [episode("a", i, r, None) for i, r in enumerate((1, 1, 0, -1))] + [episode("b", 0, 0, None)]
    write_rows(trained / "episodes" / "000002.jsonl", [e.to_row() for e in rows])
    found = criterion.judge(trained, 0)
    assert found["n_after"] == 2 and found["after"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("told", "said"),
    [(None, ""), ("none", ""), ("shown", "the tests that the task shows"), ("all", "hidden ones")],
)
def test_what_the_writer_was_told_stands_on_the_page(tmp_path: Path, told: str | None, said: str) -> None:
    facts, text = written(tmp_path, "mlmt", told=told)
    assert facts["show_error"] == (told or "none")
    assert (said in text) if said else ("is told" not in text)
