"""Judging of a file of completions.

Wrong if a row is parsed twice, if progress goes back, is silent or does not end at the number of rows, if a row loses
its place, or if a response without a strategy is run.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.smart import SmartVerifyConfig
from reasoner.errors import InfrastructureError
from reasoner.records import Strategy
from reasoner.sandbox import Sandbox
from reasoner.stages import verdicts
from reasoner.store.rows import write_rows

POLICY = {
    "cot": "Chain of Thought: 9 * 2 = 18. The answer is 18.",
    "pot": "Program of Thought: ```python\nanswer = 9 * 2\n```",
    "wrong": "Program of Thought: ```python\nanswer = 1 / 0\n```",
    "none": "It is 18.",
}


def row(
    text: str, strategy: str = "", index: int = 0, gold: str = "18", finish: str = "stop"
) -> dict[str, Any]:
    return {
        "problem_id": "p", "gold": gold, "strategy": strategy, "turn": 1, "tried": [], "tried_solutions": [],
        "index": index, "prompt_hash": "h", "text": text, "finish": finish, "prompt_tokens": 1, "completion_tokens": 1,
    }  # fmt: skip


@pytest.fixture
def completions(tmp_path: Path) -> Path:
    texts = ["cot", "pot", "none", "wrong", "cot", "pot"]
    write_rows(tmp_path / "completions.jsonl", [row(POLICY[name], index=i) for i, name in enumerate(texts)])
    return tmp_path


def test_rows_keep_their_place_and_progress_goes_up_to_their_number(
    sandbox: Sandbox, completions: Path
) -> None:
    shown: list[tuple[int, int]] = []
    facts = verdicts.judge(
        completions, completions, SmartVerifyConfig(), lambda f: shown.append((f["done"], f["total"]))
    )
    attempts = verdicts.read([completions])
    assert [a.index for a in attempts] == list(range(6))
    assert [a.verdict.reason for a in attempts] == [
        "equal",
        "equal",
        "no_strategy",
        "exception",
        "equal",
        "equal",
    ]
    assert facts["sandbox"] == sandbox.backend and facts["tolerance"] == 1e-6 and facts["verifier"] >= 1
    assert facts["outcomes"] == {"correct": 4, "incorrect": 2} and facts["attempts"] == 6
    assert shown == [(3, 6), (4, 6), (5, 6), (6, 6)], "what needs no program first, then a program at a time"


def test_every_row_is_parsed_once(completions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: Counter[str] = Counter()
    parse = verdicts._parts

    def counted(row: dict[str, Any]) -> verdicts.Parts:
        parsed[row["index"]] += 1
        return parse(row)

    monkeypatch.setattr(verdicts, "_parts", counted)
    monkeypatch.setattr(
        verdicts, "verify_solutions", lambda answers, **_: [verdicts.NO_STRATEGY] * len(answers)
    )
    verdicts.judge(completions, completions, SmartVerifyConfig())
    assert set(parsed.values()) == {1} and len(parsed) == 6


def test_a_few_shot_row_has_the_strategy_of_its_exemplars() -> None:
    rows = [row("The answer is 18.\n\nProblem: another one", "cot", finish="length"), row("no", "sub")]
    first, second = verdicts.judged(rows, SmartVerifyConfig())
    assert (first.strategy, first.finish, first.verdict.correct) == (Strategy.COT, "stop", True)
    assert (second.strategy, second.verdict.reason) == (Strategy.SUB, "unparsed")


EXCHANGED = {
    "prose as a program": ("Program of Thought: There are 9 * 2 = 18 pens.\nThe answer is 18.", True),
    "a program as prose": ("Chain of Thought: ```python\npens = 9\nanswer = pens * 2  # not 5\n```", True),
    "a wrong program as prose": ("Sub-questioning: ```python\n# 18\nanswer = 17 # 18\n```", False),
    "no name": ("```python\nanswer = 18\n```", False),
}


@pytest.mark.parametrize(("text", "right"), EXCHANGED.values(), ids=EXCHANGED)
def test_under_exchanged_names_the_form_decides_how_an_answer_is_read(
    sandbox: Sandbox, text: str, right: bool
) -> None:
    """Or shuffled labels would lose by their names what their solutions gain."""
    (attempt,) = verdicts.judged([row(text)], SmartVerifyConfig(), by_form=True)
    assert attempt.verdict.correct is right
    (named,) = verdicts.judged([row(text)], SmartVerifyConfig())
    assert not named.right and named.strategy is attempt.strategy


def test_a_few_shot_rows_strategy_is_known_and_stays() -> None:
    (attempt,) = verdicts.judged([row("It is 18.", "pot")], SmartVerifyConfig(), by_form=True)
    assert (attempt.strategy, attempt.verdict.reason) == (Strategy.POT, "unparsed")


def test_nothing_to_judge_is_no_failure(tmp_path: Path) -> None:
    write_rows(tmp_path / "completions.jsonl", [])
    assert verdicts.judge(tmp_path, tmp_path, SmartVerifyConfig())["attempts"] == 0


def test_too_many_unscored_stop_the_run_and_leave_no_file(tmp_path: Path) -> None:
    rows = [row("The answer is 18.", "cot", gold="a dozen and a half"), row("The answer is 18.", "cot")]
    write_rows(tmp_path / "completions.jsonl", rows)
    with pytest.raises(InfrastructureError, match=r"1 of 2 verdicts are unscored \(gold_unreadable 1\)"):
        verdicts.judge(tmp_path, tmp_path, SmartVerifyConfig())
    assert not (tmp_path / verdicts.FILE).exists()
