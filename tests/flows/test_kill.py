"""kill -9 in the middle of few-shot, of training and of sampling: the same command makes only what is owed.

The scripted model answers slowly enough to be caught; training is real. At the end every artifact has the digest that
an undisturbed run gives it.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reasoner.store import Store
from tests.flows.test_smart import settings
from tests.support.commands import start
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.crash, pytest.mark.timeout(1200)]

SECONDS = 400


def command(model: Path, delay: float) -> list[str]:
    small = ["train.save_steps=2", "train.eval_steps=2", "train.min_records=4"]
    return ["run", "smart-demo", *settings(model, *small, f"engine.options.delay={delay}")]


def rows(home: Path) -> int:
    """Completions in the ledger, by whole lines."""
    return sum(path.read_bytes().count(b'"completion"') for path in home.glob("ledger/*/*.jsonl"))


def sampled(home: Path) -> bool:
    """Whether a policy has begun to sample: a second model's ledger holds more than the answers."""
    folders = [
        f for f in home.glob("ledger/*") if any(b'"index":1' in p.read_bytes() for p in f.glob("*.jsonl"))
    ]
    return bool(folders)


def digests(home: Path) -> dict[str, str]:
    """Digest by stage and inputs, of everything that was made."""
    store = Store(home / "artifacts")
    return {store.manifest(ref).metadata["key"]: ref.digest for ref in store.list()}


def kill_when(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not ready():
        assert process.poll() is None, f"it ended too soon: {log.read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"never got there: {log.read_text()[-2000:]}"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_killed_three_times_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    undisturbed = start(calm, *command(model, 0.0), log=tmp_path / "calm.log")
    assert undisturbed.wait(SECONDS) == 0, (tmp_path / "calm.log").read_text()[-3000:]

    log = tmp_path / "rough.log"

    def begin() -> subprocess.Popen[bytes]:
        return start(rough, *command(model, 0.01), log=log)

    kill_when(lambda: rows(rough) >= 64, begin(), log)
    kept = rows(rough)
    assert 64 <= kept < rows(calm)
    kill_when(lambda: any(rough.glob("work/train-*/sft/checkpoint-*/**/*.safetensors")), begin(), log)
    assert not any(m.startswith("merge") for m in stages(rough)), "the merge must not have run yet"
    kill_when(lambda: sampled(rough), begin(), log)
    assert begin().wait(SECONDS) == 0, log.read_text()[-3000:]

    assert rows(rough) == rows(calm), "a completion was made twice or lost"
    few_shot = [m for m in metadata(rough) if m["stage"] == "few-shot"]
    assert sum(m["found"] for m in few_shot) >= kept
    assert sum(m["owed"] for m in few_shot) <= sum(m["asked"] for m in few_shot) - kept
    same, other = digests(calm), digests(rough)
    assert {stage_of(key) for key in same} == {stage_of(key) for key in other}
    assert sorted(same.values()) == sorted(other.values())
    assert not list(rough.glob("work/*")) and not list((rough / "artifacts").glob(".tmp-*"))


def stage_of(key: str) -> str:
    """A key without its version and inputs: the delay of the scripted engine is an input."""
    return re.sub(r"-\d+-[0-9a-f]{32}$", "", key)


def metadata(home: Path) -> list[dict]:
    store = Store(home / "artifacts")
    return [dict(store.manifest(ref).metadata) for ref in store.list()]


def stages(home: Path) -> list[str]:
    return [m["stage"] for m in metadata(home)]
