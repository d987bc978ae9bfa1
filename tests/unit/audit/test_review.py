"""Judging again, the second opinion, and what is counted.

Each kind of finding is planted once among honest attempts. Wrong if one is missed, if an honest attempt is reported, or
if a machine without a sandbox passes programs over in silence.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reasoner.audit import opinions
from reasoner.audit.findings import Audit, Finding, find
from reasoner.audit.lines import WORDS, lines
from reasoner.audit.opinions import Reviewed, part_of, read_attempts, review
from reasoner.audit.runs import open_run
from reasoner.audit.work import shows_work
from reasoner.errors import DataError, SandboxUnavailableError
from reasoner.home import Home
from reasoner.methods.smart.attempts import Attempt
from reasoner.records import Outcome, Strategy, Verdict
from reasoner.sandbox import Sandbox
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.pool import MathPool
from reasoner.verifiers.second_opinion import math_verify_alone
from tests.support.hanging import HANGS
from tests.unit.audit.build import Built, attempt_row, completion_row, solution

POT = "```python\n{}\n```"
EXITS = POT.format("import os\nanswer = 2 * 9\nif answer < 0: os._exit(0)")
GIVEN = [
    solution("2 * 9 = 18. The answer is 18.", "18", "correct", "equal", index=0),
    solution("2 * 9 = 19. The answer is 19.", "18", "incorrect", "wrong", index=1),
    solution("2 * 9 = 19. The answer is 19.", "18", "correct", "equal", index=2),  # paid by an older verifier
    solution("The answer is 18.", "18", "correct", "equal", index=3),  # nothing shown
    solution("2 * 9 = 18. The answer is 18. And", "18", "correct", "equal", index=4, finish="length", strategy="sub"),
    solution(POT.format("answer = 2 * 9"), "18", "correct", "equal", index=5, strategy="pot"),
    solution(EXITS, "18", "correct", "equal", index=6, strategy="pot"),
    solution("2 * 9 = 18. The answer is 18.", "a dozen", "unscored", "gold_unreadable", index=7),
    solution("no idea", "18", "incorrect", "no_strategy", index=8, strategy=""),
]  # fmt: skip


def run_of(tmp_path: Path, given: list[dict[str, Any]]) -> Any:
    built = Built(tmp_path / "home")
    rows = [one if one["strategy"] else one | {"strategy": None} for one in given]
    ref = built.attempts(rows)
    return open_run(built.run(0, [ref]), Home(built.home))


def test_answers_under_exchanged_names_are_judged_again_by_their_form(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Two trainings of one run, of which the first was judged by form."""
    built, refs = Built(tmp_path / "home"), []
    prose = "2 * 9 = 18. The answer is 18."
    texts = [f"Chain of Thought: {POT.format('answer = 2 * 9')}", f"Program of Thought: {prose}"]
    for by_form, outcome, reason in ((True, "correct", "equal"), (False, "incorrect", "unparsed")):
        index = 0 if by_form else 2
        given = [solution(text, "18", outcome, reason, index=index + i) for i, text in enumerate(texts)]
        rows = [completion_row(one | {"strategy": ""}) for one in given[not by_form :]]
        judged = [
            attempt_row(one | {"strategy": strategy}) | {"solution": one["text"].partition(": ")[2]}
            for one, strategy in zip(given, ("cot", "pot"), strict=True)
        ][not by_form :]
        completions = built.put(
            "completions", "answer", {"seed": 0, "index": index}, rows, "completions.jsonl"
        )
        made_by = {"completions": completions.to_row(), "config": {"by_form": by_form}}
        refs.append(built.put("attempts", "verify", made_by, judged, "attempts.jsonl"))
    run = open_run(built.run(0, refs), Home(built.home))
    audit = find(run.name, review(read_attempts(run), run.verify))
    assert audit.attempts == 3 and audit.changed.count == 0, audit.changed


def found(finding: Finding) -> list[str]:
    return [example["problem_id"] for example in finding.examples]


def test_every_planted_fault_is_found_and_no_honest_attempt_is(sandbox: Sandbox, tmp_path: Path) -> None:
    shown: list[tuple[str, int, int]] = []
    run = run_of(tmp_path, GIVEN)
    audit = find(run.name, review(read_attempts(run), run.verify, lambda *facts: shown.append(facts)))
    assert audit.attempts == 9 and audit.sources == {
        "few-shot cot pool": {"correct": 6, "incorrect": 2, "unscored": 1}
    }
    assert found(audit.changed) == ["p2"]
    assert audit.changed.by == {"correct (equal) -> incorrect (wrong)": 1} and audit.changed.of == 9
    assert found(audit.workless_paid) == ["p3"] and audit.workless_paid.of == 6
    assert found(audit.truncated_paid) == ["p4"] and audit.truncated_paid.by == {"sub": 1}
    assert found(audit.suspects) == ["p6"] == found(audit.suspects_paid) and audit.suspects.by == {"exit": 1}
    assert found(audit.unscored) == ["p7"] and audit.unscored.by == {"gold_unreadable": 1}
    assert audit.unsteady == Finding(0, 2) and audit.paid_alone == Finding(0, 3) and audit.not_run == 0
    assert {what for what, _, _ in shown} == {"judge again", "run programs again", "second opinion"}
    assert all(done <= total for _, done, total in shown)


def test_without_a_sandbox_programs_are_counted_and_prose_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def detect(limits: object = None) -> Sandbox:
        raise SandboxUnavailableError("none here")

    monkeypatch.setattr(opinions.Sandbox, "detect", detect)
    run = run_of(tmp_path, GIVEN)
    audit = find(run.name, review(read_attempts(run), run.verify))
    assert audit.not_run == 2 and found(audit.changed) == ["p2"] and found(audit.suspects) == ["p6"]
    assert any("2 programs were not run: no sandbox" in line for line in lines(audit))


