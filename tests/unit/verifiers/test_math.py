"""Verdicts on mathematics, in this process.

Wrong if a pair of the tables is judged otherwise, if a gold that can't be read is paid or punished, if a
policy does not change what it says it changes, or if a text raises.
"""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.records import Outcome
from reasoner.verifiers.math import MathItem, find_answer, judge
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.statement import has_prose
from tests.unit.verifiers.math_rows import DIFFERENT, SAME

POLICY = MathPolicy()


def outcome(gold: str, prediction: str, **changes: object) -> str:
    return judge(MathItem(gold, prediction), POLICY.model_copy(update=changes)).outcome


def test_equal_answers_are_correct() -> None:
    wrong = [(gold, answer) for gold, answer in SAME if outcome(gold, answer) != "correct"]
    assert wrong == []


def test_different_answers_are_incorrect_and_not_unscored() -> None:
    wrong = [(gold, answer) for gold, answer in DIFFERENT if outcome(gold, answer) != "incorrect"]
    assert wrong == []


def test_a_box_around_the_answer_changes_nothing() -> None:
    bare = [(g, p) for g, p in SAME + DIFFERENT if _is_bare(p) and not has_prose(p)]
    assert len(bare) > 200
    differing = [(g, p) for g, p in bare if outcome(g, p) != outcome(g, f"Hence it is $\\boxed{{{p}}}$.")]
    assert differing == []


def _is_bare(text: str) -> bool:
    return not any(
        word in text
        for word in ("boxed", "nswer", "####", "think", "\n", "$", "**", " the ", "fbox", "<", ": ")
    )


@pytest.mark.parametrize(
    "gold", ["", "  ", "$$", r"\text{}", r"\boxed{}", r"\frac{1}{", "x+", r"\sqrt", r"\begin{pmatrix}1"]
)
def test_an_unreadable_gold_is_unscored(gold: str) -> None:
    for prediction in (r"\boxed{5}", "The answer is 5."):
        verdict = judge(MathItem(gold, prediction), POLICY)
        assert (verdict.outcome, verdict.reason) == ("unscored", "gold_unreadable")


