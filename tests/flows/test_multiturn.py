"""The multi-turn flow on a real server: every method through all stages, only what changed is made again, kills are
healed. Whether a toy task is learnt is measured by benchmarks/multiturn_toy.py.
"""

import json
import os
import signal as signals
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.multiturn import multiturn
from reasoner.engines import pool
from reasoner.engines.start import open_engine
from reasoner.lineage import journal
from reasoner.records import ArtifactRef
from reasoner.store import Store, open_ref
from reasoner.store.rows import read_rows
from tests.support import signal
from tests.support.commands import start
from tests.support.graph import check_edges
from tests.support.problems import FIXTURES
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return signal.make_ready(tmp_path_factory.mktemp("ready") / "base")


def words(room: Path, base: Path, task: str, **fields: Any) -> list[str]:
    given = signal.settings(room, base, task, **fields)
    given["engine"] = {"options": {"batch_size": 64, "max_model_len": 128}}
    return [
        "engine=transformers",
        "problems=math",
        *signal.overrides(given),
        "~engine.options.gpu_memory_utilization",
    ]


def facts(ref: ArtifactRef) -> dict[str, Any]:
    return json.loads((open_ref(ref) / "report.json").read_text())


def stages_run(home: Path) -> Counter[str]:
    store = Store(home / "artifacts")
    return Counter(store.manifest(ref).metadata["stage"] for ref in store.list())


@pytest.mark.long
def test_the_whole_flow_with_its_controls_and_only_what_changed_again(
    home: Path, ready: Path, tmp_path: Path
) -> None:
    given = words(tmp_path, ready, "hint", iterations=3)
    first = multiturn("mlmt-math", given)
    assert check_edges(home) > 20
    found = facts(first)
    before, after = (row["two_turns"] for row in found["rows"])
    assert before["n"] == after["n"] == 12 and before["acc_t2"]["k"] <= 6
    assert after["delta"] * 12 == pytest.approx(after["i_to_c"] - after["c_to_i"])
    assert set(found["controls"]) == {"empty", "shuffled", "frozen"} and found["independent"]["n"] == 12
    assert all(control["two_turns"]["n"] == 12 for control in found["controls"].values())
    text = (open_ref(first) / "report.md").read_text()
    assert "full-grad" in text and "`shuffled`" in text and "two independent first attempts" in text
    # Of the journal: answers that are equal to the letter are one artifact, whoever gave them.
    (folder,) = (home / "runs").iterdir()
    called = [row.call.name for row in journal.read(folder)]
    assert sorted(name for name in called if "control" in name) == [
        f"multiturn-control {name}" for name in ("empty", "frozen", "independent", "shuffled")
    ]

    made = stages_run(home)
    assert multiturn("mlmt-math", given) == first and stages_run(home) == made
    before_it = set((home / "runs").iterdir())
    other = multiturn("mlmt-math", [*given, "value_coef=0.0"])
    assert other != first
    (folder,) = set((home / "runs").iterdir()) - before_it
    states = {row.call.name: row.state for row in journal.read(folder)}
    assert states["multiturn-train mlmt"] == states["multiturn-evaluate trained"] == journal.MADE
    assert states["multiturn-evaluate baseline"] == journal.CACHED, "the baseline is the same"


@pytest.mark.parametrize(
    ("method", "name", "task", "fields"),
    [
        ("rl_guided", "rl-guided-score-math", "hint", {"stage1_steps": 1, "stage2_steps": 2}),
        ("archer", "archer-math", "direct",
         {"iterations": 3, "epochs": 2, "actor_epochs": 1, "warmup_iter": 1, "critic_lm": "base"}),
    ],
)  # fmt: skip
def test_the_other_methods_through_the_whole_flow(
    home: Path, ready: Path, tmp_path: Path, method: str, name: str, task: str, fields: dict[str, Any]
) -> None:
    found = facts(multiturn(name, words(tmp_path, ready, task, method=method, **fields)))
    before, after = (row["two_turns"] for row in found["rows"])
    assert before["n"] == after["n"] == 12 and after["unscored"] == 0
    assert ("frozen" in found["controls"]) == (method == "rl_guided")


