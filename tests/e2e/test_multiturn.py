"""Every multi-turn method trains, is killed in between and goes on; a killed run ends with the bytes of another.

Sampling, learning and judging are real: a tiny Llama, transformers as the engine in a process of its own, the math
grader. Whether a toy task is learnt is measured by benchmarks/multiturn_toy.py.
"""

import os
import signal as signals
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reasoner.errors import TrainingError
from reasoner.records import Problem
from reasoner.store.rows import read_rows, write_rows
from reasoner.training.launch import program_argv
from reasoner.training.multiturn.launch import MODULE, run_multiturn
from tests.support import signal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
LONG = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
METHODS = {
    "mlmt": ("hint", {"iterations": 4}),
    "rl_guided": ("hint", {"stage1_steps": 2, "stage2_steps": 2}),
    "score": ("again", {"stage1_steps": 2, "stage2_steps": 2}),
    "archer": ("direct", {"iterations": 4, "epochs": 2, "actor_epochs": 1, "warmup_iter": 1}),
}


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return signal.make_ready(tmp_path_factory.mktemp("ready") / "base")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def kill_after(spec, iterations: int, log: Path) -> None:
    """Start the training and kill -9 its whole group when so many iterations are in its metrics."""
    command = program_argv(MODULE, spec.save(spec.work / "multiturn.json"), 1, "cpu")
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=ROOT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    metrics, deadline = spec.work / "metrics.jsonl", time.monotonic() + 900
    while not metrics.is_file() or metrics.read_bytes().count(b"\n") < iterations:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)
    os.killpg(process.pid, signals.SIGKILL)
    process.wait()


@LONG
@pytest.mark.parametrize("method", list(METHODS))
def test_a_training_goes_on_after_a_kill(method: str, ready: Path, tmp_path: Path) -> None:
    task, steps = METHODS[method]
    spec = signal.spec(tmp_path, ready, task, method=method, save_freq=2, eval_freq=2, **steps)
    kill_after(spec, 3, tmp_path / "killed.log")
    done = run_multiturn(spec, tmp_path / "resumed.log")
    assert done["metrics"]["resumed_from_step"] == 2, "it went on from its checkpoint"
    rows = read_rows(spec.output / "metrics.jsonl")
    assert [r["step"] for r in rows] == list(range(1, spec.config.steps + 1))
    assert rows[0]["logprob_difference" if method != "archer" else "acc_t1"] is not None
    parts = {"solver"} | ({"guidance"} if spec.config.guided else set()) | (
        {"value"} if method in ("mlmt", "archer") else set()
    )  # fmt: skip
    assert {p.name for p in spec.output.iterdir() if p.is_dir()} == parts | {"episodes", "validations"}


@LONG
def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(ready: Path, tmp_path: Path) -> None:
    fields = {"iterations": 8, "save_freq": 3, "eval_freq": 4, "lora": {"r": 8, "alpha": 16, "dropout": 0.05}}
    calm = signal.spec(tmp_path / "same", ready, "hint", **fields)
    run_multiturn(calm, tmp_path / "calm.log")
    wanted = files(calm.output)
    (tmp_path / "same").rename(tmp_path / "calm")
    rough = signal.spec(tmp_path / "same", ready, "hint", **fields)
    kill_after(rough, 2, tmp_path / "rough.log")  # before its first checkpoint
    kill_after(rough, 5, tmp_path / "rough.log")
    run_multiturn(rough, tmp_path / "rough.log")
    found = files(rough.output)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert not list(rough.output.rglob("*.pt")) and not list(rough.output.rglob("*.bin"))


@pytest.mark.parametrize("tokens", [None, pytest.param(300, marks=LONG)])
def test_two_processes_learn_what_one_does(ready: Path, tmp_path: Path, tokens: int | None) -> None:
    """Also where their micro-batches are cut by tokens. Gradients are summed over processes: losses and gradients agree
    up to rounding in both iterations, and so do the adapters as a whole. Not every weight by itself: Adam moves one
    whose gradient is rounding by any part of its rate.
    """
    from safetensors.torch import load_file

    made, told = {}, {}
    for processes in (1, 2):
        fields = {
            "iterations": 2,
            "processes": processes,
            "batch_size": 8,
            "micro_tokens": tokens if processes == 2 else None,
            "lm_lr": 1e-3,
            "guidance_lr": 1e-3,
        }
        spec = signal.spec(tmp_path / str(processes), ready, "hint", **fields)
        run_multiturn(spec, tmp_path / f"{processes}.log")
        made[processes] = {
            part: load_file(spec.output / part / "adapter_model.safetensors")
            for part in ("solver", "guidance")
        }
        told[processes] = read_rows(spec.output / "metrics.jsonl")
    for one, two in zip(told[1], told[2], strict=True):
        for name in (f"{part}_{what}" for part in ("solver", "feedback") for what in ("grad_norm", "loss")):
            assert one[name] == pytest.approx(two[name], rel=1e-2, abs=1e-5), (one["step"], name)
    for part in ("solver", "guidance"):
        apart = sum(float((t - made[2][part][n]).square().sum()) for n, t in made[1][part].items())
        moved = sum(float(t.square().sum()) for n, t in made[1][part].items() if "lora_B" in n)
        assert apart < 1e-4 * moved, part


