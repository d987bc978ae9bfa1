"""Contamination. Wrong if a planted question is missed, if another question is taken for it, or if `fail` lets a run go
on."""

import json
from pathlib import Path

import pytest

from reasoner.config.contamination import ContaminationConfig
from reasoner.errors import DataError
from reasoner.problems.near_duplicates import (
    NEAR,
    Pool,
    common_order,
    features,
    multiset_jaccard,
    overlap,
    pairs,
    search,
)
from reasoner.problems.paraphrases import RULES, paraphrase
from reasoner.problems.word_problems import generate
from reasoner.records import Problem
from reasoner.report.contamination import lines
from reasoner.stages import contamination
from reasoner.store.rows import write_rows

CONFIG = ContaminationConfig()
LONG = (
    "A lighthouse keeper on a northern island burns 14 litres of oil on each of the 6 darkest nights of winter and 9 "
    "litres on every other night of a month of 30 days. How much oil does the keeper burn in the whole month?"
)


def problem(text: str, dataset: str = "pool", **more: str) -> Problem:
    return Problem.make(text, "1", dataset, **more)  # type: ignore[arg-type]


def kinds(train: list[Problem], question: str) -> list[str]:
    return [m.kind for m in search(train, {"test": [problem(question, "test")]}, CONFIG)]


def test_each_kind_of_match_is_found_and_named() -> None:
    others = generate(200, seed=3)
    assert kinds([*others, problem(LONG.upper().replace(",", ";"))], LONG) == ["exact"]
    assert kinds([*others, problem("My rewording", original=LONG)], LONG) == ["exact"], (
        "a rephrasing says of what"
    )
    quoted = (
        "Think step by step. " + LONG.split(" How much")[0] + " Draw the curve of consumption and explain it."
    )
    assert kinds([*others, problem(quoted)], LONG) == ["ngram"]
    assert kinds([*others, problem(paraphrase(LONG, ["names", "order", "synonyms"]))], LONG)[0] in (
        "near",
        "ngram",
    )
    assert kinds(others, LONG) == [] and kinds([], LONG) == []


def test_other_numbers_make_another_question() -> None:
    train = [problem("Mia has 14 red beads. She gets 27 more. How many beads are there?")]
    assert kinds(train, "Tom has 14 red beads. He gets 27 more. How many beads are there?") == ["near"]
    assert kinds(train, "Tom has 83 red beads. He gets 51 more. How many beads are there?") == []


def test_shared_template_words_do_not_make_up_for_other_numbers_nor_numbers_for_other_words() -> None:
    train = "A train travels {} miles in {} hours. At the same rate, how many additional hours would it take to {}?"
    pool = [*generate(200, seed=3), problem(train.format(270, 3, "travel an additional 180 miles"))]
    other = train.format(1200, 4, "travel an additional 2000 miles")
    assert kinds(pool, other) == [], "13 words in a row, but another question"
    assert kinds(pool, train.format(270, 3, "go 180 more miles")) == ["ngram"]
    assert kinds(pool, "Of 270 eggs 180 hatch within 3 weeks. What share does not?") == []


def test_questions_without_numbers_need_more_words_in_common() -> None:
    tasks = (
        "find the area of a rhombus",
        "sort a list of tuples by their last item",
        "count vowels in a string",
    )
    pool = [problem(f"Write a function to {task}.") for task in tasks]
    assert kinds(pool, "Write a function to find the area of a pentagon with given sides.") == []
    assert kinds(pool, "Write a function to sort a list of tuples by the last item.") == ["near"]


def test_an_ngram_is_found_in_a_later_question_too() -> None:
    copies = [problem(LONG.replace("14", str(n)).replace("30", str(n)).replace("9", str(n)).replace("6", str(n)))
              for n in (41, 52)]  # fmt: skip
    quoted = problem("Now read this. " + LONG.split(" How much")[0] + " Explain.")
    (match,) = search([*copies, quoted], {"t": [problem(LONG, "test")]}, CONFIG)
    assert (match.kind, match.train_id) == ("ngram", quoted.id)


def test_features_read_numbers_as_numbers() -> None:
    found = features("Two pens cost $1,200.50, twelve cost 7.0; Ann's pen costs 7.")
    assert found.numbers == {"2": 1, "1200.5": 1, "12": 1, "7": 2} and "ann" in found.words
    assert multiset_jaccard({"2": 2, "3": 1}, {"2": 1, "4": 1}) == pytest.approx(1 / 4)
    assert multiset_jaccard({}, {}) == 1.0
    assert overlap({"2": 2, "3": 1}, {"2": 1, "4": 1}) == 0.5 and overlap({}, {"1": 1}) == 1.0


