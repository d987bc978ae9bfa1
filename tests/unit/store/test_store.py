"""Publishing and opening artifacts in a folder."""

import hashlib
import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from reasoner.errors import ArtifactError, InfrastructureError, UsageError
from reasoner.records import ArtifactRef
from reasoner.store import Store, check, open_ref, verify_ref
from reasoner.store.manifest import MANIFEST


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


def publish(store: Store, files: dict[str, bytes], kind: str = "thing", **metadata: object) -> ArtifactRef:
    with store.writer(kind, metadata) as draft:
        for name, data in files.items():
            path = draft.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return draft.ref


def leftovers(store: Store) -> list[str]:
    return [path.name for path in store.folder.rglob(".*tmp-*")] if store.folder.is_dir() else []


def test_published_files_come_back(store: Store) -> None:
    files = {"a.txt": b"one", "deep/er/b.bin": bytes(range(256)), "empty": b""}
    ref = publish(store, files)
    folder = store.open(ref)
    assert folder == store.folder / "thing" / ref.digest
    assert ref.uri == str(folder)
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert found.pop(MANIFEST)
    assert found == files
    assert leftovers(store) == []


def test_the_digest_is_what_the_documentation_says(store: Store) -> None:
    files = {"b": b"22", "a/c": b"1", "ü": b""}
    entries = sorted([name, len(data), hashlib.sha256(data).hexdigest()] for name, data in files.items())
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    assert publish(store, files).digest == hashlib.sha256(text.encode()).hexdigest()


def test_the_digest_ignores_order_metadata_kind_and_place(store: Store, tmp_path: Path) -> None:
    one = publish(store, {"a": b"1", "b": b"2"}, note="first")
    two = publish(Store(tmp_path / "elsewhere"), {"b": b"2", "a": b"1"}, kind="other", note="second")
    assert one.digest == two.digest
    assert one.content_id != two.content_id


@pytest.mark.parametrize(
    "other", [{"a": b"1 "}, {"A": b"1"}, {"d/a": b"1"}, {"a": b"1", "b": b""}, {"a": b"2"}]
)
def test_the_digest_changes_with_any_content(store: Store, other: dict[str, bytes]) -> None:
    assert publish(store, {"a": b"1"}).digest != publish(store, other).digest


def test_metadata_can_grow_until_the_end(store: Store) -> None:
    with store.writer("thing", {"seeds": [1, 2]}) as draft:
        (draft.path / "x").write_text("x")
        draft.metadata["accuracy"] = {"value": 0.5, "n": 200, "loss": float("nan"), "at": Path("/a")}
    manifest = store.manifest(draft.ref)
    assert manifest.metadata == {
        "seeds": [1, 2],
        "accuracy": {"value": 0.5, "n": 200, "loss": "nan", "at": "/a"},
    }
    assert manifest.schema == 1 and manifest.kind == "thing" and manifest.size == 1
    assert manifest.created.endswith("+00:00")
    with pytest.raises(AttributeError):
        manifest.kind = "other"  # type: ignore[misc]


def test_metadata_that_is_no_data_is_refused_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(UsageError, match="metadata"), store.writer("thing", {"f": object()}):
        pass
    with pytest.raises(UsageError, match="metadata"), store.writer("thing") as draft:
        (draft.path / "x").write_text("x")
        draft.metadata["f"] = object()
    assert store.list() == [] and leftovers(store) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_nothing(store: Store, error: type[BaseException]) -> None:
    with pytest.raises(error), store.writer("thing") as draft:
        (draft.path / "x").write_text("x")
        raise error
    assert list(store.folder.iterdir()) == []
    with pytest.raises(UsageError, match=r"draft\.ref"):
        _ = draft.ref


def test_equal_content_is_stored_once_with_its_first_metadata(store: Store) -> None:
    one = publish(store, {"a": b"1"}, run=1)
    before = (store.open(one) / MANIFEST).read_bytes()
    assert publish(store, {"a": b"1"}, run=2) == one
    assert (store.open(one) / MANIFEST).read_bytes() == before
    assert store.list() == [one] and leftovers(store) == []


def damage_change(folder: Path) -> str:
    (folder / "a").write_bytes(b"2")
    return "was altered"


