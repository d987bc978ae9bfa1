"""Publishing an artifact, killed or refused at every write, flush and rename."""

import os
from pathlib import Path

import pytest

from reasoner.errors import ArtifactError, InfrastructureError
from reasoner.records import ArtifactRef
from reasoner.store import Store
from reasoner.store.manifest import MANIFEST
from reasoner.store.rows import read_rows, write_rows
from tests.crash.faults import KILLED, RAISED, run_cut, trace

pytestmark = pytest.mark.crash

ROWS = [{"i": i, "text": "x" * 50} for i in range(100)]


def publish(root: Path) -> ArtifactRef:
    store = Store(root)
    with store.writer("rows", {"n": len(ROWS)}) as draft:
        write_rows(draft.path / "rows.jsonl", ROWS)
        os.mkdir(draft.path / "deep")
        write_rows(draft.path / "deep" / "more.jsonl", ROWS[:3])
    return draft.ref


def content(folder: Path) -> dict[str, bytes]:
    """Every file of an artifact but the manifest, whose time differs."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, bytes]]:
    root = tmp_path_factory.mktemp("reference")
    ref = publish(root)
    return ref.digest, content(Store(root).open(ref))


def check_after(root: Path, reference: tuple[str, dict[str, bytes]]) -> None:
    """Only whole artifacts are listed; the same command again reaches the same bytes and leaves no litter."""
    for found in Store(root).list():
        Store(root).verify(found, full=True)
    ref = publish(root)
    assert (ref.digest, content(Store(root).open(ref, full=True))) == reference
    assert [path.name for path in root.rglob(".*tmp-*")] == []
    assert len(Store(root).list()) == 1


@pytest.mark.parametrize("mode", ["kill", "fail", "full"])
def test_at_every_call(tmp_path: Path, reference: tuple[str, dict[str, bytes]], mode: str) -> None:
    outcomes = []
    for at in range(1, 200):
        root = tmp_path / str(at)
        outcomes.append(run_cut(lambda root=root: publish(root), at, mode))  # type: ignore[misc]
        if mode == "full":
            assert list(root.rglob(".*tmp-*")) == []
        check_after(root, reference)
        if outcomes[-1] == 0:
            break
    assert len(outcomes) > (20 if mode != "full" else 6)
    assert set(outcomes[:6]) == {KILLED if mode == "kill" else RAISED}
    assert outcomes[-1] == 0


def test_replacing_a_damaged_one_keeps_it_whatever_happens(
    tmp_path: Path, reference: tuple[str, dict[str, bytes]]
) -> None:
    for at in range(1, 200):
        root = tmp_path / str(at)
        ref = publish(root)
        (root / "rows" / ref.digest / "rows.jsonl").write_text("damaged")
        outcome = run_cut(lambda root=root: publish(root), at)  # type: ignore[misc]
        try:
            Store(root).open(ref)
        except ArtifactError:
            assert outcome == KILLED
        again = publish(root)
        assert (again.digest, content(Store(root).open(again))) == reference
        kept = list((root / ".damaged").glob("*/rows.jsonl"))
        assert [path.read_text() for path in kept] == ["damaged"]
        assert [path.name for path in root.rglob(".*tmp-*")] == []
        if outcome == 0:
            break
    assert at > 20


def test_registering_a_folder_at_every_call(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"w" * 1000)
    os.utime(model / "weights", (1, 1))
    for at in range(1, 100):
        root = tmp_path / str(at)
        outcome = run_cut(lambda root=root: Store(root).register("base", model), at)  # type: ignore[misc]
        for found in Store(root).list():
            assert Store(root).open(found) == model
        assert Store(root).open(Store(root).register("base", model)) == model
        assert [path.name for path in root.rglob(".*tmp-*")] == []
        if outcome == 0:
            break
    assert at > 10


def test_rewriting_rows_at_every_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    seen = set()
    for at in range(1, 30):
        write_rows(path, [{"old": 1}])
        outcome = run_cut(lambda: write_rows(path, ROWS) and None, at)
        found = read_rows(path)
        assert found in ([{"old": 1}], ROWS)
        seen.add(len(found))
        if outcome == 0:
            break
    assert seen == {1, 100} and at > 3
    write_rows(path, [])
    assert os.listdir(tmp_path) == ["rows.jsonl"]


def test_everything_is_flushed_before_it_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut needs: files, the manifest, the folders, the rename, and its folder, in this order."""
    calls = trace(lambda: publish(tmp_path / "root") and None, monkeypatch)
    publishing = next(i for i, (name, path) in enumerate(calls) if name == "rename")
    draft = calls[publishing][1]
    flushed = [path for name, path in calls[:publishing] if name == "fsync"]
    for path in ("rows.jsonl", "deep/more.jsonl", MANIFEST, "deep", ""):
        assert str(Path(draft, path)) in flushed, path
    manifest = f"{draft}/{MANIFEST}"
    first_write = calls.index(("write", manifest))
    for path in ("rows.jsonl", "deep/more.jsonl"):
        assert calls.index(("fsync", f"{draft}/{path}")) < first_write
    assert flushed.index(manifest) < len(flushed) - 1 - flushed[::-1].index(draft)
    assert calls[publishing + 1] == ("fsync", str(tmp_path / "root" / "rows"))
    made = [path for name, path in calls if name == "mkdir" and not path.startswith(draft)]
    assert made == [str(tmp_path / "root"), str(tmp_path / "root" / "rows")]
    for path in made:
        assert ("fsync", str(Path(path).parent)) in calls[calls.index(("mkdir", path)) :]


def test_a_full_disk_is_told_in_words(tmp_path: Path) -> None:
    """A real full disk, as far as the kernel shows one: a limit on the size of a file."""
    import resource
    import signal

    store = Store(tmp_path / "root")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        words = r"cannot publish a thing artifact.*free some space"
        with pytest.raises(InfrastructureError, match=words), store.writer("thing") as draft:
            (draft.path / "small").write_text("x")
            resource.setrlimit(resource.RLIMIT_FSIZE, (20, old[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(store.folder.iterdir()) == []


def test_processes_that_publish_the_same_damaged_artifact_at_once(tmp_path: Path) -> None:
    for _ in range(5):
        ref = publish(tmp_path / "root")
        (tmp_path / "root" / "rows" / ref.digest / "rows.jsonl").write_text("damaged")
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    Store(tmp_path / "root").verify(publish(tmp_path / "root"))
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
        Store(tmp_path / "root").verify(ref, full=True)
        assert [path.name for path in (tmp_path / "root").glob(".tmp-*")] == []