@LONG
def test_two_engines_sample_for_two_processes(ready: Path, tmp_path: Path) -> None:
    """With the order of a shared card, in which every process waits for the engines' sleep and makes room before they
    wake."""
    compute = {"processes": 2, "engines": 2, "one_card": True}
    engine = {"kind": "transformers", "dtype": "float32", "options": {"batch_size": 64}}
    fields = {
        "iterations": 2,
        "eval_freq": 2,
        "batch_size": 8,
        "lm_lr": 1e-3,
        "guidance_lr": 1e-3,
        "engine": engine,
    }
    spec = signal.spec(tmp_path, ready, "hint", compute=compute, **fields)
    run_multiturn(spec, tmp_path / "log", timeout=600)
    rows = read_rows(spec.output / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["logprob_difference"] < 0.005 for row in rows), "both sample with the new adapters"
    assert {path.name for path in spec.work.glob("engine*.log")} == {"engine-0.log", "engine-1.log"}


class Stopped(Exception):
    pass


def stop(facts: dict[str, float]) -> None:
    if facts["done"] == 3:
        raise Stopped


@LONG
@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 2)])
def test_what_some_processes_began_others_end(ready: Path, tmp_path: Path, first: int, then: int) -> None:
    """Stopped behind a checkpoint, a training goes on with another number of processes, to the losses of one."""
    fields = {
        "iterations": 4, "save_freq": 2, "eval_freq": 4, "batch_size": 8, "lm_lr": 1e-3, "guidance_lr": 1e-3,
    }  # fmt: skip
    begun = signal.spec(tmp_path / "changed", ready, "hint", processes=first, **fields)
    with pytest.raises(Stopped):
        run_multiturn(begun, tmp_path / "begun.log", stop)
    ended = signal.spec(tmp_path / "changed", ready, "hint", compute={"processes": then}, **fields)
    assert run_multiturn(ended, tmp_path / "ended.log")["metrics"]["resumed_from_step"] == 2
    alone = signal.spec(tmp_path / "alone", ready, "hint", **fields)
    run_multiturn(alone, tmp_path / "alone.log")
    rows, wanted = (read_rows(spec.output / "metrics.jsonl") for spec in (ended, alone))
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row, one in zip(rows, wanted, strict=True):
        for name in (f"{part}_{what}" for part in ("solver", "feedback") for what in ("grad_norm", "loss")):
            assert row[name] == pytest.approx(one[name], rel=1e-2, abs=1e-5), (row["step"], name)


@LONG
def test_a_context_too_short_and_an_unreadable_spec_are_told_in_a_line(ready: Path, tmp_path: Path) -> None:
    from reasoner.errors import ConfigurationError

    short = signal.spec(
        tmp_path, ready, "hint", engine={"kind": "transformers", "options": {"max_model_len": 30}}
    )
    with pytest.raises(ConfigurationError, match=r"raise engine\.options\.max_model_len"):
        run_multiturn(short, tmp_path / "log")
    # A test problem that does not fit is named before the training, not after it.
    long = signal.spec(
        tmp_path / "long", ready, "hint", engine={"kind": "transformers", "options": {"max_model_len": 128}}
    )
    row = Problem.make("left " * 200, "1", "toy")
    write_rows(long.problems / "test.jsonl", [row.to_row()])
    with pytest.raises(ConfigurationError, match=rf"problem {row.id} may need"):
        run_multiturn(long, tmp_path / "long.log")
    done = subprocess.run(
        [sys.executable, "-m", "reasoner.training.multiturn.program", str(tmp_path / "none.json")],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@LONG
def test_no_problems_to_validate_on(ready: Path, tmp_path: Path) -> None:
    spec = signal.spec(tmp_path, ready, "hint")
    (spec.problems / "validation.jsonl").write_text("")
    with pytest.raises(TrainingError, match="none to validate on"):
        run_multiturn(spec, tmp_path / "log")