def test_math_verify_is_asked_with_the_gold_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `verify` treats sets and relations of the two sides differently."""
    import math_verify

    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        math_verify, "verify", lambda gold, answer, **_: bool(asked.append((str(gold), str(answer))))
    )
    assert outcome(r"[0, 7) \cup \{9\}", r"x \in [0, 8) \cup \{9\}") == "incorrect"
    assert asked and all("7" in gold and "8" in answer for gold, answer in asked)


def test_an_empty_answer_never_equals_an_empty_gold() -> None:
    assert outcome(r"\text{}", r"\boxed{\text{}}") == "unscored"


POLICIES = [
    ("boxes", "last", "2", r"\boxed{1} and \boxed{2}", "incorrect", "correct"),
    ("box_required", True, "4", "The answer is 4.", "correct", "incorrect"),
    ("stated", "marked", "4", "We find that there must be 4 of them.", "correct", "incorrect"),
    ("run_on", "keep", "4", "#### 4\n\nQuestion: and now?\n#### 5", "correct", "incorrect"),
    ("percent", "value", r"28\%", "28", "correct", "incorrect"),
    ("units", "ignore", r"5 \text{ cm}", "5 kg", "incorrect", "correct"),
    ("base", "required", "34_7", "34", "correct", "incorrect"),
    ("lists", "ordered", "1, 2", "2, 1", "correct", "incorrect"),
    ("left_side", "required", "x = 5", "5", "correct", "incorrect"),
    ("intervals", "strict", "(1,2)", "1 < x < 2", "correct", "incorrect"),
    ("number_styles", False, "1000", "1 000", "correct", "incorrect"),
    ("rounded_gold", True, "0.67", r"\frac{2}{3}", "incorrect", "correct"),
    ("overescaped", False, r"\frac{1}{2}", r"\\boxed{\\frac{1}{2}}", "correct", "incorrect"),
    ("variable_names", "free", "f(x)", "f(y)", "incorrect", "correct"),
]


@pytest.mark.parametrize(("name", "value", "gold", "prediction", "by_default", "changed"), POLICIES)
def test_every_policy_switches(
    name: str, value: object, gold: str, prediction: str, by_default: str, changed: str
) -> None:
    assert outcome(gold, prediction) == by_default
    assert outcome(gold, prediction, **{name: value}) == changed


def test_every_policy_is_tested() -> None:
    assert {row[0] for row in POLICIES} == set(MathPolicy.model_fields)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=200),
        st.lists(st.sampled_from(list("0123456789.,-+/^_{}()[]\\$ xyzi=<>|:%"))).map("".join),
    )
)
def test_no_text_raises_while_its_answer_is_looked_for(text: str) -> None:
    for words in (False, True):
        answer = find_answer(text, POLICY, words=words)
        assert answer is None or isinstance(answer, str)


# Rows of the public suites that assume another policy than ours; see docs/verdicts.md.
OTHER_POLICY = {
    "ga-283d": "decimals rounded to two places are equal",
    "ga-c08b": "decimals rounded to two places are equal",
    "gb-f17": "a rounded gold takes what rounds to it (our rounded_gold)",
    "ga-ab5": "lists are ordered (our lists: ordered)",
    "ga-c0f": "an answer needs a box (our box_required)",
    "ga-d82": "an answer needs a box (our box_required)",
    "ga-446": "an unclosed box in a gold is read; function arguments are free",
    "ga-6df": "boxes with anything between them are one list",
    "ga-c79": "a decimal comma in running text",
}


def _suite(shared_data: Path) -> list[dict[str, object]]:
    names = ("grading_suite_open.jsonl", "grading_issues_open.jsonl")
    return [json.loads(line) for name in names for line in (shared_data / name).open(encoding="utf-8")]


def test_the_public_suites(shared_data: Path) -> None:
    verdicts = [(row, judge(MathItem(row["gold"], row["prediction"]), POLICY)) for row in _suite(shared_data)]  # type: ignore[arg-type]
    failed = [row for row, verdict in verdicts if verdict.correct != row["expected"]]
    hard = [row["id"] for row in failed if row["class"] != "convention"]
    assert hard == []
    unexplained = [
        row["id"] for row in failed if not str(row["id"]).startswith(tuple(k[:6] for k in OTHER_POLICY))
    ]
    assert unexplained == []
    assert len(failed) == len(OTHER_POLICY)
    assert all(verdict.reason for row, verdict in verdicts if row["class"] == "disputed")


def test_the_documentation_lists_every_row_of_another_policy(shared_data: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "verdicts.md").read_text()
    ids = [
        str(row["id"]) for row in _suite(shared_data) if str(row["id"])[:6] in {k[:6] for k in OTHER_POLICY}
    ]
    wrong = [
        row["id"]
        for row in _suite(shared_data)
        if row["class"] == "convention"
        and judge(MathItem(row["gold"], row["prediction"]), POLICY).correct != row["expected"]  # type: ignore[arg-type]
    ]
    assert set(wrong) <= set(ids) and [i for i in wrong if str(i) not in text] == []


def test_rows_of_another_policy_pass_under_it(shared_data: Path) -> None:
    rows = {str(row["id"])[:6]: row for row in _suite(shared_data) if row["class"] == "convention"}
    for key, changes in {
        "gb-f17": {"rounded_gold": True},
        "ga-ab5": {"lists": "ordered"},
        "ga-c0f": {"box_required": True},
        "ga-d82": {"box_required": True},
    }.items():
        row = rows[key]
        verdict = judge(MathItem(row["gold"], row["prediction"]), POLICY.model_copy(update=changes))  # type: ignore[arg-type]
        assert verdict.correct == row["expected"], key


def test_reference_solutions_of_math(shared_data: Path) -> None:
    """Golds are readable, a reference solution is correct and another problem's gold is not."""
    names = ("math500.jsonl", "math_train_slice.jsonl")
    rows = [json.loads(line) for name in names for line in (shared_data / name).open(encoding="utf-8")]
    verdicts = [judge(MathItem(row["answer"], row["solution"]), POLICY) for row in rows]
    assert sum(v.outcome == Outcome.UNSCORED for v in verdicts) == 0
    # Two solutions box the answers to both of their parts, and the gold has only one.
    assert sum(v.outcome == Outcome.INCORRECT for v in verdicts) <= 2
    golds = sorted({row["answer"] for row in rows if not re.search("text|mbox", row["answer"])})
    pairs = zip(golds, golds[7:] + golds[:7], strict=True)
    assert [(a, b) for a, b in pairs if outcome(a, f"\\boxed{{{b}}}") != "incorrect"] == []
