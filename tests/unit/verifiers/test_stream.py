"""Verdicts on files.

Wrong if an output row loses a column or its place, if a bad row passes in silence, hides the rows before it,
or gets an error without file and line, or if everything is read before anything is written.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.errors import DataError
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.stream import _math_item, _Reader, verify_file, verify_lines, write_verdicts

MATH = [
    {"id": 7, "gold": "1/2", "prediction": r"\boxed{0.5}"},
    {"gold": "3", "prediction": "The answer is 4.", "note": "größer"},
    {"gold": "", "prediction": "5"},
    {"gold": 5, "prediction": None},
]


def lines(rows: list[dict[str, object]]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


def test_math_rows_keep_their_columns_and_their_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(lines(MATH)) + "\n\n", encoding="utf-8")
    out = io.StringIO()
    counts = write_verdicts(verify_file("math", path, workers=1), out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [{k: row[k] for k in given} for row, given in zip(rows, MATH, strict=True)] == MATH
    assert [(r["outcome"], r["reason"], r["extracted"]) for r in rows] == [
        ("correct", "number", "0.5"),
        ("incorrect", "number", "4"),
        ("unscored", "gold_unreadable", None),
        ("incorrect", "unparsed", None),
    ]
    assert all(row["seconds"] >= 0 for row in rows)
    assert counts == {"correct": 1, "incorrect": 2, "unscored": 1}
    assert "größer" in out.getvalue()


BAD = [
    ("{not json", "Expecting property name"),
    ("[1, 2]", "holds a list, not an object"),
    ('{"gold": "1"}', "no `prediction`"),
    ('{"prediction": "1"}', "no `gold`"),
    ('{"gold": ["1"], "prediction": "1"}', "`gold` must be text, not list"),
    ('{"gold": true, "prediction": "1"}', "`gold` must be text, not bool"),
    ("[" * 100_000, "in.jsonl:2: "),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_bad_math_row_is_named_and_hides_none_before_it(bad: str, message: str) -> None:
    reader = _Reader([*lines(MATH[:1]), bad + "\n", *lines(MATH[1:2])], "in.jsonl", _math_item)
    assert list(reader) == [MathItem("1/2", r"\boxed{0.5}")]
    with pytest.raises(DataError) as caught:
        reader.raise_error()
    assert str(caught.value).startswith("in.jsonl:2: ") and message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_verdicts_before_a_bad_row_come_first() -> None:
    found = verify_lines("math", [*lines(MATH[:1]), "{\n", *lines(MATH[1:2])], source="in.jsonl", workers=1)
    assert next(found)["outcome"] == "correct"
    with pytest.raises(DataError, match=r"in\.jsonl:2: "):
        next(found)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        list(verify_file("math", tmp_path / "none.jsonl"))
    path = tmp_path / "binary.jsonl"
    path.write_bytes(b'{"gold": "1", "prediction": "1"}\n\xff\xfe\n')
    with pytest.raises(DataError, match=r"binary\.jsonl:2: not UTF-8"):
        list(verify_file("math", path, workers=1))


def test_verdicts_are_written_while_the_input_still_comes() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield lines(MATH[:1])[0]

    found = verify_lines("math", endless(), workers=1)
    assert [next(found)["outcome"] for _ in range(5)] == ["correct"] * 5
    assert read < 5000
    found.close()  # type: ignore[attr-defined]


CODE = [
    {"task": 1, "program": "def add(a, b):\n    return a + b", "tests": ["assert add(1, 2) == 3"]},
    {"program": "def add(a, b):\n    return a - b", "tests": ["assert add(1, 2) == 3"]},
    {"program": "def add(a, b:", "tests": ["assert add(1, 2) == 3"]},
    {"program": "x = 1", "tests": ["assert add(1, 2) == 3"], "setup": "def add(a, b):\n    return a + b"},
]


@pytest.mark.sandbox
@pytest.mark.usefixtures("sandbox")
def test_code_rows() -> None:
    rows = list(verify_lines("code", lines(CODE), workers=2))
    assert [{k: row[k] for k in given} for row, given in zip(rows, CODE, strict=True)] == CODE
    assert [row["outcome"] for row in rows] == ["correct", "incorrect", "incorrect", "correct"]
    assert {"reason", "extracted", "seconds"} <= set(rows[0])
    found = verify_lines(
        "code", [*lines(CODE[:1]), '{"program": "x", "tests": []}\n'], source="c.jsonl", workers=1
    )
    assert next(found)["outcome"] == "correct"
    with pytest.raises(DataError, match=r"c\.jsonl:2: `tests` must be a list of Python statements"):
        next(found)
