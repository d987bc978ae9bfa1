"""What a plan says of a real run, before and after it.

Wrong if a plan computes or leaves anything, if it differs from the stages that the run then makes, if a changed setting
makes too much or too little stale, or if what the run took is not kept.
"""

import json
from pathlib import Path

import pytest

from flows.commands import plan as command
from flows.smart import smart
from reasoner.home import Home
from reasoner.planning import plan as plans
from reasoner.planning.plan import Plan
from tests.flows.test_smart import settings
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(900)]

SMALL = ("epochs=1", "data.pool.word_problems.limit=120", "train.min_records=4")


def planned(home: Path, words: list[str]) -> Plan:
    return command.make("smart-demo", words, Home(home), "cpu", benchmark=False)


def states(made: Plan) -> dict[str, str]:
    return {step.label: step.state for step in made.steps}


@pytest.mark.long
def test_a_plan_says_what_the_run_then_does(home: Path, tmp_path: Path) -> None:
    words = settings(make_model(tmp_path / "model"), *SMALL)
    before = planned(home, words)
    assert set(states(before).values()) == {"to run"} and not before.refusals
    assert not (home / "runs").exists() and not (home / "results").exists(), "a plan leaves nothing"
    asked = {step.label: step.estimate for step in before.steps}
    assert asked["few-shot pot pool"].new_tokens > 0 and asked["train epoch 1"].trained_tokens > 0

    smart("smart-demo", words)
    (folder,) = (home / "runs").iterdir()
    done = command.keep(before, folder, 33.0)
    by_label = {json.loads(line)["label"]: json.loads(line)
                for line in (folder / plans.TIMINGS).read_text().splitlines()}  # fmt: skip
    assert set(by_label) == set(states(before)), "the run made the stages that were planned, and no others"
    assert plans.read(folder).actual_seconds == 33.0
    kept = {step.label for step, _ in plans.compared(done)}
    assert {"problems", "few-shot cot pool"} <= kept
    assert by_label["few-shot pot pool"]["new_tokens"] > 0 and by_label["train epoch 1"]["host_bytes"] > 1e8

    assert set(states(planned(home, words)).values()) == {"cached"}

    changed = planned(home, [*words, "train.lr=2e-2"])
    after = states(changed)
    assert after["few-shot cot pool"] == after["records-epoch1"] == "cached"
    assert after["train epoch 1"] == after["merge epoch 1"] == after["report"] == "stale"
    reasons = {step.label: step.reason for step in changed.steps}
    assert reasons["train epoch 1"] == "inputs changed: config.lr"
    assert reasons["merge epoch 1"] == "inputs changed: adapter"

    more = planned(home, [*words, "few_shot.shots=3"])
    assert states(more)["problems"] == "cached" and states(more)["few-shot sub pool"] == "stale"
    assert "few_shot.shots" in next(s.reason for s in more.steps if s.label == "few-shot sub pool")

    gone = next((home / "artifacts" / "adapter").glob("*/adapter_model.safetensors"))
    gone.unlink()
    lost = {step.label: step for step in planned(home, words).steps}
    assert lost["train epoch 1"].state == "stale" and "gone or altered" in lost["train epoch 1"].reason
    assert lost["records-epoch1"].state == "cached"


def test_until_converged_is_planned_to_its_longest(home: Path, tmp_path: Path) -> None:
    words = settings(make_model(tmp_path / "model"), "epochs=until-converged", "max_epochs=3")
    labels = states(planned(home, words))
    assert "train epoch 3" in labels and "train epoch 4" not in labels
