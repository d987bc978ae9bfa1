"""`reasoner plan` as a stranger meets it.

Wrong if something that cannot fit is planned without a word, if what is named instead does not fit either, or if a
configuration cannot be planned at all.
"""

import json
from pathlib import Path

import pytest

from flows.commands import plan as command
from flows.commands.pipelines import find
from flows.commands.run import predicted
from reasoner.config.compose import names
from reasoner.config.kinds import method_of
from reasoner.errors import UsageError
from reasoner.home import Home
from tests.unit.cli.test_cli import reasoner


def test_what_does_not_fit_is_refused_with_what_would(tmp_path: Path) -> None:
    words = ["smart-epoch2", "model=llama-3-8b", "data=demo", "train.batch_size=64"]
    done = reasoner("plan", *words, "--device", "4090", home=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert (
        "on 4090, which has 23.6 GiB" in line and "train epoch 1 needs" in line and "(or compute=gpu" in line
    )
    remedy = line.partition("23.6 GiB: ")[2].partition(" (or")[0].split(";")[0].split()
    again = reasoner("plan", *words, *remedy, "--device", "4090", "--json", home=tmp_path)
    assert again.returncode == 0, again.stderr
    row = json.loads(again.stdout)
    assert row["device_bytes"] <= 23.6 * 2**30 and row["seconds"] > 60 and row["states"]["cached"] == 0


@pytest.mark.parametrize("name", ["smart-grpo", "planner-demo", "mlmt-math", "archer_code"])
def test_the_other_pipelines_are_planned_too(tmp_path: Path, name: str) -> None:
    words = ["policy_lm=Qwen/Qwen2.5-0.5B-Instruct", "problems=math-hub"] if name == "archer_code" else []
    find(name).check(words)
    row = command.make(name, words, Home(tmp_path), "h100", benchmark=False).to_row(3.0)
    assert row["trained_tokens"] > 0 and row["new_tokens"] > 0 and row["cost"] > 0
    assert all(step["state"] == "to run" for step in row["steps"])
    unknown = [s["label"] for s in row["steps"] if "no estimate for this stage" in s["estimate"]["notes"]]
    assert not unknown


@pytest.mark.parametrize("name", ["nightly", "publish"])
def test_what_trains_nothing_has_no_plan_and_runs_without_one(tmp_path: Path, name: str) -> None:
    assert predicted(name, [], Home(tmp_path)) is None
    with pytest.raises(UsageError, match="has no plan"):
        command.make(name, [], Home(tmp_path))


def test_every_stage_has_an_estimate() -> None:
    from tasks import registry
    from tasks.planning import ESTIMATORS
    from tasks.stage import STAGES

    registry.find("problems")
    planned = {
        name
        for name, stage in STAGES.items()
        if stage.function.__module__.startswith("tasks.") and stage.function.__module__ != "tasks.releases"
    }
    assert planned <= set(ESTIMATORS), "nights and publications are not planned, everything else is"
    assert {method_of(name) for name in names()} >= {"smart", "planner", "mlmt"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["smart-demo", "--device", "h1000"], 2, "there are: cpu"),
        (["smart-demo", "train.lrr=1"], 2, "Did you mean 'train.lr'"),
        (["no-such-run", "--actual"], 2, "no run 'no-such-run'"),
        (["smart-epoch2", "model=local", "model.path=nobody/unknown"], 1, "fetch it first"),
        (["smart-demo", "--price", "-1"], 2, "price"),
    ],
)
def test_wrong_usage_of_plan_is_a_line(tmp_path: Path, arguments: list[str], status: int, words: str) -> None:
    done = reasoner("plan", *arguments, home=tmp_path)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