def test_code_runs_through_the_flow_with_a_tiny_model(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(pool, "open_engine", lambda *a, **k: started.append(a) or open_engine(*a, **k))
    model = make_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2048}))
    found = facts(
        multiturn(
            "score-code",
            [
                "problems=mbpp", f"problems.train.path={FIXTURES / 'mbpp_filtered.csv'}", "problems.test_size=4",
                "problems.validation_size=4", f"policy_lm={model}", "engine=transformers",
                "~engine.options.gpu_memory_utilization", "engine.options.max_model_len=2048", "rollout_size=4",
                "group_size=2", "max_tokens=6", "stage1_steps=1", "stage2_steps=1", "verify.workers=2",
            ],
        )
    )  # fmt: skip
    assert found["rows"][1]["two_turns"]["n"] == 4 and found["rows"][1]["two_turns"]["unscored"] == 0
    assert "refinement_hack_suspects" in found["rows"][1]["signals"]
    assert set(found["controls"]) == {"empty"}, "SCoRe has no writer whose feedback could be shuffled"
    assert len(started) == 1, "baseline, evaluation and controls share one start of the engine"
    (times,) = home.glob("runs/*/logs/times-*.jsonl")
    rows = read_rows(times)
    assert [row["step"] for row in rows] == [1, 2] and all(row["wall"] >= row["rollout"] > 0 for row in rows)


def digests(home: Path) -> dict[str, str]:
    store = Store(home / "artifacts")
    return {store.manifest(ref).metadata["key"]: ref.digest for ref in store.list()}


def kept(home: Path) -> int:
    """Completions in the ledger, by whole lines."""
    return sum(path.read_bytes().count(b'"completion"') for path in home.glob("ledger/*/*.jsonl"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "name", "task", "fields"),
    [
        ("mlmt", "mlmt-math", "hint", {"iterations": 10}),
        ("rl_guided", "rl-guided-score-math", "hint", {"stage1_steps": 4, "stage2_steps": 6}),
        ("score", "score-math", "again", {"stage1_steps": 4, "stage2_steps": 6}),
        ("archer", "archer-math", "direct",
         {"iterations": 10, "epochs": 2, "actor_epochs": 1, "warmup_iter": 1, "critic_lm": "base"}),
    ],
)  # fmt: skip
def test_killed_in_the_middle_of_training_and_of_evaluation_it_ends_as_if_nothing_had_happened(
    ready: Path, tmp_path: Path, method: str, name: str, task: str, fields: dict[str, Any]
) -> None:
    given = words(tmp_path, ready, task, method=method, save_freq=2, eval_freq=4, **fields)
    command = ["run", name, *given]
    calm, rough, log = tmp_path / "calm", tmp_path / "rough", tmp_path / "rough.log"
    assert start(calm, *command, log=tmp_path / "calm.log").wait(900) == 0, (
        tmp_path / "calm.log"
    ).read_text()[-3000:]

    def kill_when(ready: Callable[[], bool]) -> None:
        process = start(rough, *command, log=log)
        deadline = time.monotonic() + 900
        while not ready():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.02)
        os.killpg(process.pid, signals.SIGKILL)
        process.wait()

    kill_when(lambda: any(rough.glob("work/multiturn-train-*/multiturn/checkpoint-4/complete.json")))
    assert not any(key.startswith("multiturn-train") for key in digests(rough)) and kept(rough) == 0
    kill_when(lambda: kept(rough) >= 12)
    assert 12 <= kept(rough) < kept(calm) and "multiturn-control" not in stages_run(rough)
    assert start(rough, *command, log=log).wait(900) == 0, log.read_text()[-3000:]
    training = next(m for m in map(dict, (Store(rough / "artifacts").manifest(r).metadata for r in
                    Store(rough / "artifacts").list())) if m["stage"] == "multiturn-train")  # fmt: skip
    assert training["metrics"]["resumed_from_step"] >= 4
    assert digests(rough) == digests(calm) and kept(rough) == kept(calm)