def test_the_order_of_numbers_and_of_words_is_evidence() -> None:
    assert common_order("abcd", "abcd") == 1.0 == common_order("", "")
    assert common_order("abcd", "dcba") == 0.25 and common_order("abc", "") == 0.0
    assert common_order("abcde", "axcye") == pytest.approx(6 / 10)
    assert pairs(("a", "b", "c"), 1) == {("a", "b"), ("b", "c")}
    assert pairs(("a", "b", "c", "d", "e"), NEAR) >= {("a", "d"), ("b", "e")} and ("a", "e") not in pairs(
        ("a", "b", "c", "d", "e"), NEAR
    )
    others = generate(200, seed=3)
    asked = "Rosa picks 12 plums and 30 figs, eats 5 plums and sells 9 figs. How many fruits has she left?"
    renamed = asked.replace("Rosa", "Emil").replace("picks", "gathers").replace("sells", "then gives away")
    jumbled = (
        "Has she 5 fruits left? Rosa sells and eats 30 plums and picks figs, how many plums 12 and 9 figs."
    )
    assert kinds([*others, problem(renamed)], asked) == ["near"]
    assert features(jumbled).numbers == features(asked).numbers
    assert features(jumbled).words == features(asked).words
    pool = Pool(others, CONFIG)
    built_alike, built_otherwise = (
        pool.likeness(features(asked), features(text)) for text in (renamed, jumbled)
    )
    assert built_otherwise < built_alike, (
        "though the words are the same ones, and some of the other's are not"
    )


def test_one_is_no_number_and_twice_is_two() -> None:
    assert features("One of them has twice as many, two times six").order == ("2", "2", "6")
    assert features("the one half of one").numbers == {}


def test_planted_paraphrases_of_real_questions_are_found(shared_data: Path) -> None:
    """A part of benchmarks/contamination.py; docs/contamination.md has the whole."""
    rows = [json.loads(line) for line in (shared_data / "gsm8k_test.jsonl").open()][:240]
    test = [problem(row["question"], str(i)) for i, row in enumerate(rows)]
    for rule in RULES:
        copies = [problem(paraphrase(p.question, [rule], seed=2), f"copy {p.dataset}") for p in test]
        found = {m.evaluation_id for m in search(copies, {"t": test}, CONFIG)}
        assert len(found) / len(test) >= 0.95, rule
    together = [problem(paraphrase(p.question, list(RULES), seed=2), f"copy {p.dataset}") for p in test]
    assert len(search(together, {"t": test}, CONFIG)) / len(test) >= 0.85
    half = len(test) // 2
    assert len(search(test[:half], {"t": test[half:]}, CONFIG)) <= 1


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A folder of problems in which two of four evaluation questions stand in the pool, one in the validation part."""
    folder = tmp_path / "problems"
    folder.mkdir()
    own = generate(4, seed=1, dataset="held")
    write_rows(folder / "train.jsonl", [*generate(40, seed=9)[20:], problem(own[0].question)])
    write_rows(folder / "validation.jsonl", [problem(own[1].question)])
    write_rows(folder / "eval-held.jsonl", own)
    return folder


def test_the_stage_warns_with_clean_scores_and_fails_where_it_is_told_to(
    tmp_path: Path, prepared: Path
) -> None:
    checked, out, answers = (tmp_path / name for name in ("checked", "out", "answers"))
    for folder in (checked, out, answers):
        folder.mkdir()
    facts = contamination.check(checked, prepared, CONFIG)
    assert facts["sets"]["held"] == {"questions": 4, "matched": 2, "kinds": {"exact": 2}}

    own = contamination.evaluation_sets(prepared)["held"]
    marks = ["correct", "correct", "incorrect", "unscored"]  # the two right ones are the contaminated ones
    rows = [
        {"problem_id": p.id, "strategy": "cot", "verdict": {"outcome": m}}
        for p, m in zip(own, marks, strict=True)
    ]
    write_rows(answers / "attempts.jsonl", rows)
    contamination.clean_scores(out, checked, [("held", "epoch 1", answers)])
    found = contamination.read(out)
    score = found["scores"][0]
    assert (score["full"]["k"], score["full"]["n"]) == (2, 3) and (
        score["clean"]["k"],
        score["clean"]["n"],
    ) == (0, 1)
    page = "\n".join(lines(found))
    assert "2 of 4 questions" in page and "| held | epoch 1 | 0.667 | 3 | 0.000 | 1 |" in page
    assert own[0].question[:40] in page and lines(None) == []

    with pytest.raises(DataError, match=r"2 of 4 in held.*contamination.mode=warn"):
        contamination.check(tmp_path / "checked", prepared, ContaminationConfig(mode="fail"))
    contamination.check(tmp_path / "checked", prepared, ContaminationConfig(mode="fail", max_share=0.5))
