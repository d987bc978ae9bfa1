"""Artifacts that point at a folder outside the store."""

import json
import os
from pathlib import Path

import pytest

from reasoner.errors import ArtifactError, UsageError
from reasoner.store import Store, check, hashes, open_ref
from reasoner.store.manifest import MANIFEST, POINTER


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


def make_model(folder: Path, weights: bytes = b"w" * 100) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def age(folder: Path, seconds: int = 100) -> None:
    for path in folder.rglob("*"):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


def test_a_registered_folder_opens_where_it_lies(store: Store, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    ref = store.register("base", model, {"revision": "abc"})
    assert store.open(ref) == model == open_ref(ref)
    stored = store.folder / "base" / ref.digest
    assert sorted(os.listdir(stored)) == [MANIFEST, POINTER]
    row = json.loads((stored / POINTER).read_text())
    assert row["folder"] == str(model)
    assert [entry["path"] for entry in row["files"]] == ["config.json", "model.safetensors"]
    assert store.manifest(ref).metadata == {"revision": "abc"} and store.manifest(ref).outside
    assert store.list("base") == [ref]


def test_the_digest_is_of_the_files_and_that_of_an_ordinary_artifact(store: Store, tmp_path: Path) -> None:
    one = store.register("base", make_model(tmp_path / "one"))
    two = Store(tmp_path / "other").register("base", make_model(tmp_path / "two"))
    assert one.digest == two.digest
    with store.writer("copy") as draft:
        make_model(draft.path / "x")
        for path in (draft.path / "x").iterdir():
            path.rename(draft.path / path.name)
        (draft.path / "x").rmdir()
    assert draft.ref.digest == one.digest
    assert store.register("base", make_model(tmp_path / "three", b"v" * 100)).digest != one.digest


def test_links_are_followed_and_hidden_files_left_out(store: Store, tmp_path: Path) -> None:
    plain = store.register("base", make_model(tmp_path / "plain"))
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in (tmp_path / "plain").iterdir():
        (linked / path.name).symlink_to(path)
    (linked / ".cache").mkdir()
    (linked / ".cache" / "lock").write_text("x")
    (linked / ".gitattributes").write_text("x")
    ref = store.register("base", linked)
    assert ref == plain
    assert store.open(ref) == linked


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: (m / "config.json").unlink(), "config.json is missing"),
        (lambda m: (m / "config.json").write_text("{ }"), "config.json has 3 bytes instead of 2"),
        (lambda m: (m / "config.json").write_text("[]"), "config.json was altered"),
        (lambda m: (m / "adapter.json").write_text("{}"), "adapter.json does not belong"),
        (lambda m: m.rename(m.with_name("moved")), "model is missing"),
    ],
)
def test_a_changed_folder_is_refused(store: Store, tmp_path: Path, change, words: str) -> None:  # type: ignore[no-untyped-def]
    model = make_model(tmp_path / "model")
    ref = store.register("base", model)
    age(model)
    store.open(ref)
    change(model)
    with pytest.raises(ArtifactError, match="register it anew") as caught:
        store.open(ref)
    assert words in str(caught.value) and str(model) in str(caught.value)


def test_touching_a_file_is_no_change_and_full_sees_what_times_hide(store: Store, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    ref = store.register("base", model)
    os.utime(model / "config.json")
    store.open(ref)
    weights = model / "model.safetensors"
    status = weights.stat()
    weights.write_bytes(b"v" * 100)
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    store.open(ref)
    with pytest.raises(ArtifactError, match=r"model\.safetensors was altered"):
        store.open(ref, full=True)


def test_the_newest_place_counts(store: Store, tmp_path: Path) -> None:
    one, two = make_model(tmp_path / "one"), make_model(tmp_path / "two")
    ref = store.register("base", one)
    assert store.register("base", two) == ref
    assert store.open(ref) == two
    assert store.register("base", one) == ref
    assert store.open(ref) == one


def test_a_damaged_pointer_is_mended_by_registering_again(store: Store, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    ref = store.register("base", model)
    path = store.folder / "base" / ref.digest / POINTER
    for text in ("", "{}", path.read_text().replace('"size": 2', '"size": 3')):
        path.write_text(text)
        with pytest.raises(ArtifactError, match=POINTER):
            store.open(ref)
        assert store.register("base", model) == ref
        assert store.open(ref) == model
    path.unlink()
    with pytest.raises(ArtifactError, match=POINTER):
        store.open(ref)


def test_an_artifact_with_a_file_of_that_name_is_no_pointer(store: Store) -> None:
    with store.writer("thing") as draft:
        (draft.path / POINTER).write_text('{"folder": "/etc"}')
    assert store.open(draft.ref) == store.folder / "thing" / draft.ref.digest


def test_folders_that_cannot_be_registered(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no files"):
        store.register("base", tmp_path / "empty")
    with pytest.raises(UsageError, match="none: No such file"):
        store.register("base", tmp_path / "none")
    (tmp_path / "empty" / "dangling").symlink_to("nowhere")
    with pytest.raises(UsageError, match="dangling"):
        store.register("base", tmp_path / "empty")


def count_hashing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    hashed: list[str] = []

    def counting(path: Path) -> str:
        hashed.append(path.name)
        return real(path)

    real = hashes.file_hash
    monkeypatch.setattr(hashes, "file_hash", counting)
    monkeypatch.setattr(check, "file_hash", counting)
    return hashed


def test_hashes_are_remembered_across_processes_and_forgotten_with_a_change(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "model")
    age(model)
    hashed = count_hashing(monkeypatch)
    ref = store.register("base", model)
    assert sorted(hashed) == ["config.json", "model.safetensors"]
    again = Store(store.folder)
    assert again.register("base", model) == ref and again.open(ref) == model
    assert len(hashed) == 2
    (model / "config.json").write_text("[]")
    assert Store(store.folder).register("base", model) != ref
    assert len(hashed) == 3


def test_a_file_changed_just_now_is_not_remembered(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "model")
    ref = store.register("base", model)
    status = (model / "config.json").stat()
    (model / "config.json").write_text("[]")
    os.utime(model / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert Store(store.folder).register("base", model) != ref


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', "\xff"])
def test_a_damaged_cache_costs_time_only(store: Store, tmp_path: Path, text: str) -> None:
    model = make_model(tmp_path / "model")
    age(model)
    ref = store.register("base", model)
    (store.folder / ".hashes.json").write_text(text, encoding="latin-1")
    assert Store(store.folder).register("base", model) == ref