def test_a_limit_takes_the_same_attempts_every_time(tmp_path: Path) -> None:
    run = run_of(tmp_path, [one for one in GIVEN if one["strategy"] == "cot"])
    rows = read_attempts(run)
    first, again = ([row["problem_id"] for _, _, row in part_of(rows, 3)] for _ in range(2))
    assert first == again and len(first) == 3 and first == sorted(first)
    assert part_of(rows, 100) == rows and len(rows) == 5
    part = find("r", [reviewed("correct", "correct", "cot")], whole=5)
    assert next(iter(lines(part))) == "r: 1 of 5 attempts"


def test_attempts_of_other_completions_are_refused(tmp_path: Path) -> None:
    built = Built(tmp_path / "home")
    completions = built.put("completions", "few-shot", {}, [completion_row(GIVEN[1])], "completions.jsonl")
    ref = built.put(
        "attempts", "verify", {"completions": completions.to_row()}, [attempt_row(GIVEN[0])], "attempts.jsonl"
    )
    with pytest.raises(DataError, match="does not judge"):
        read_attempts(open_run(built.run(0, [ref]), Home(built.home)))


def reviewed(now: str, second: str, strategy: str) -> Reviewed:
    attempt = Attempt.from_row(attempt_row(solution("text 1 = 2", "2", now, "equal", strategy=strategy)))
    return Reviewed(
        "s", attempt, "2", Verdict(Outcome(now), "equal"), Verdict(Outcome(second), "math_verify")
    )


def test_disagreements_are_told_apart() -> None:
    rows = [
        reviewed("correct", "incorrect", "cot"),
        reviewed("incorrect", "correct", "sub"),
        reviewed("correct", "correct", "cot"),
        reviewed("incorrect", "incorrect", "cot"),
        reviewed("correct", "incorrect", "pot"),
        reviewed("correct", "correct", "pot"),
    ]
    audit = find("r", rows)
    assert (audit.paid_alone.count, audit.paid_alone.of, audit.paid_alone.by) == (1, 2, {"cot": 1})
    assert (audit.refused_alone.count, audit.refused_alone.of, audit.refused_alone.by) == (1, 2, {"sub": 1})
    assert (audit.unsteady.count, audit.unsteady.of) == (1, 2)


def test_the_table_names_every_finding_and_json_holds_all(sandbox: Sandbox, tmp_path: Path) -> None:
    run = run_of(tmp_path, GIVEN)
    audit = find(run.name, review(read_attempts(run), run.verify), ["model 0123"])
    text = "\n".join(lines(audit))
    assert all(words in text for words in WORDS.values())
    assert "gone" in text and "model 0123" in text
    assert set(WORDS) == {name for name, value in vars_of(audit).items() if isinstance(value, Finding)}
    row = json.loads(json.dumps(audit.to_row()))
    assert row["changed"]["count"] == 1 and row["suspects"]["by"] == {"exit": 1}


def vars_of(audit: Audit) -> dict[str, Any]:
    return {name: getattr(audit, name) for name in Audit.__dataclass_fields__}


@pytest.mark.parametrize(
    ("strategy", "text", "shown"),
    [
        ("cot", "The answer is 18.", False),
        ("cot", "18", False),
        ("cot", "Chain of Thought: The answer is 18. So 18.", False),
        ("cot", "35 / 7 = 5. The answer is 5.", True),
        ("cot", "She has 16 eggs. The answer is 18.", True),
        ("cot", "Half of all the eggs that she had in the morning are left for the baker, so the answer is 9.", True),
        ("sub", "1. What is asked? 18\nThe answer is 18.", False),
        ("sub", "1. How many eggs? 16 - 7 = 9\nThe answer is 18.", True),
        ("pot", POT.format("answer = 18"), False),
        ("pot", POT.format("# 2 * 9\nx = 18\nanswer = x"), False),
        ("pot", POT.format("def solution():\n    return 18"), False),
        ("pot", POT.format("answer = 2 * 9"), True),
        ("pot", POT.format("answer = sum(x)"), True),
        ("pot", "no program", False),
    ],
)  # fmt: skip
def test_work_is_seen(strategy: str, text: str, shown: bool) -> None:
    assert shows_work(Strategy(strategy), text) is shown


OPINIONS = [
    ("18", "The answer is 18.", "correct"),
    ("18", "The answer is 19.", "incorrect"),
    ("18", "no idea", "incorrect"),
    (r"\frac{1}{2}", r"\boxed{0.5}", "correct"),
    ("", "5", "unscored"),
]


@pytest.mark.parametrize(("gold", "text", "outcome"), OPINIONS)
def test_math_verify_alone(gold: str, text: str, outcome: str) -> None:
    assert math_verify_alone(MathItem(gold, text)).outcome == outcome


def test_the_second_opinion_is_asked_in_killable_workers() -> None:
    """One that hangs it is no opinion and does not stop the others."""
    items: Sequence[MathItem] = [MathItem("1", HANGS), *(MathItem(gold, text) for gold, text, _ in OPINIONS)]
    with MathPool(workers=1, timeout=2.0, opinion="math_verify") as pool:
        verdicts = list(pool.verdicts(items))
    assert verdicts[0].reason == "timeout"
    assert [str(v.outcome) for v in verdicts[1:]] == [outcome for _, _, outcome in OPINIONS]
