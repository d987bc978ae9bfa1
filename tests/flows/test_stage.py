"""The stage decorator on a real server: cached by content, re-made when the artifact is gone, once for two callers."""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL

from reasoner.config.smart import TrainConfig
from reasoner.records import ArtifactRef
from reasoner.store import Draft, open_ref
from tasks.context import bench, run_context
from tasks.stage import stage

pytestmark = pytest.mark.flows

calls: Counter[str] = Counter()
prompt = {"text": "first"}


@stage("test-source", kind="text", version=1, external=lambda a: prompt["text"])
def source(out: Draft, config: TrainConfig) -> None:
    calls["source"] += 1
    (out.path / "a.txt").write_text(prompt["text"] + str(config.lr))
    (bench().work / "left.txt").write_text("unfinished")


@stage("test-other", kind="text", version=1)
def other(out: Draft, number: int) -> None:
    calls["other"] += 1
    (out.path / "a.txt").write_text(str(number))


@stage("test-join", kind="text", version=1)
def join(out: Draft, parts: tuple[ArtifactRef, ...]) -> None:
    calls["join"] += 1
    (out.path / "a.txt").write_text(" ".join((open_ref(p) / "a.txt").read_text() for p in parts))
    out.metadata["parts"] = len(parts)


@flow
def pipeline(lr: float = 1e-3) -> ArtifactRef:
    with run_context("test"):
        return join((source(TrainConfig(lr=lr)), other(2)))


@pytest.fixture(autouse=True)
def fresh(home: Path) -> None:
    calls.clear()
    prompt["text"] = "first"


def test_the_same_run_again_computes_nothing() -> None:
    first, second = pipeline(), pipeline()
    assert first == second and calls == {"source": 1, "other": 1, "join": 1}
    assert (open_ref(first) / "a.txt").read_text() == "first0.001 2"


def test_a_changed_prompt_runs_its_stage_and_what_depends_on_it_and_nothing_else() -> None:
    first = pipeline()
    prompt["text"] = "second"
    assert pipeline() != first
    assert calls == {"source": 2, "other": 1, "join": 2}


def test_a_changed_setting_is_another_key() -> None:
    assert pipeline(1e-3) != pipeline(2e-3)
    assert calls == {"source": 2, "other": 1, "join": 2}


def test_a_changed_key_with_equal_content_stops_there() -> None:
    """`join` counts its inputs by digest: a source that is computed anew but comes out the same re-runs nothing."""
    first = pipeline()
    prompt["text"] = "other"
    assert pipeline() != first
    prompt["text"] = "first"
    assert pipeline() == first and calls["join"] == 2


def test_a_home_that_was_copied_elsewhere_computes_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pipeline()
    for part in ("artifacts", "results"):
        shutil.copytree(home / part, tmp_path / "elsewhere" / part)
    home.rename(tmp_path / "gone")
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "elsewhere"))
    found = pipeline()
    assert calls == {"source": 1, "other": 1, "join": 1}
    assert found.digest == first.digest and open_ref(found).is_relative_to(tmp_path / "elsewhere")


@pytest.mark.parametrize("damage", ["delete", "alter", "manifest"])
def test_a_deleted_or_altered_artifact_is_made_again(damage: str) -> None:
    first = pipeline()
    folder = open_ref(first)
    if damage == "delete":
        (folder / "a.txt").unlink()
    elif damage == "alter":
        (folder / "a.txt").write_text("forged")
    else:
        (folder / "manifest.json").unlink()
    assert pipeline() == first
    assert calls == {"source": 1, "other": 1, "join": 2}
    assert (open_ref(first) / "a.txt").read_text() == "first0.001 2"
    pipeline()
    assert calls["join"] == 2, "the artifact that was made again is cached again"


def test_a_failed_stage_is_not_cached_and_keeps_its_working_folder(home: Path) -> None:
    @stage("test-fails-once", kind="text", version=1)
    def fails_once(out: Draft) -> None:
        calls["fails"] += 1
        (bench().work / "checkpoint").write_text("half")
        if calls["fails"] == 1:
            raise ValueError("out of luck")
        (out.path / "a.txt").write_text("done")

    @flow
    def failing() -> ArtifactRef:
        with run_context("test"):
            return fails_once()

    with pytest.raises(ValueError, match="out of luck"):
        failing()
    assert [p.name for p in home.glob("work/*/*")] == ["checkpoint"]
    failing()
    assert calls["fails"] == 2 and not list(home.glob("work/*"))


def test_manifest_says_how_it_was_made(home: Path) -> None:
    from reasoner.store import verify_ref

    metadata = verify_ref(pipeline()).metadata
    assert metadata["stage"] == "test-join" and metadata["parts"] == 2 and metadata["seconds"] >= 0
    assert metadata["environment"]["packages"]["prefect"] and "revision" in metadata["environment"]
    assert len(metadata["arguments"]["parts"]) == 2


def test_each_stage_leaves_a_timeline_of_artifacts() -> None:
    pipeline()
    with get_client(sync_client=True) as client:
        keys = {artifact.key for artifact in client.read_artifacts()}
    assert {"test-source", "test-other", "test-join"} <= keys


def test_arguments_survive_the_way_to_another_process() -> None:
    first = source.bind(TrainConfig(lr=3e-4))
    again = source.decode(source.encode(first))
    assert again == first and source.key(again) == source.key(first)
    refs = join.bind((ArtifactRef("text", "ab", "file:///x"),))
    assert join.decode(join.encode(refs)) == refs


TWO_AT_ONCE = """
import sys, time
from pathlib import Path
from prefect import flow
from reasoner.store import Draft
from tasks.context import run_context
from tasks.stage import stage

@stage("test-slow", kind="text", version=1)
def slow(out: Draft) -> None:
    with open(sys.argv[1], "a") as log:
        log.write("computed\\n")
    time.sleep(3)
    (out.path / "a.txt").write_text("slow")

@flow
def run():
    with run_context("test"):
        return slow()

run()
"""


def slow_run(log: Path) -> subprocess.Popen[bytes]:
    """A process of its own that runs the flow on this test session's server."""
    environment = {**os.environ, "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    return subprocess.Popen([sys.executable, "-c", TWO_AT_ONCE, str(log)], env=environment)


def test_two_processes_with_one_key_compute_once(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [slow_run(log) for _ in range(2)]
    assert [p.wait(120) for p in both] == [0, 0]
    assert log.read_text() == "computed\n"


def test_a_killed_holder_frees_its_key(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = slow_run(log)
    deadline = time.monotonic() + 60
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    first.kill()
    first.wait()
    assert slow_run(log).wait(120) == 0
    assert log.read_text() == "computed\ncomputed\n"
