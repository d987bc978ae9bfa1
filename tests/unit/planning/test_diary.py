"""What a run notes of its stages for `--actual`, and that noting never ends a run.

Wrong if a computed stage leaves no line, if tokens from the ledger count as made, or if a full disk stops the run.
"""

import shutil
from pathlib import Path

from flows.commands import plan as command
from reasoner.home import Home
from reasoner.planning import plan as plans
from reasoner.planning.estimate import Estimate
from reasoner.planning.plan import Plan, Step
from tasks.context import run_context


def test_a_stage_is_noted_and_compared_with_the_plan(tmp_path: Path) -> None:
    with run_context("smart-demo-1", home=Home(tmp_path)) as run:
        with run.store.writer(
            "completions", {"owed": 3, "tokens": 40, "metrics": {"host_gib": 2.0}}
        ) as draft:
            (draft.path / "x").write_text("x")
        with run.store.writer("completions", {"owed": 0, "tokens": 40, "metrics": "none"}) as found:
            (found.path / "x").write_text("y")
        assert run.rehearse(None, {}) is None, "a real run computes its stages"
        run.note_time("k1", "few-shot", draft.ref, 12.3456)
        run.note_time("k2", "few-shot again", found.ref, 1.0)
        folder = run.folder
    step = Step("few-shot", "few-shot", "k1", "to run", "not made yet", Estimate(10.0))
    done = command.keep(Plan("smart-demo", "cpu", "b", 1.0, (step,)), folder, 20.0)
    assert done.actual["k1"] == {"seconds": 12.346, "new_tokens": 40.0, "host_bytes": 2.0 * 2**30}
    assert done.actual["k2"] == {"seconds": 1.0}, "what the ledger had was not made now"
    assert plans.read(folder) == done
    assert command.summary(done).startswith("1 stages: predicted 10 s, took 12 s (-19%)")
    shutil.rmtree(folder)
    run.note_time("k3", "few-shot", draft.ref, 1.0)  # no folder to write into, and no error
