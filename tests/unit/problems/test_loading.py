"""What becomes of every row of a data set, and the errors of data sets that can't be used."""

import json
from pathlib import Path

import pytest

from reasoner.config.data import SourceConfig
from reasoner.errors import DataError
from reasoner.ids import file_hash
from reasoner.problems import load_problems, merge

ROWS = [
    {"question": "How many eggs are 2 and 3?", "answer": "5", "grade": 1},
    {"question": "How many pens are 4 and 4?", "answer": "8 pens", "grade": 2},
    {"question": "", "answer": "3", "grade": 1},
    {"question": "How many are 3 and 3?", "answer": None, "grade": 1},
    {"question": "how many  eggs are 2 and 3?", "answer": "5.0", "grade": 1},
    {"question": "How many nuts?", "answer": "6", "grade": 3},
    {"question": "How many nuts?", "answer": "7", "grade": 3},
    {"question": "How much is 5 + 3?", "answer": 8, "grade": 1},
    {"question": "How much is 5 - 3?", "answer": 2, "grade": 1},
]


def source(path: Path, **values) -> SourceConfig:
    return SourceConfig.model_validate({"name": "mine", "path": str(path), **values})


def json_lines(folder: Path, rows: list, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def numbered(count: int) -> list[dict]:
    return [{"question": f"How much is {i} and 1?", "answer": i + 1} for i in range(count)]


def test_every_row_is_a_problem_or_is_counted(tmp_path):
    path = json_lines(tmp_path, ROWS)
    loaded = load_problems(source(path, columns={"tags": ["grade"]}, max_unreadable=0.3))
    assert [(p.question, p.gold, p.tags) for p in loaded.problems] == [
        ("How many eggs are 2 and 3?", "5", {"grade": "1"}),
        ("How much is 5 + 3?", "8", {"grade": "1"}),
        ("How much is 5 - 3?", "2", {"grade": "1"}),
    ]
    assert [(item.row, item.reason) for item in loaded.left_out] == [
        (2, "unreadable gold"),
        (3, "no question"),
        (4, "no gold"),
        (6, "conflicting golds"),
        (7, "conflicting golds"),
    ]
    assert loaded.left_out[0].excerpt == "8 pens"
    counts = loaded.counts()
    assert counts["duplicates"] == 1
    assert counts.pop("rows") == sum(counts.values()) == len(ROWS)


def test_the_fingerprint_follows_the_content_and_holds_no_folder(tmp_path):
    path = json_lines(tmp_path, numbered(3))
    fingerprint = load_problems(source(path)).fingerprint
    assert fingerprint["sha256"] == file_hash(path)
    assert str(tmp_path) not in json.dumps(fingerprint)
    json_lines(tmp_path, numbered(4))
    assert load_problems(source(path)).fingerprint["problems"] != fingerprint["problems"]


def test_columns_are_joined_by_one_space_and_the_original_groups(tmp_path):
    rows = [
        {"Body": "Ann has 3 eggs.", "Question": " How many? ", "Answer": 3.0},
        {"Body": "", "Question": "Ann owns 3 eggs, how many is it?", "Answer": 3.0},
    ]
    rows = [{**row, "from": "Ann has 3 eggs. How many?"} for row in rows]
    columns = {"question": ["Body", "Question"], "answer": "Answer", "original": "from"}
    first, second = load_problems(source(json_lines(tmp_path, rows), columns=columns)).problems
    assert first.question == "Ann has 3 eggs. How many?"
    assert second.question == "Ann owns 3 eggs, how many is it?"
    assert first.group == second.group
    assert first.gold == "3"


def test_formats_of_golds(tmp_path):
    cells = {
        "hash_marks": "2 * 600 = 1200\n#### 1,200",
        "marker": "Not 3. The answer is: 1200",
        "first_token": "1200 (eggs)",
        "plain": 1200.0,
    }
    for answer_format, cell in cells.items():
        path = json_lines(tmp_path, [{"question": "q a", "answer": cell}])
        assert load_problems(source(path, answer_format=answer_format)).problems[0].gold == "1200"


def test_the_first_answer_column_that_is_there_is_read(tmp_path):
    path = json_lines(tmp_path, numbered(2))
    assert load_problems(source(path, columns={"answer": ["final_ans", "answer"]})).problems[1].gold == "2"


def test_where_keeps_values_and_prefixes(tmp_path):
    kinds = ["GSM_SV", "MATH_SV", "GSM_AnsAug", "X"]
    rows = [{**row, "type": kind} for row, kind in zip(numbered(4), kinds, strict=True)]
    path = json_lines(tmp_path, rows)
    loaded = load_problems(source(path, where={"type": ["GSM*", "X"]}))
    assert [p.gold for p in loaded.problems] == ["1", "3", "4"]
    assert loaded.filtered == 1
    with pytest.raises(DataError, match=r"no row passes `where`.*type is GSM_SV.*wanted GSM$"):
        load_problems(source(path, where={"type": ["GSM"]}))


def test_a_limit_draws_the_same_rows_by_seed_and_keeps_their_order(tmp_path):
    path = json_lines(tmp_path, numbered(50))
    first = load_problems(source(path, limit=10))
    assert len(first.problems) == 10
    assert first.over_limit == 40
    golds = [int(p.gold) for p in first.problems]
    assert golds == sorted(golds)
    assert golds != list(range(1, 11))
    assert load_problems(source(path, limit=10)).problems == first.problems
    assert load_problems(source(path, limit=10, seed=1)).problems != first.problems
    more = {p.id for p in load_problems(source(path, limit=20)).problems}
    assert {p.id for p in first.problems} < more


def test_files_of_four_kinds_give_the_same_problems(tmp_path):
    import pyarrow
    import pyarrow.parquet

    rows = [{"question": f'Käse, {i} "und" 1\nmehr?\u2028', "answer": str(i)} for i in range(3)]
    paths = [json_lines(tmp_path, rows)]
    paths.append(tmp_path / "rows.json")
    paths[-1].write_text(json.dumps(rows))
    paths.append(tmp_path / "rows.csv")
    cells = "\r\n".join('"{}",{}'.format(r["question"].replace('"', '""'), r["answer"]) for r in rows)
    paths[-1].write_bytes(f"\ufeffquestion,answer\r\n{cells}\r\n".encode())
    paths.append(tmp_path / "rows.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), paths[-1])
    loaded = [load_problems(source(path)) for path in paths]
    assert len(loaded[0].problems) == 3
    assert all(item.problems == loaded[0].problems for item in loaded)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"question": "q", "answer": 1}\n{"question": \n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", "[1]\n", "line 1: a row must be a JSON object, this is a list"),
        ("a.jsonl", "\n \n", "has no rows"),
        ("a.json", '{"question": "q"}', "must hold a list of objects"),
        ("a.json", "[{]", "line 1: not JSON"),
        ("a.csv", "question,answer\n", "has no rows"),
        ("a.csv", "question,answer\nq,1,2\n", "line 2: more cells than the header"),
        ("a.csv", 'question,answer\n"q,1\n', "not CSV"),
        ("a.parquet", "PAR", "not a Parquet file"),
        ("a.csv", b"question,answer\n\xff\xfe,1\n", "not UTF-8"),
        (
            "a.jsonl",
            '{"quesion": "q", "answer": 1}\n',
            r"'question'; did you mean 'quesion'\?.*quesion, answer",
        ),
        ("a.jsonl", '{"Question": "q", "answer": 1}\n', r"no column 'question'; did you mean 'Question'\?"),
        ("a.jsonl", '{"question": "q", "gold": 1}\n', "no column 'answer'.*Its columns: question, gold"),
        ("a.jsonl", '{"question": "q", "answer": "one"}\n', r"1 of 1 golds \(100\.0%\).*row 1.*'one'"),
        ("a.jsonl", '{"question": " ", "answer": "1"}\n', "none of its 1 rows is usable.*no question"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_place(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message) as error:
        load_problems(source(path))
    assert "\n" not in str(error.value)


def test_paths_that_are_no_data_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.jsonl: does not exist"):
        load_problems(source(tmp_path / "none.jsonl"))
    (tmp_path / "f.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        load_problems(source(tmp_path / "f.csv"))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match="cannot tell the format"):
        load_problems(source(tmp_path / "a.txt", kind="file"))


def test_a_share_of_unreadable_golds_at_the_limit_passes_and_above_it_stops(tmp_path):
    rows = [*numbered(8), {"question": "a?", "answer": "x"}, {"question": "b?", "answer": "y"}]
    path = json_lines(tmp_path, rows)
    assert len(load_problems(source(path, max_unreadable=0.2)).problems) == 8
    with pytest.raises(DataError, match=r"mine: 2 of 10 golds \(20\.0%\).*row 9.*'x'.*row 10.*'y'"):
        load_problems(source(path, max_unreadable=0.19))


def test_conflicts_are_not_unreadable_golds(tmp_path):
    path = json_lines(tmp_path, [*ROWS[5:7], *numbered(1)])
    assert len(load_problems(source(path, max_unreadable=0.0)).problems) == 1


def test_merging_keeps_a_question_once_and_drops_conflicts_of_two_sources(tmp_path):
    a = load_problems(source(json_lines(tmp_path, numbered(3), "a.jsonl"), name="a"))
    same, conflicting = "How much is 1 and 1", "How much is 2 and 1?"
    other = [{"question": same, "answer": 2}, {"question": conflicting, "answer": 9}, ROWS[0]]
    b = load_problems(source(json_lines(tmp_path, other, "b.jsonl"), name="b"))
    both = merge([a, b])
    assert [(p.dataset, p.gold) for p in both.problems] == [("a", "1"), ("a", "2"), ("b", "5")]
    assert [(item.source, item.row, item.reason) for item in both.left_out] == [
        ("a", 3, "conflicting golds"),
        ("b", 2, "conflicting golds"),
    ]
    counts = both.counts()
    assert counts.pop("rows") == sum(counts.values()) == 6


def test_an_unknown_generator_names_the_one_there_is():
    with pytest.raises(DataError, match="there is word-problems"):
        load_problems(SourceConfig(name="x", kind="generated", path="word-problem", limit=3))
