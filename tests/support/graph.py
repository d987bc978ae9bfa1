"""What Prefect shows of a run, beside what the run's own journal says."""

import time
from collections import Counter
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter

from reasoner.lineage import journal

SECONDS = 120
"""The server learns of task runs a little after they ended."""


def check_edges(home: Path) -> int:
    """Compare the newest run's edges on the server with the references in its journal; returns how many there are.

    Wrong if an edge is missing, or if one leads from a stage that did not make what the other took.
    """
    folder = max((home / "runs").iterdir(), key=lambda f: (f / journal.FILE).stat().st_mtime)
    rows = journal.read(folder)
    made = {row.call.ref.digest: row.call.label for row in rows if row.call.ref}
    wanted = Counter((row.call.label, made[ref.digest]) for row in rows for ref in set(row.call.refs()))
    deadline = time.monotonic() + SECONDS
    while (found := _edges(folder.name[-36:])) != wanted and time.monotonic() < deadline:
        time.sleep(1)
    assert found == wanted, f"missing {wanted - found}, wrong {found - wanted}"
    return sum(found.values())


def _edges(run_id: str) -> Counter[tuple[str, str]]:
    """(label of a task run, label of one that it took something from), for all task runs of a flow run."""
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(
            flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run_id]}}),
            task_run_filter=TaskRunFilter(),
            limit=200,
        )
    names = {run.id: run.name for run in runs}
    pairs = {
        (run.id, given.id) for run in runs for inputs in run.task_inputs.values() for given in inputs if hasattr(given, "id")
    }
    return Counter((names[one], names[other]) for one, other in pairs)


def timeline(key: str) -> list[str]:
    """Descriptions of all versions of the Prefect artifact `key`, in their order."""
    from prefect.client.schemas.filters import ArtifactFilter

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter.model_validate({"key": {"any_": [key]}}))
    return [str(artifact.description) for artifact in sorted(found, key=lambda a: a.created)]
