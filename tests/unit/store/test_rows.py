"""JSON Lines files."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.errors import DataError
from reasoner.process.owner import owner_tag
from reasoner.records import Completion, Outcome, Verdict
from reasoner.store.rows import dump_row, iter_rows, read_rows, write_rows

ANY_TEXT = st.text(st.characters(exclude_categories=()))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.dictionaries(ANY_TEXT, ANY_JSON, max_size=4), max_size=4))
def test_what_is_written_comes_back(folder: Path, rows: list[dict]) -> None:  # type: ignore[type-arg]
    path = folder / "rows.jsonl"
    assert write_rows(path, rows) == len(rows)
    assert read_rows(path) == rows
    assert path.read_bytes().count(b"\n") == len(rows)


def test_equal_rows_are_equal_bytes() -> None:
    assert dump_row({"b": 1, "a": {"d": 1, "c": 2}}) == dump_row({"a": {"c": 2, "d": 1}, "b": 1})
    assert dump_row({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()


def test_records_are_rows(tmp_path: Path) -> None:
    verdict = Verdict(Outcome.CORRECT, "equal", "7")
    completion = Completion("a", "stop", 1, 2, (3,), (-0.5,))
    write_rows(tmp_path / "x", [verdict, completion])
    one, two = read_rows(tmp_path / "x")
    assert Verdict.from_row(one) == verdict
    assert two["token_ids"] == [3]


def test_line_separators_inside_a_text_do_not_split_a_row(tmp_path: Path) -> None:
    row = {"text": "a\u2028b\u0085c\rd\ne\x00f\ud800"}
    write_rows(tmp_path / "x", [row, row])
    assert read_rows(tmp_path / "x") == [row, row]


@pytest.mark.parametrize(
    "bad", [{"x": float("nan")}, {"x": float("inf")}, {"x": object()}, {"x": {1, 2}}, [1], None]
)
def test_a_row_that_is_no_json_is_named_and_the_old_file_stays(tmp_path: Path, bad: object) -> None:
    path = tmp_path / "x.jsonl"
    write_rows(path, [{"old": 1}])
    with pytest.raises(DataError, match=r"x\.jsonl: row 2 cannot be written"):
        write_rows(path, [{"a": 1}, bad])  # type: ignore[list-item]
    assert read_rows(path) == [{"old": 1}]
    assert os.listdir(tmp_path) == ["x.jsonl"]


def test_a_generator_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    def rows():  # type: ignore[no-untyped-def]
        yield {"a": 1}
        raise KeyboardInterrupt

    write_rows(tmp_path / "x", [{"old": 1}])
    with pytest.raises(KeyboardInterrupt):
        write_rows(tmp_path / "x", rows())
    assert read_rows(tmp_path / "x") == [{"old": 1}] and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a":', "not valid JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "Infinity is not a JSON number"),
        (b"[1]", "a row is a JSON object, not list"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + line + b"\n")
    rows = iter_rows(path)
    assert next(rows) == {"a": 1}
    with pytest.raises(DataError, match=rf"data\.jsonl:3: .*{words}") as caught:
        next(rows)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: No such file"):
        read_rows(tmp_path / "none.jsonl")


def test_a_big_file_is_written_in_pieces_and_read_lazily(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert write_rows(path, ({"i": i, "text": "y" * 100} for i in range(30_000))) == 30_000
    assert path.stat().st_size > 3_000_000
    assert [row["i"] for row in iter_rows(path)] == list(range(30_000))


def test_what_a_killed_writer_left_beside_the_file_goes(tmp_path: Path) -> None:
    fields = owner_tag().split("-")
    fields[1] = "1"
    dead = tmp_path / f".x.tmp-{'-'.join(fields)}-00000000"
    living = tmp_path / f".x.tmp-{owner_tag()}-00000000"
    for path in (dead, living):
        path.write_text("torn")
    write_rows(tmp_path / "x", [{}])
    assert sorted(os.listdir(tmp_path)) == [living.name, "x"]
