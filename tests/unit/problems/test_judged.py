"""Problems whose golds were tried: the original's CSV shapes, bad rows named, parts that share nothing."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.config.problems import ProblemsConfig
from reasoner.environments import open_environment
from reasoner.errors import DataError
from reasoner.problems.judged import asserts_of, load_judged
from reasoner.problems.parts import cut, prepare_parts, ranked
from reasoner.records import Problem
from tests.support.problems import FIXTURES, section


def write(path: Path, header: list[str], *rows: list[str]) -> Path:
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(header)
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def prepared():
    """Parts of a fixture; the graders stay warm between calls."""
    with open_environment("math", workers=2) as math, open_environment("code", workers=2) as code:

        def of(env_type, path=None, **fields):
            environment = math if env_type == "math" else code
            return prepare_parts(section(env_type, path, **fields), env_type, environment)

        yield of


def test_math_csv_in_the_originals_shape(prepared):
    parts = prepared("math")
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (16, 4, 4) and not parts.left_out
    golds = {p.gold for part in (parts.train, parts.validation, parts.test) for p in part}
    assert {"\\frac{3}{4}", "(2,1)", "x^2+2x+1", "-5"} < golds
    assert parts.facts["sizes"] == {"train": 16, "validation": 4, "test": 4}


def test_mbpp_csv_in_the_originals_shape(prepared):
    parts = prepared("code")
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (10, 4, 4) and not parts.left_out
    assert all(len(json.loads(p.gold)) == 3 for p in parts.train)


def test_the_parts_share_no_problem_and_do_not_depend_on_the_order(prepared, tmp_path):
    text = (FIXTURES / "MATH.csv").read_text().splitlines()
    other = tmp_path / "MATH.csv"
    other.write_text("\n".join([text[0], *reversed(text[1:])]) + "\n")
    a, b = prepared("math"), prepared("math", other)
    assert {p.id for p in a.test} == {p.id for p in b.test} and {p.id for p in a.train} == {
        p.id for p in b.train
    }
    groups = [{p.group for p in part} for part in (a.train, a.validation, a.test)]
    assert not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])
    assert {p.id for p in prepared("math", seed=1).test} != {p.id for p in a.test}


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdef"), max_size=12), st.integers(0, 12))
def test_a_border_never_divides_a_question(names, size):
    rows = ranked([Problem.make(name, str(i), "d", original=name) for i, name in enumerate(names)], 0)
    first, rest = cut(rows, size)
    assert first + rest == rows and not {p.group for p in first} & {p.group for p in rest}
    assert len(first) >= min(size, len(rows))


def test_the_gold_is_the_last_box_with_its_nested_braces(tmp_path):
    path = write(
        tmp_path / "m.csv",
        ["question", "correct_answer", "answer"],
        ["Q1", "First $\\boxed{1}$? No: $\\boxed{\\frac{\\sqrt{2}}{2}}$.", "1"],
        ["Q2", "No box here.", "7"],
    )
    with open_environment("math", workers=1) as environment:
        loaded = load_judged(section("math", path).train, "math", environment, section("math", path))
    assert [p.gold for p in loaded.problems] == ["\\frac{\\sqrt{2}}{2}", "7"]


def test_an_answer_column_is_not_needed_beside_a_solution(tmp_path):
    path = write(
        tmp_path / "m.csv", ["question", "correct_answer"], ["Q1", "$\\boxed{2}$"], ["Q2", "nothing"]
    )
    config = section("math", path, max_rejected=0.5)
    with open_environment("math", workers=1) as environment:
        loaded = load_judged(config.train, "math", environment, config)
    assert [p.gold for p in loaded.problems] == ["2"] and loaded.left_out[0].reason == "no gold"


def test_bad_rows_are_left_out_with_their_reasons(tmp_path):
    good = str(["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"])
    path = write(
        tmp_path / "c.csv",
        ["problem", "reference_solution", "test_list"],
        ["identity", "def f(x): return x", good],
        ["wrong reference", "def f(x): return 1", good],
        ["two tests", "def f(x): return x", str(["assert f(1) == 1", "assert f(2) == 2"])],
        ["broken", "def f(x): return x", "['assert f(1) == 1'"],
        ["no assert", "def f(x): return x", str(["f(1) == 1", "f(2)", "f(3)"])],
        ["no reference", "", good],
        ["", "def f(x): return x", good],
    )
    config = section("code", path, max_rejected=1.0)
    with open_environment("code", workers=2) as environment:
        loaded = load_judged(config.train, "code", environment, config)
    assert [p.question for p in loaded.problems] == ["identity"]
    assert [item.reason for item in loaded.left_out] == [
        "reference fails its own tests", "not 3 tests", "unreadable tests", "unreadable tests", "no reference",
        "no question",
    ]  # fmt: skip
    strict = section("code", path)
    with (
        open_environment("code") as environment,
        pytest.raises(DataError, match=r"6 of 7 rows.*max_rejected"),
    ):
        load_judged(strict.train, "code", environment, strict)


def test_missing_files_and_columns_are_named(tmp_path):
    with open_environment("math") as environment:
        missing = section("math", tmp_path / "MATH.csv")
        with pytest.raises(DataError, match=r"no file .*MATH.csv; put it there.*problems=math-hub"):
            load_judged(missing.train, "math", environment, missing)
        path = write(tmp_path / "other.csv", ["questions", "correct_answer"], ["Q", "\\boxed{1}"])
        other = section("math", path)
        with pytest.raises(DataError, match="no column 'question'; did you mean 'questions'"):
            load_judged(other.train, "math", environment, other)


def test_too_few_problems_and_overlaps_stop_the_run(prepared):
    with pytest.raises(DataError, match="too few problems for train"):
        prepared("math", test_size=20, validation_size=4)
    apart = section("math").train.model_dump() | {"name": "again"}
    with pytest.raises(DataError, match="also evaluation questions"):
        prepared("math", test=apart)
    with pytest.raises(DataError, match="too few problems"):
        prepared("math", test=apart, overlap="drop", test_size=24)
    with pytest.raises(ValueError, match="no evaluation problems"):
        ProblemsConfig.model_validate({"train": apart, "test_size": 0})


@pytest.mark.parametrize("cell", ["", "[]", "[1]", "{'a': 1}", None, "['x = 1']", "['assert (']", "['a' 'b'"])
def test_cells_that_hold_no_asserts(cell):
    with pytest.raises(ValueError):
        asserts_of(cell)


def test_stubs_that_return_nothing_pass_nowhere(prepared):
    parts = prepared("code")
    with open_environment("code", workers=2) as environment:
        stubs = [(p, f"def {environment.facts(p)['function']}(*a): return None") for p in parts.train]
        assert not any(j.verdict.correct for j in environment.judge(stubs))


def test_the_collected_sets_load(shared_data, tmp_path):
    """The first rows of MBPP and of MATH: every reference passes its tests, every gold its own check."""

    def loaded(file: str, env_type: str, **columns):
        part = tmp_path / f"{file}.jsonl"
        with (shared_data / part.name).open() as lines:
            part.write_text("".join(line for line, _ in zip(lines, range(80), strict=False)))
        source = {"name": file, "path": str(part), "columns": columns}
        config = ProblemsConfig.model_validate({"train": source})
        with open_environment(env_type, workers=2) as environment:
            return load_judged(config.train, env_type, environment, config)

    mbpp = loaded("mbpp", "code", question=["text"], answer="test_list", solution="code")
    assert mbpp.rows == 80 and len(mbpp.problems) + mbpp.duplicates == 80
    math = loaded("math_train_slice", "math", question=["problem"], answer="answer", solution="solution")
    assert math.rows == 80 and len(math.problems) >= 79
