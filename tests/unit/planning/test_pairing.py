"""Planned stages under the keys that they had when they ran.

Wrong if a stage whose inputs were not made yet is not found again, or if one is taken for another.
"""

import json
from pathlib import Path

from reasoner.planning import plan as plans
from reasoner.planning.estimate import Estimate
from reasoner.planning.plan import Step


def step(label: str, key: str, state: str = "to run") -> Step:
    return Step(label.split()[0], label, key, state, "", Estimate(1.0))


def keys(folder: Path, steps: list[Step], ran: list[tuple[str, str]]) -> list[str]:
    lines = [json.dumps({"label": label, "key": key, "seconds": 2.0}) for label, key in ran]
    (folder / plans.TIMINGS).write_text("\n".join([*lines, '{"label": "train ep']))
    return [found.key for found in plans.with_keys_of_run(steps, folder)]


def test_by_key_first_then_by_label_in_their_order(tmp_path: Path) -> None:
    steps = [
        step("few-shot cot pool", "f1"),
        step("verify cot", "v?"),
        step("verify cot", "w?"),
        step("train", "t?"),
    ]
    ran = [
        ("few-shot cot pool", "f1"),
        ("verify cot", "v"),
        ("verify cot", "w"),
        ("verify cot", "w"),
        ("train", "t"),
    ]
    assert keys(tmp_path, steps, ran) == ["f1", "v", "w", "t"]


def test_nothing_is_guessed(tmp_path: Path) -> None:
    steps = [
        step("verify cot", "v?"),
        step("verify cot", "w?"),
        step("model", "m", "cached"),
        step("train", "t?"),
    ]
    assert keys(tmp_path, steps, [("verify cot", "w"), ("model", "m2")]) == ["v?", "w?", "m", "t?"]
    assert keys(tmp_path, [step("train", "t"), step("train", "u?")], [("train", "t"), ("train", "u")]) == [
        "t",
        "u",
    ]
    (tmp_path / plans.TIMINGS).unlink()
    assert [found.key for found in plans.with_keys_of_run(steps, tmp_path)] == ["v?", "w?", "m", "t?"]
