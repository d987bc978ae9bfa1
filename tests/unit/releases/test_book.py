"""releases.json and the nights: nothing is lost, nothing is overwritten unasked, mistakes are told in a line."""

import dataclasses
import json
import multiprocessing
from pathlib import Path

import pytest

from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.records import ArtifactRef
from reasoner.releases.book import Book
from reasoner.releases.history import History
from reasoner.releases.night import changed, judge
from reasoner.releases.release import Release, ReleasedSet, check_name
from reasoner.releases.trend import bars, page, trend

PROBLEMS = {"kind": "problems", "digest": "d" * 64, "uri": "/s/problems/" + "d" * 64}


def ref(kind: str, letter: str) -> ArtifactRef:
    return ArtifactRef(kind, letter * 64, f"/s/{kind}/{letter * 64}")


def release(name: str = "first", model: str = "a") -> Release:
    one = ReleasedSet(
        "held-out", ref("evaluation", "b"), ref("attempts", "c"), "answer",
        {"problems": PROBLEMS, "split": "eval-held-out"}, {"timeout": 5.0},
    )  # fmt: skip
    return Release(
        name, "smart", ref("model", model), "owner/base", "e" * 64, None, "smart-demo-1", "2026-11-28T03:00:00", (one,)
    )  # fmt: skip


def add_one(path: str, name: str) -> None:
    Book(Home(Path(path))).add(release(name))


def test_a_release_comes_back_as_it_was_written(tmp_path: Path) -> None:
    book = Book(Home(tmp_path))
    assert book.list() == []
    book.add(release("second"))
    book.add(release("first"))
    assert [r.name for r in book.list()] == ["first", "second"] and book.get("first") == release()
    assert {r.digest[0] for r in release().refs} == {"a", "b", "c", "d"}
    assert book.remove("first") == release() and [r.name for r in book.list()] == ["second"]


def test_a_taken_name_is_refused_without_replace(tmp_path: Path) -> None:
    book = Book(Home(tmp_path))
    book.add(release())
    before = book.path.read_bytes()
    with pytest.raises(
        UsageError, match=r"'first' is there already \(run smart-demo-1, 2026-11-28\).*--replace"
    ):
        book.add(release(model="f"))
    assert book.path.read_bytes() == before
    book.add(release(model="f"), replace=True)
    assert book.get("first").model.digest == "f" * 64


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    book = Book(Home(tmp_path))
    with pytest.raises(UsageError, match=r"no release 'frist'.*none"):
        book.get("frist")
    book.add(release())
    with pytest.raises(UsageError, match="Did you mean 'first'"):
        book.remove("frist")
    for bad in ("First", "a_b", "-a", "a--b", "", "a" * 61, "a/b", "a\n"):
        with pytest.raises(UsageError, match="can't name a release"):
            check_name(bad)
    book.path.write_text('{"schema": 9}')
    with pytest.raises(DataError, match="schema 9"):
        book.list()
    with pytest.raises(DataError):
        book.add(release("another"))
    assert book.path.read_text() == '{"schema": 9}', "a file that can't be read is not written over"


def test_what_several_processes_add_at_once_is_all_there(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    names = [f"r{i}" for i in range(8)]
    children = [context.Process(target=add_one, args=(str(tmp_path), name)) for name in names]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [r.name for r in Book(Home(tmp_path)).list()] == names
    assert [p.name for p in tmp_path.glob("*.json")] == ["releases.json"]


def test_a_publication_is_written_to_the_model_that_was_published(tmp_path: Path) -> None:
    book = Book(Home(tmp_path))
    book.add(release())
    book.published("first", "f" * 64, "me/x", "1234")
    assert book.get("first").hub_repo is None
    book.published("first", "a" * 64, "me/x", "1234")
    assert book.get("first") == dataclasses.replace(release(), hub_repo="me/x", hub_revision="1234")


def night(name: str, lost: int, model: str = "a"):
    before = {str(i): True for i in range(20)}
    now = {str(i): i >= lost for i in range(20)}
    return judge("first", name, model * 64, {"held-out": (before, now)}, 0.01)


def test_a_night_again_takes_the_place_of_itself_and_another_model_has_its_own(tmp_path: Path) -> None:
    history = History(Home(tmp_path), "first")
    for each in (
        night("2026-11-02", 1),
        night("2026-11-01", 0),
        night("2026-11-02", 9),
        night("2026-11-02", 2, "b"),
    ):
        history.add(each)
    found = history.read("a" * 64)
    assert [n.night for n in found] == ["2026-11-01", "2026-11-02"] and found[1] == night("2026-11-02", 9)
    assert found[1].worse == ("held-out",) and found[0].worse == () and len(history.read()) == 3
    history.path.write_text("{}\n")
    with pytest.raises(DataError, match="no night"):
        history.read()


def test_the_trend_shows_every_night_and_where_it_fell() -> None:
    nights = [night("2026-11-01", 0), night("2026-11-02", 2), night("2026-11-03", 9)]
    text = trend(release(), nights)
    assert "`██▆▁`" in text and "from 100.0% at release (first bar) to 55.0%" in text
    rows = [line for line in text.splitlines() if line.startswith("| 2026")]
    assert [row.split("|")[1].strip() for row in rows] == ["2026-11-03", "2026-11-02", "2026-11-01"]
    assert "WORSE" in rows[0] and "WORSE" not in rows[1]
    assert "No night yet" in trend(release(), []) and bars([0.5, 0.5]) == "▅▅"
    told = page("2026-11-03", nights[-1:], ["other: no such | model"])
    assert "significantly worse" in told and "other: no such \\| model" in told


def test_what_changed_around_a_model_is_told() -> None:
    old = {"packages": {"vllm": "0.31.0", "trl": "1"}, "python": "3.11.1", "machine": "x86_64"}
    new = {"packages": {"vllm": "0.32.0", "trl": "1"}, "python": "3.11.1", "machine": "x86_64"}
    assert changed(old, new) == ("vllm 0.31.0 then, 0.32.0 now",) and changed(new, new) == ()


def test_the_file_is_plain_to_read(tmp_path: Path) -> None:
    book = Book(Home(tmp_path))
    book.add(release())
    (row,) = json.loads(book.path.read_text())["releases"]
    assert row["model"]["digest"] == "a" * 64 and row["sets"][0]["evaluation"]["digest"] == "b" * 64
    assert (
        row["base"] == "owner/base"
        and row["hub_revision"] is None
        and row["date"]
        and row["run"] == "smart-demo-1"
    )
