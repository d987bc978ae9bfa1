"""The loop: steps are on policy, and a run that ended anywhere goes on as if it had not.

Wrong if a resumed run ends with other bytes, repeats or skips data, takes a damaged or foreign checkpoint, or if a
killed engine changes what a step sees.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.engines.protocol import EngineSettings
from reasoner.errors import TrainingError
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.learner import Learner, LearnerSettings
from reasoner.onpolicy.loop import run_loop
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.sampler import OnPolicySampler
from tests.unit.onpolicy.arithmetic import Problems, collector, run
from tests.unit.onpolicy.conftest import make_policy

ROOT = Path(__file__).resolve().parents[3]
STEPS = 5


class Stop(Exception):
    pass


def open_one(base: Path, folder: Path) -> OnPolicySampler:
    settings = EngineSettings("transformers", base, "float32", 3, options={"max_model_len": 256})
    return open_sampler(settings, log=folder / "log", in_process=True, say=lambda line: None)


def train(
    base: Path, work: Path, steps: int = STEPS, *, stop_after: int | None = None
) -> tuple[Any, Any, Any]:
    """Final weights, what was sampled at each step, and the reports."""
    seen: list[Any] = []
    reports: list[Mapping[str, float]] = []

    def report(numbers: Mapping[str, float]) -> None:
        reports.append(numbers)
        if numbers["step"] == stop_after:
            raise Stop

    with open_one(base, work) as sampler:
        try:
            learner = run(base, work, steps, sampler, report, seen)
        except Stop:
            return None, seen, reports
    return {n: p.detach().clone() for n, p in learner.trained.items()}, seen, reports


@pytest.fixture(scope="module")
def undisturbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Any]]:
    yield train(base, tmp_path_factory.mktemp("undisturbed"))


def assert_same_bytes(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("last", [0, 2])
def test_a_resumed_run_has_the_bytes_of_an_undisturbed_one(
    base: Path, tmp_path: Path, undisturbed: tuple[Any, Any, Any], last: int
) -> None:
    weights, seen, reports = undisturbed
    _, before, _ = train(base, tmp_path, stop_after=last)
    resumed, after, again = train(base, tmp_path)
    assert_same_bytes(resumed, weights)
    assert before + after == seen and [step for step, _ in seen] == list(range(STEPS))
    for one, other in zip(again, reports[last + 1 :], strict=True):
        keys = [k for k in one if not k.startswith("time/")]
        assert {k: one[k] for k in keys} == {k: other[k] for k in keys}
    assert train(base, tmp_path)[1] == []  # all is done


def test_the_weights_do_move_and_each_step_samples_anew(
    undisturbed: tuple[Any, Any, Any], base: Path
) -> None:
    weights, seen, reports = undisturbed
    start = make_policy(base, seed=1)
    fresh = {n: p for n, p in start.named_parameters() if p.requires_grad}
    assert max(float((weights[n] - fresh[n].detach()).abs().max()) for n in fresh) > 1e-3
    assert len({str(tokens) for _, tokens in seen}) == STEPS
    for numbers in reports:
        parts = {k.removeprefix("time/") for k in numbers if k.startswith("time/")}
        assert {
            "sync", "generate", "verdict", "logprobs", "forward_backward", "optimiser", "checkpoint", "wall",
        } <= parts  # fmt: skip
        assert numbers["time/other"] >= -1e-9
        assert sum(numbers[f"time/{p}"] for p in parts - {"wall"}) == pytest.approx(numbers["time/wall"])


def test_every_step_is_on_policy(base: Path, tmp_path: Path) -> None:
    """The drift stays at the bfloat16 rounding of the adapter, while weights move by much more."""
    learner = Learner(
        make_policy(base, seed=1),
        LearnerSettings(precision="fp32", lr=5e-2),
        gate=Gate("float32", threshold=0.002, stop=0.05),
        log=lambda line: None,
    )
    drifts: list[float] = []
    problems = Problems()
    with open_one(base, tmp_path) as sampler:
        run_loop(
            learner, sampler, collector(problems, []), work=tmp_path, steps=4, data=problems,
            report=lambda numbers: drifts.append(numbers["drift/mean"]),
        )  # fmt: skip
        assert drifts[0] < 0.002 and max(drifts) < 0.05
        # The same loop with an engine that keeps the first weights is stopped.
        sampler.sync = lambda *args, **more: None  # type: ignore[method-assign]
        with pytest.raises(TrainingError, match="differ by"):
            run_loop(learner, sampler, collector(Problems(), []), work=tmp_path / "b", steps=6)


def checkpoints(work: Path) -> list[str]:
    return sorted(p.name for p in work.iterdir() if p.is_dir())


def test_damaged_checkpoints_are_passed_over_and_others_refused(
    base: Path, tmp_path: Path, undisturbed: tuple[Any, Any, Any]
) -> None:
    train(base, tmp_path, stop_after=2)
    assert checkpoints(tmp_path) == ["checkpoint-2", "checkpoint-3"]  # the newest two
    state = tmp_path / "checkpoint-3" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    (tmp_path / "draft-4").mkdir()
    assert_same_bytes(train(base, tmp_path)[0], undisturbed[0])
    assert checkpoints(tmp_path) == ["checkpoint-4", "checkpoint-5"]
    for folder in checkpoints(tmp_path):
        for file in (tmp_path / folder).iterdir():
            assert file.suffix in (".json", ".safetensors")
    with open_one(base, tmp_path) as sampler, pytest.raises(TrainingError, match="another run"):
        run(base, tmp_path, STEPS, sampler, lambda numbers: None, [], identity="other")
    names = json.loads((tmp_path / "checkpoint-5" / "state.json").read_text())
    assert names["data"] == {"position": 10}


def test_a_killed_trainer_goes_on(base: Path, tmp_path: Path) -> None:
    """SIGKILL to a real process in the middle of a step, twice; the end has the bytes of a process left alone."""
    from safetensors.torch import load_file

    def start(work: Path) -> subprocess.Popen[str]:
        work.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.unit.onpolicy.arithmetic", str(base), str(work), "6"]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    alone = start(tmp_path / "alone")
    killed = start(tmp_path / "killed")
    assert killed.stdout
    for line in killed.stdout:
        if line.startswith("step 2"):
            killed.send_signal(signal.SIGKILL)
            break
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "final.safetensors").exists()
    again = start(tmp_path / "killed")
    steps = again.communicate()[0].split("\n")[:-1]
    assert again.returncode == 0 and steps[0] in ("step 3", "step 4") and steps[-1] == "step 5"
    assert alone.communicate() and alone.returncode == 0
    assert_same_bytes(*(load_file(tmp_path / name / "final.safetensors") for name in ("alone", "killed")))


def test_a_shared_card_is_handed_over(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    with open_one(base, tmp_path) as sampler:
        engine: Any = sampler._engine
        for name in ("sleep", "wake", "load_adapter", "generate"):
            monkeypatch.setattr(engine, name, recorded(calls, name, getattr(engine, name)))
        run(base, tmp_path, 2, sampler, lambda numbers: calls.append("step"), [], share_card=True)
    once = ["load_adapter", "generate", "sleep", "step"]
    assert calls == [*once, "wake", *once]


def recorded(calls: list[str], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        calls.append(name)
        return method(*args, **more)

    return call
