"""What benchmarks/grpo_step.py and planner_step.py say is what was timed: parts, ratios, copies of the base.

Wrong if a step is counted that was not ordered, if the parts of a step are more than the step, if a ratio is turned
around, if calls that were not made are not counted by their tokens, or if a side that fails takes the others with it.
"""

from pathlib import Path
from typing import Any

import pytest

from reasoner.onpolicy.parts import Parts, StepTimes
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.trl_rollout import rollout_func
from tests.support.benchmarks import benchmarks, program  # noqa: F401 (a fixture)
from tests.unit.onpolicy.test_trl_rollout import trainer


def row(wall: float, tokens: float = 100, **parts: float) -> dict[str, Any]:
    memory = {"device": 3.0, "peak": wall}
    return {"wall": wall, "tokens": tokens, "parts": parts, "other": 0.5, "memory": memory}


def test_steps_come_on_order_and_their_parts_are_no_more_than_the_step(
    policy: Any, sampler: OnPolicySampler, tmp_path: Path
) -> None:
    paced, found, asked = program("paced"), list[tuple[StepTimes, dict[str, float]]](), list[int]()
    parts = sampler.parts = Parts()
    made = trainer(policy, rollout_func(sampler, lambda p: (p, True), max_tokens=8), tmp_path, steps=50)

    def wait() -> None:
        if len(asked) == 2:
            raise paced.Finished
        asked.append(len(found))

    paced.pace(made, parts, wait, lambda times, logs: found.append((times, logs)))
    paced.run_paced(made)
    assert asked == [0, 1] and len(found) == 2, "a step waits for its order and is told when it is over"
    for times, logs in found:
        assert {"sync", "generate", "verdict", "forward_backward", "optimiser", "prepare"} <= set(times.parts)
        assert all(seconds > 0 for seconds in times.parts.values()) and times.other >= 0
        assert logs["completions/mean_length"] > 0


def test_a_ratio_above_one_means_that_ours_is_faster() -> None:
    step = program("grpo_step")
    ours = [row(4.0, logprobs=1.0, sync=0.1), row(5.0, logprobs=1.0, sync=0.1)]
    theirs = [row(8.0, 200, logprobs=5.0, sync=2.0), row(10.0, 200, logprobs=6.0, sync=2.0)]
    found = step.ratios(ours, theirs)
    assert found["step"]["median"] == 2.0
    assert found["same_tokens"]["median"] == 1.0
    assert found["without_logprobs"]["median"] == 1.0
    told = step.summary(theirs)
    assert told["seconds"]["median"] == 9.0 and told["parts"] == {"logprobs": 5.5, "sync": 2.0}
    assert told["sync_share"]["median"] == pytest.approx(0.225) and told["peak_gib"]["peak"] == 10.0


def test_calls_that_were_not_made_are_counted_by_their_tokens() -> None:
    step = program("planner_step")
    both = step.BothWays.__new__(step.BothWays)
    both.calls, both.tokens, both.serial_calls, both.serial_tokens = 10, 1000, 4, 250
    times = StepTimes(20.0, {step.SHARED: 2.0, step.SERIAL: 8.0})
    found = step.step_row(times, {"planner/valid": 0.5}, both)
    assert (found["shared"], found["worker_serial"], found["serial"]) == (12.0, 32.0, 42.0)
    both.serial_calls = 10
    assert both.scale == 1.0, "all calls were made: their time stands as it is, whatever their lengths"
    assert step.spread(range(10), 4) == [0, 2, 5, 7] and step.spread(range(3), 4) == [0, 1, 2]
    assert "ratio_serial_over_shared" in step.summary([found])
    assert "note" in step.summary([{**found, "calls": 0}])


def test_copies_of_the_base_are_read_from_the_engines_own_words(tmp_path: Path) -> None:
    side = program("grpo_side")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 2**20)
    found = side.weights("Model loading took 0.001 GiB and 3 seconds\n", tmp_path)
    assert found["engine_base_copies"] == pytest.approx(1.02, abs=0.01)
    assert side.weights("nothing of it", tmp_path)["engine_base_copies"] is None


def test_a_side_that_fails_is_told_and_the_other_goes_on(tmp_path: Path) -> None:
    step = program("grpo_step")
    (tmp_path / "log").write_text("the reason\n")

    class Side:
        name, log = "trl", tmp_path / "log"
        ended = False

        def end(self) -> None:
            self.ended = True

    def fail(side: Any, result: dict[str, Any]) -> None:
        raise RuntimeError("trl: no weight_loader\nmore")

    side, result = Side(), dict[str, Any](errors={})
    running = {"trl": side, "ours": Side()}
    step._try(result, running, "trl", fail)
    assert result["errors"] == {"trl": "trl: no weight_loader"} and side.ended and list(running) == ["ours"]
    step._try(result, running, "trl", fail)
