"""Trainings of several seeds learn from and are tested on the same problems; `problems.seed` alone divides them.

Wrong if the flow or the plain folder lets the training's seed into the division.
"""

from pathlib import Path

import pytest

from flows.multiturn import multiturn
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.stages import multiturn as work
from reasoner.stages.multiturn_folder import MultiTurnFolder
from tasks.rehearsal import rehearse
from tests.support.problems import FIXTURES, section


def parts(folder: Path, seed: int, split: int) -> dict[str, list[str]]:
    """The ids of each part that a training in a plain folder prepares."""
    config = MultiTurnConfig.model_validate({
        "method": "score", "policy_lm": "x", "seed": seed, "problems": section("math", seed=split),
        "verify": {"workers": 1},
    })  # fmt: skip
    run = MultiTurnFolder(folder, config, lambda *_: None, lambda _: None)
    prepared = run._problems()
    return {name: [p.id for p in work.read(prepared, name)] for name in work.PARTS}


def test_two_seeds_of_a_training_have_the_same_parts(tmp_path: Path) -> None:
    first, second = (parts(tmp_path / str(seed), seed, 0) for seed in (0, 1))
    assert first == second
    other = parts(tmp_path / "other", 0, 1)
    assert set(other["test"]) != set(first["test"])
    assert {i for part in other.values() for i in part} == {i for part in first.values() for i in part}


def test_a_changed_division_is_made_again_in_the_same_folder(tmp_path: Path) -> None:
    first = parts(tmp_path, 0, 0)
    assert parts(tmp_path, 0, 1)["test"] != first["test"]
    assert parts(tmp_path, 3, 0) == first


def test_the_flow_asks_for_the_same_problems_whatever_the_training_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))

    def asked(*words: str) -> str:
        given = ["problems=mbpp", f"problems.train.path={FIXTURES / 'mbpp_filtered.csv'}", *words]
        call = rehearse(multiturn, "score-code", given).asked[0].call
        assert call.name == "multiturn-problems"
        return call.key

    assert asked("seed=0") == asked("seed=1")
    assert asked("seed=0") != asked("seed=0", "problems.seed=1")
