"""Killed at any moment, a training goes on from its last complete checkpoint and ends with the same bytes."""

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.smart import LoraConfig
from reasoner.ids import file_hash
from reasoner.training import checkpoints
from reasoner.training.launch import run_sft, sft_argv
from reasoner.training.specs import SftSpec
from tests.unit.training import tiny

pytestmark = pytest.mark.crash

STEPS = 39


def long_spec(base: Path, room: Path, **fields: Any) -> SftSpec:
    """39 steps of 3 epochs in order of length, with dropout, accumulation, a last batch not full, and validation."""
    return tiny.make_spec(
        base,
        room,
        tiny.make_examples(51, uneven=True),
        epochs=3,
        batch_size=2,
        grad_accum=2,
        lora=LoraConfig(r=4, alpha=8, dropout=0.1),
        validation_rows=tiny.write_examples(
            room / "rows" / "validation.jsonl", tiny.make_examples(6, seed=8)
        ),
        eval_steps=5,
        save_steps=3,
        save_total_limit=2,
        logging_steps=4,
        threads=1,
        **fields,
    )


def hashes(folder: Path) -> dict[str, str]:
    return {p.name: file_hash(p) for p in sorted(folder.iterdir())}


def kill_at(spec: SftSpec, step: int, delay: float, log: Path) -> int:
    """Start the program, kill it with SIGKILL `delay` seconds after checkpoint folder `step` appears."""
    argv = sft_argv(spec.save(spec.work / "sft.json"))
    with log.open("ab") as output:
        child = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True)
    end = time.monotonic() + 240
    while child.poll() is None and time.monotonic() < end:
        if any(checkpoints.step_of(p) >= step for p in checkpoints.all_checkpoints(spec.work)):
            time.sleep(delay)
            break
        time.sleep(0.002)
    os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


@pytest.fixture(scope="module")
def undisturbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> SftSpec:
    """The run to compare with."""
    room = tmp_path_factory.mktemp("undisturbed")
    spec = long_spec(base, room)
    reports: list[dict[str, Any]] = []
    result = run_sft(spec, room / "log", reports.append)
    assert [r["done"] for r in reports] == list(range(1, STEPS + 1))
    assert all(r["total"] == STEPS and r["loss"] > 0 for r in reports)
    assert result.training["steps"] == STEPS and result.metrics["resumed_from_step"] == 0
    return spec


def test_killed_twice_and_resumed_it_ends_with_the_same_bytes(undisturbed: SftSpec, tmp_path: Path) -> None:
    """The kill may fall into the writing of a checkpoint, into a step, or into a validation."""
    rng = random.Random(1)
    spec = replace(undisturbed, output=tmp_path / "adapter", work=tmp_path / "work")
    log = tmp_path / "log"

    for low, high in ((3, 15), (18, 33)):
        status = kill_at(spec, rng.randint(low, high), rng.random() * 0.05, log)
        assert status == -signal.SIGKILL, log.read_text()
        assert not (spec.output / "adapter_model.safetensors").exists()
    reports: list[dict[str, Any]] = []
    result = run_sft(spec, log, reports.append)
    assert 0 < result.metrics["resumed_from_step"] < STEPS, log.read_text()
    assert reports[0]["done"] == result.metrics["resumed_from_step"] + 1
    assert hashes(spec.output) == hashes(undisturbed.output), "adapter, tokenizer and training.json"


def test_a_corrupted_last_checkpoint_is_ignored(undisturbed: SftSpec, tmp_path: Path) -> None:
    spec = replace(undisturbed, output=tmp_path / "adapter", work=tmp_path / "work")
    log = tmp_path / "log"
    kill_at(spec, 18, 0.0, log)
    found = [p for p in checkpoints.all_checkpoints(spec.work) if checkpoints.is_complete(p)]
    assert len(found) >= 2
    damaged, good = found[-1], found[-2]
    optimiser = damaged / "optimizer.pt"
    optimiser.write_bytes(optimiser.read_bytes()[: optimiser.stat().st_size // 2])
    result = run_sft(spec, log)
    assert result.metrics["resumed_from_step"] == checkpoints.step_of(good), log.read_text()
    assert f"{damaged.name} is incomplete or damaged" in log.read_text()
    assert hashes(spec.output) == hashes(undisturbed.output)


def test_a_forged_pickle_in_a_checkpoint_is_not_run(undisturbed: SftSpec, tmp_path: Path) -> None:
    """Even with a valid marker, the optimiser's state is read with weights_only."""
    import pickle

    spec = replace(undisturbed, output=tmp_path / "adapter", work=tmp_path / "work")
    kill_at(spec, 9, 0.0, tmp_path / "log")
    last = checkpoints.last_complete(spec.work)
    assert last is not None
    proof = tmp_path / "proof"

    class Forged:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (proof,))

    (last / "optimizer.pt").write_bytes(pickle.dumps(Forged()))
    files = json.loads((last / checkpoints.MARKER).read_text())
    files["optimizer.pt"] = file_hash(last / "optimizer.pt")
    checkpoints.write_json(last / checkpoints.MARKER, files)
    done = subprocess.run(sft_argv(spec.work / "sft.json"), capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "eights_only" in done.stderr
    assert not proof.exists()
