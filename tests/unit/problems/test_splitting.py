"""Splits by hash: rephrasings together, nothing moves, training and evaluation apart."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoner.config.data import DataConfig
from reasoner.errors import DataError
from reasoner.problems import contamination, prepare, split
from reasoner.records import Problem


def data(**values) -> DataConfig:
    pool = {"p": {"kind": "generated", "path": "word-problems", "limit": 1}}
    return DataConfig.model_validate({"pool": pool, "evaluation": pool, **values})


def problem(text: str, original: str | None = None, dataset: str = "d") -> Problem:
    return Problem.make(text, "1", dataset, original=original)


MANY = [problem(f"Question number {i}?") for i in range(2000)]


def test_shares_come_out_near_their_values_and_every_problem_is_in_one_part():
    parts = split(MANY, data(validation=0.1, held_out=0.3), 0)
    assert 160 <= len(parts["validation"]) <= 240
    assert 540 <= len(parts["held-out"]) <= 660
    assert sorted(p.id for part in parts.values() for p in part) == sorted(p.id for p in MANY)


def test_rephrasings_stay_together():
    variants = [
        problem(f"Variant {v} of {i}?", f"Question number {i}?") for i in range(300) for v in range(4)
    ]
    parts = split(variants, data(validation=0.2, held_out=0.2), 3)
    where = {}
    for name, part in parts.items():
        for p in part:
            assert where.setdefault(p.group, name) == name
    assert len(where) == 300


@given(st.permutations(MANY[:120]), st.integers(20, 110))
def test_a_problem_keeps_its_part_when_others_come_and_go(order, count):
    def places(problems):
        parts = split(problems, data(validation=0.4, held_out=0.3), 5)
        return {p.id: name for name, part in parts.items() for p in part}

    try:
        some = places(order[:count])
    except DataError:
        return
    everything = places(MANY[:120])
    assert all(everything[key] == name for key, name in some.items())


def test_the_validation_share_moves_nothing_in_or_out_of_held_out():
    first = split(MANY, data(validation=0.0, held_out=0.3), 0)["held-out"]
    assert split(MANY, data(validation=0.4, held_out=0.3), 0)["held-out"] == first


def test_the_seed_changes_the_split_and_another_process_does_not():
    config = data(validation=0.5)
    first = split(MANY[:40], config, 0)["validation"]
    assert split(MANY[:40], config, 1)["validation"] != first
    code = (
        "from tests.unit.problems.test_splitting import *\n"
        "print(*[p.id for p in split(MANY[:40], data(validation=0.5), 0)['validation']])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [p.id for p in first]


def test_an_empty_part_is_an_error():
    with pytest.raises(DataError, match=r"pool \(1\).*validation"):
        split(MANY[:1], data(validation=0.01), 0)


def test_a_training_question_in_an_evaluation_set_is_named_with_both_sets_and_counts():
    train = [problem(text, dataset="a") for text in ("How many eggs?", "How many pens?", "How many hens?")]
    train.append(problem("Other?", dataset="b"))
    with pytest.raises(DataError, match=r"2 of a in gsm, 1 of b in svamp.*in a and gsm: 'How many eggs\?'"):
        contamination.check(
            train,
            {
                "gsm": [problem("how many EGGS"), problem("How many pens?!")],
                "svamp": [problem("other")],
                "clean": [problem("Nothing of it")],
            },
        )


@pytest.mark.parametrize(
    ("train", "evaluation"),
    [
        (problem("Rephrased?", "How many eggs?"), problem("How many eggs?")),
        (problem("How many eggs?"), problem("Rephrased?", "How many eggs?")),
        (problem("Rephrased?", "How many eggs?"), problem("Otherwise?", "how many eggs")),
        (problem("Rephrased?", "How many eggs?"), problem("Rephrased?", "How many pens?")),
    ],
)
def test_originals_count_on_both_sides(train, evaluation):
    with pytest.raises(DataError, match="1 of d in e"):
        contamination.check([train], {"e": [evaluation]})


def test_different_questions_pass():
    contamination.check([problem("How many eggs?")], {"e": [problem("How many hens?")]})


def write(path, questions):
    path.write_text("".join(f'{{"question": "{q}", "answer": 1}}\n' for q in questions))
    return {"path": str(path)}


def test_prepare_stops_at_an_overlap_or_leaves_it_out(tmp_path):
    pool = write(tmp_path / "pool.jsonl", [f"Question {i}?" for i in range(30)])
    evaluation = write(tmp_path / "eval.jsonl", ["question 3", "question 4", "Another?"])
    values = {"pool": {"mine": pool}, "evaluation": {"test": evaluation}, "validation": 0.2}
    with pytest.raises(DataError, match="2 of mine in test"):
        prepare(DataConfig.model_validate(values), 0)
    prepared = prepare(DataConfig.model_validate({**values, "overlap": "drop"}), 0)
    assert len(prepared.train) + len(prepared.validation) == 28
    assert {item.train.question for item in prepared.dropped} == {"Question 3?", "Question 4?"}
    assert len(prepared.evaluation["test"]) == 3
    assert prepared.counts()["dropped overlaps"] == 2
    contamination.check(prepared.train + prepared.validation, prepared.evaluation)


def test_prepare_refuses_a_pool_that_is_all_evaluation(tmp_path):
    same = write(tmp_path / "a.jsonl", ["One?", "Two?"])
    values = {"pool": {"a": same}, "evaluation": {"b": same}, "validation": 0, "overlap": "drop"}
    with pytest.raises(DataError, match="every training question"):
        prepare(DataConfig.model_validate(values), 0)


def test_held_out_questions_are_of_the_pool_and_named_first(tmp_path):
    pool = write(tmp_path / "pool.jsonl", [f"Question {i}?" for i in range(40)])
    other = write(tmp_path / "other.jsonl", ["Another?"])
    values = {"pool": {"mine": pool}, "evaluation": {"other": other}, "validation": 0.1, "held_out": 0.3}
    prepared = prepare(DataConfig.model_validate(values), 0)
    assert list(prepared.evaluation) == ["held-out", "other"]
    assert all(p.dataset == "mine" for p in prepared.evaluation["held-out"])
    assert set(prepared.fingerprints()) == {"pool", "evaluation"}
