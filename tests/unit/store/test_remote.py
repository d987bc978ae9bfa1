"""Stores at fsspec URLs: in memory, and with each machine's cache in a folder of its own."""

import uuid
from pathlib import Path

import fsspec
import pytest

from reasoner.errors import ArtifactError, InfrastructureError, UsageError
from reasoner.records import ArtifactRef
from reasoner.store import Store, open_ref, verify_ref
from reasoner.store.manifest import MANIFEST
from reasoner.store.remote import Remote


@pytest.fixture(params=["memory", "folder"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL that is no plain folder: in memory, or the local file system through fsspec."""
    monkeypatch.setenv("REASONER_CACHE", str(tmp_path / "default-cache"))
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/store"
    return f"local://{tmp_path}/bucket"


def machine(url: str, tmp_path: Path, name: str) -> Store:
    return Store(url, cache=tmp_path / name)


def publish(store: Store, files: dict[str, bytes], **metadata: object) -> ArtifactRef:
    with store.writer("thing", metadata) as draft:
        for name, data in files.items():
            (draft.path / name).parent.mkdir(parents=True, exist_ok=True)
            (draft.path / name).write_bytes(data)
    return draft.ref


def address(store: Store, ref: ArtifactRef, name: str) -> str:
    assert store.remote is not None
    return f"{store.remote.path}/{ref.kind}/{ref.digest}/{name}"


FILES = {"a": b"one", "deep/b": b"two" * 1000, "empty": b""}


def test_one_machine_publishes_and_another_opens(url: str, tmp_path: Path) -> None:
    one, two = machine(url, tmp_path, "one"), machine(url, tmp_path, "two")
    ref = publish(one, FILES, accuracy=0.5)
    assert ref.uri == f"{url}/thing/{ref.digest}"
    folder = two.open(ref)
    assert folder == tmp_path / "two" / "thing" / ref.digest
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert two.list() == [ref] == one.list("thing") and two.list("other") == []
    assert two.manifest(ref).metadata == {"accuracy": 0.5}
    assert (tmp_path / "default-cache") in open_ref(ref, full=True).parents
    assert verify_ref(ref).digest == ref.digest


def test_the_digest_is_that_of_a_local_store(url: str, tmp_path: Path) -> None:
    assert (
        publish(machine(url, tmp_path, "one"), FILES).digest == publish(Store(tmp_path / "x"), FILES).digest
    )


def test_without_its_manifest_an_artifact_is_not_there(url: str, tmp_path: Path) -> None:
    one = machine(url, tmp_path, "one")
    ref = publish(one, FILES)
    assert one.remote is not None
    one.remote.fs.rm_file(address(one, ref, MANIFEST))
    for store in (one, machine(url, tmp_path, "two")):
        with pytest.raises(ArtifactError, match=r"manifest\.json is missing.*Run the same command again"):
            store.open(ref)
        assert store.list() == []
    assert publish(machine(url, tmp_path, "three"), FILES) == ref
    assert one.open(ref)


def test_the_manifest_is_uploaded_last(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine(url, tmp_path, "one")
    assert one.remote is not None
    real, sent = one.remote.fs.put_file, []

    def failing(local: str, remote: str, **more: object) -> None:
        if len(sent) == 3:
            raise OSError("connection lost")
        sent.append(remote)
        real(local, remote, **more)

    monkeypatch.setattr(one.remote.fs, "put_file", failing)
    with pytest.raises(InfrastructureError, match=r"cannot upload thing/.*connection lost"):
        publish(one, FILES)
    assert len(sent) == 3 and not any(name.endswith(MANIFEST) for name in sent)
    assert one.list() == []
    monkeypatch.undo()
    monkeypatch.setenv("REASONER_CACHE", str(tmp_path / "default-cache"))
    ref = publish(one, FILES)
    assert machine(url, tmp_path, "two").verify(ref)


@pytest.mark.parametrize(
    ("data", "words"), [(None, "is missing"), (b"on", "has 2 bytes instead of 3"), (b"oNe", "was altered")]
)
def test_a_damaged_remote_artifact_is_found_and_replaced(
    url: str, tmp_path: Path, data: bytes | None, words: str
) -> None:
    one = machine(url, tmp_path, "one")
    ref = publish(one, FILES)
    assert one.remote is not None
    if data is None:
        one.remote.fs.rm_file(address(one, ref, "a"))
    else:
        one.remote.fs.pipe_file(address(one, ref, "a"), data)
    fresh = machine(url, tmp_path, "two")
    with pytest.raises(ArtifactError, match=words) as caught:
        fresh.open(ref)
    assert f"{url}/thing/{ref.digest}/a" in str(caught.value)
    assert not (tmp_path / "two" / "thing").exists()
    with pytest.raises(ArtifactError, match=words if data != b"oNe" else "is missing"):
        one.open(ref)
    assert publish(one, FILES) == ref
    assert machine(url, tmp_path, "three").open(ref, full=True)
    assert one.remote.fs.exists(f"{one.remote.path}/.damaged/thing-{ref.digest}/{MANIFEST}")


def test_full_finds_what_the_cache_hides(url: str, tmp_path: Path) -> None:
    one = machine(url, tmp_path, "one")
    ref = publish(one, FILES)
    assert one.remote is not None
    one.remote.fs.pipe_file(address(one, ref, "a"), b"oNe")
    one.open(ref)
    with pytest.raises(ArtifactError, match="was altered"):
        one.open(ref, full=True)


def test_a_damaged_copy_in_the_cache_is_fetched_again(url: str, tmp_path: Path) -> None:
    one = machine(url, tmp_path, "one")
    ref = publish(one, FILES)
    (one.open(ref) / "a").write_bytes(b"bad")
    assert (one.open(ref) / "a").read_bytes() == b"one"


def test_an_uploaded_pointer_is_good_where_the_folder_is(url: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"w")
    one, two = machine(url, tmp_path, "one"), machine(url, tmp_path, "two")
    ref = one.register("base", model)
    assert one.open(ref) == model and two.open(ref) == model
    moved = model.rename(tmp_path / "moved")
    with pytest.raises(ArtifactError, match="model is missing"):
        two.open(ref)
    assert two.register("base", moved) == ref
    assert two.open(ref) == moved


def test_bad_urls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="password"):
        Store("s3://user:secret@bucket/x", cache=tmp_path)
    with pytest.raises(UsageError, match="nosuch"):
        Store("nosuch://bucket", cache=tmp_path)


def test_trouble_with_the_service_is_no_missing_artifact(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine(url, tmp_path, "one")
    ref = publish(one, FILES)
    assert one.remote is not None

    def refuse(*args: object, **more: object) -> None:
        raise PermissionError("access denied")

    for name in ("cat_file", "find", "glob"):
        monkeypatch.setattr(one.remote.fs, name, refuse)
    for call in (lambda: one.open(ref), lambda: one.manifest(ref), lambda: one.list()):
        with pytest.raises(InfrastructureError, match="access denied"):
            call()


def test_any_fsspec_file_system_may_be_given() -> None:
    remote = Remote("memory://bucket/x/", fsspec.filesystem("memory"))
    assert remote.path == "/bucket/x" and remote.url == "memory://bucket/x"
