"""What Prefect shows of a run, beside what the run's own journal says."""

import time
from collections import Counter
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import TaskRun

from reasoner.lineage import journal

SECONDS = 120
"""The server learns of task runs a little after they ended."""


def check_edges(home: Path) -> int:
    """Compare the newest run's edges on the server with the references in its journal; returns how many there are.

    Wrong if an edge is missing, or if one leads from a stage that did not make what the other took.
    """
    folder = max((home / "runs").iterdir(), key=lambda f: (f / journal.FILE).stat().st_mtime)
    rows = [row.call for row in journal.every_row(folder) if row.call.ref]
    made: dict[str, set[str]] = {}  # equal content may have been made by several
    for call in rows:
        assert call.ref is not None
        made.setdefault(call.ref.digest, set()).add(call.label)
    taken = {(call.label, ref.digest) for call in rows for ref in call.refs()}
    allowed = {(label, maker) for label, digest in taken for maker in made[digest]}
    deadline = time.monotonic() + SECONDS
    while True:
        found = _edges(folder.name[-36:])
        missing = {(one, digest) for one, digest in taken if not any((one, m) in found for m in made[digest])}
        if (not missing and found <= allowed) or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert not missing and not found - allowed, f"missing {missing}, wrong {found - allowed}"
    return len(found)


def _edges(run_id: str) -> set[tuple[str, str]]:
    """(label of a task run, label of one that it took something from), for all task runs of a flow run."""
    runs = _task_runs(run_id)
    names = {run.id: run.name for run in runs}
    given = [(run.name, one.id) for run in runs for inputs in run.task_inputs.values() for one in inputs
             if hasattr(one, "id")]  # fmt: skip
    return {(name, names.get(maker, "?")) for name, maker in given}


def _task_runs(run_id: str) -> list[TaskRun]:
    with get_client(sync_client=True) as client:
        return client.read_task_runs(
            flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run_id]}}),
            task_run_filter=TaskRunFilter(),
            limit=200,
        )


def states(home: Path) -> Counter[str]:
    """How often each state is among the task runs of the newest flow run, as the server knows them."""
    folder = max((home / "runs").iterdir(), key=lambda f: (f / journal.FILE).stat().st_mtime)
    return Counter(run.state_name or "" for run in _task_runs(folder.name[-36:]))


def timeline(key: str) -> list[str]:
    """Descriptions of all versions of the Prefect artifact `key`, in their order."""
    from prefect.client.schemas.filters import ArtifactFilter

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter.model_validate({"key": {"any_": [key]}}))
    return [str(artifact.description) for artifact in sorted(found, key=lambda a: a.created)]