def damage_same_time(folder: Path) -> str:
    status = (folder / "a").stat()
    (folder / "a").write_bytes(b"2")
    os.utime(folder / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    return "was altered"


def damage_cut(folder: Path) -> str:
    (folder / "a").write_bytes(b"")
    return "has 0 bytes instead of 1"


def damage_remove(folder: Path) -> str:
    (folder / "a").unlink()
    return "is missing"


def damage_add(folder: Path) -> str:
    (folder / "sub" / "c").write_text("new")
    return "does not belong"


def damage_link(folder: Path) -> str:
    (folder / "a").unlink()
    (folder / "a").symlink_to("/etc/passwd")
    return "link or a special file"


def damage_manifest(folder: Path) -> str:
    (folder / MANIFEST).unlink()
    return "manifest.json is missing"


def damage_tear_manifest(folder: Path) -> str:
    data = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(data[: len(data) // 2])
    return "is not a manifest"


def damage_forge_manifest(folder: Path) -> str:
    (folder / "a").write_bytes(b"2")
    text = (folder / MANIFEST).read_text()
    old, new = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    assert old in text
    (folder / MANIFEST).write_text(text.replace(old, new))
    return "manifest.json was altered"


def damage_all(folder: Path) -> str:
    for name in ("a", "sub/b", MANIFEST):
        (folder / name).unlink()
    (folder / "sub").rmdir()
    folder.rmdir()
    return "is missing"


DAMAGE = [value for name, value in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_named_and_mended_by_the_same_command(store: Store, damage) -> None:  # type: ignore[no-untyped-def]
    files = {"a": b"1", "sub/b": b"2"}
    ref = publish(store, files)
    words = damage(store.folder / "thing" / ref.digest)
    for check_it in (store.open, store.verify, open_ref, verify_ref):
        with pytest.raises(ArtifactError) as caught:
            check_it(ref)
        message = str(caught.value)
        assert words in message and str(store.folder) in message, message
        assert "Run the same command again" in message and "\n" not in message
    assert publish(store, files) == ref
    assert (store.open(ref) / "a").read_bytes() == b"1"
    kept = list((store.folder / ".damaged").iterdir()) if damage is not damage_all else [Path()]
    assert len(kept) == 1
    assert store.list() == [ref]


def test_a_manifest_of_another_artifact_is_refused(store: Store) -> None:
    one, two = publish(store, {"a": b"1"}), publish(store, {"a": b"2"})
    for name in ("a", MANIFEST):
        data = (store.folder / "thing" / two.digest / name).read_bytes()
        (store.folder / "thing" / one.digest / name).write_bytes(data)
    with pytest.raises(ArtifactError, match="another artifact"):
        store.open(one)
    with pytest.raises(ArtifactError, match="another artifact"):
        store.manifest(one)


def test_a_manifest_cannot_reach_outside(store: Store, tmp_path: Path) -> None:
    ref = publish(store, {"a": b"1"})
    path = store.folder / "thing" / ref.digest / MANIFEST
    row = json.loads(path.read_text())
    row["files"][0]["path"] = "../../../secret"
    path.write_text(json.dumps(row))
    with pytest.raises(ArtifactError, match="outside its folder"):
        store.open(ref)


def test_a_newer_schema_says_so(store: Store) -> None:
    ref = publish(store, {"a": b"1"})
    path = store.folder / "thing" / ref.digest / MANIFEST
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(ArtifactError, match="has schema 2, this version reads 1"):
        store.open(ref)


def test_large_files_are_trusted_by_size_and_time_but_not_with_full(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = publish(store, {"weights": b"x" * 100, "small": b"y"})
    monkeypatch.setattr(check, "REHASH_LIMIT", 50)
    path = store.folder / "thing" / ref.digest / "weights"
    status = path.stat()
    path.write_bytes(b"z" * 100)
    with pytest.raises(ArtifactError, match="weights was altered"):
        store.open(ref)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    store.open(ref)
    with pytest.raises(ArtifactError, match="weights was altered"):
        store.open(ref, full=True)
    with pytest.raises(ArtifactError, match="weights was altered"):
        store.verify(ref, full=True)


def test_a_copied_store_is_intact_though_its_times_differ(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    ref = publish(store, {"weights": b"x" * 100})
    monkeypatch.setattr(check, "REHASH_LIMIT", 50)
    shutil.copytree(store.folder, tmp_path / "copy", copy_function=shutil.copyfile)
    copy = Store(tmp_path / "copy")
    assert copy.open(ref) == tmp_path / "copy" / "thing" / ref.digest
    assert open_ref(ref) == store.open(ref)


@pytest.mark.parametrize("kind", ["", "Thing", "../x", "a/b", ".damaged", "a b", "x" * 65])
def test_a_bad_kind_is_refused(store: Store, kind: str) -> None:
    with pytest.raises(UsageError, match="kind of artifact"), store.writer(kind):
        pass


def test_bad_references_are_refused(store: Store) -> None:
    ref = publish(store, {"a": b"1"})
    with pytest.raises(UsageError, match="64 hex digits"):
        store.open(ArtifactRef("thing", "../../etc", ""))
    for uri in ("", "x", "/a/b", f"{store.folder}/thing/{'0' * 64}"):
        with pytest.raises(ArtifactError):
            open_ref(ArtifactRef(ref.kind, ref.digest, uri))


def test_drafts_that_cannot_be_artifacts_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no files"), store.writer("thing") as draft:
        (draft.path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"manifest\.json of its own"), store.writer("thing") as draft:
        (draft.path / MANIFEST).write_text("{}")
    with pytest.raises(UsageError, match="link"), store.writer("thing") as draft:
        (draft.path / "a").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="link"), store.writer("thing") as draft:
        os.mkfifo(draft.path / "pipe")
    assert store.list() == [] and leftovers(store) == []


def test_list_tells_kinds_apart_and_passes_over_strangers(store: Store) -> None:
    refs = [publish(store, {"a": b"1"}, kind="one"), publish(store, {"a": b"1"}, kind="two")]
    (store.folder / "one" / "notes").mkdir()
    (store.folder / "one" / ("0" * 64)).mkdir()
    (store.folder / "file").write_text("x")
    assert store.list() == refs
    assert store.list("two") == refs[1:]
    assert store.list("three") == []
    assert Store(store.folder.parent / "nothing").list() == []


def test_list_while_folders_come_and_go(store: Store) -> None:
    """As they do where another process publishes and sweeps."""
    wanted = publish(store, {"a": b"1"})
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for name in (".tmp-1-2-3-4", f"{wanted.kind}/{'0' * 64}"):
                (store.folder / name / "a").mkdir(parents=True, exist_ok=True)
                shutil.rmtree(store.folder / name)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert all(store.list() == [wanted] for _ in range(1500))
    finally:
        done.set()
        thread.join()


def test_a_file_url_is_the_folder(store: Store) -> None:
    ref = publish(store, {"a": b"1"})
    same = Store(f"file://{store.folder}")
    assert same.open(ref) == store.open(ref)
    assert same.uri == store.uri and same.remote is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(InfrastructureError, match="cannot write to the store"),
        Store(tmp_path / "file" / "artifacts").writer("thing"),
    ):
        pass
    with pytest.raises(InfrastructureError, match="REASONER_STORE"), Store("/proc/artifacts").writer("thing"):
        pass


def test_many_threads_publish_the_same_content(store: Store) -> None:
    found: list[ArtifactRef] = []
    start = threading.Barrier(8)

    def work(n: int) -> None:
        start.wait()
        for i in range(5):
            found.append(publish(store, {"a": b"%d" % i, "b": b"x"}, writer=n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40 and len({ref.digest for ref in found}) == 5
    for ref in found:
        store.verify(ref, full=True)
    assert leftovers(store) == [] and not (store.folder / ".damaged").exists()


def test_importing_the_store_loads_no_file_systems() -> None:
    import subprocess
    import sys

    code = (
        "import sys, reasoner.store, reasoner.ledger; print('fsspec' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_reference_to_a_copied_store_is_found_in_the_copy(store: Store, tmp_path: Path) -> None:
    ref, other = publish(store, {"a": b"1"}), publish(store, {"a": b"2"})
    shutil.copytree(store.folder / "thing" / ref.digest, tmp_path / "copy" / "thing" / ref.digest)
    copy = Store(tmp_path / "copy")
    found = copy.here(ref)
    assert found.content_id == ref.content_id and open_ref(found).is_relative_to(tmp_path / "copy")
    assert copy.here(other) == other, "what was not copied is still named by its old address"
