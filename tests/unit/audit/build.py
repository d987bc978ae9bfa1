"""A home folder with finished and unfinished runs in it, as the flow leaves them, made by hand."""

import json
from pathlib import Path
from typing import Any

from reasoner.records import ArtifactRef
from reasoner.store import Store
from reasoner.store.rows import write_rows

CONFIG: dict[str, Any] = {
    "seed": 0,
    "data": {"pool": "generated"},
    "few_shot": {"shots": 2},
    "verify": {"workers": 2, "timeout": 2.0, "max_unscored": 1.0},
    "train": {"lr": 0.1, "epochs": 1},
    "train_later": {"lr": 0.2},
}
IDS = ("0a57f539-813d-4d92-ae37-de81f54eec49", "0b11f539-813d-4d92-ae37-de81f54eec49")


def solution(
    text: str,
    gold: str,
    outcome: str,
    reason: str,
    *,
    strategy: str = "cot",
    finish: str = "stop",
    index: int = 0,
) -> dict[str, Any]:
    """What the model said to a question, and what was recorded of it."""
    return {"text": text, "gold": gold, "outcome": outcome, "reason": reason, "strategy": strategy, "finish": finish,
            "index": index}  # fmt: skip


def completion_row(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "problem_id": f"p{given['index']}", "gold": given["gold"], "strategy": given["strategy"], "turn": 1,
        "tried": [], "tried_solutions": [], "index": given["index"], "prompt_hash": "h", "text": given["text"],
        "finish": given["finish"], "prompt_tokens": 1, "completion_tokens": 1,
    }  # fmt: skip


def attempt_row(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "problem_id": f"p{given['index']}", "strategy": given["strategy"], "turn": 1, "tried": [],
        "index": given["index"], "text": given["text"], "solution": given["text"], "finish": given["finish"],
        "verdict": {"outcome": given["outcome"], "reason": given["reason"], "extracted": None},
    }  # fmt: skip


class Built:
    """A store and run folders."""

    def __init__(self, home: Path) -> None:
        self.home, self.store = home, Store(home / "artifacts")

    def put(
        self, kind: str, stage: str, arguments: dict[str, Any], rows: list[dict[str, Any]], file: str
    ) -> ArtifactRef:
        with self.store.writer(kind, {"stage": stage, "arguments": arguments}) as draft:
            write_rows(draft.path / file, rows)
        return draft.ref

    def attempts(self, given: list[dict[str, Any]], *, split: str = "pool", **changes: Any) -> ArtifactRef:
        """Few-shot completions of one split and their verdicts, made with CONFIG except for `changes`."""
        config = CONFIG | changes
        problems = self.put("problems", "problems", {"data": config["data"], "seed": config["seed"]},
                            [{"of": str(config["data"])}], "train.jsonl")  # fmt: skip
        arguments = {"problems": problems.to_row(), "split": split, "strategy": "cot", "few_shot": config["few_shot"],
                     "seed": config["seed"]}  # fmt: skip
        rows = [completion_row(one) for one in given]
        completions = self.put("completions", "few-shot", arguments, rows, "completions.jsonl")
        judged = {"completions": completions.to_row(), "config": config["verify"]}
        return self.put("attempts", "verify", judged, [attempt_row(one) for one in given], "attempts.jsonl")

    def run(self, number: int, attempts: list[ArtifactRef] | None, config: dict[str, Any] = CONFIG) -> Path:
        """A run folder; with `attempts` it is finished and its report was made from them."""
        folder = self.home / "runs" / f"smart-demo-{IDS[number]}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        if attempts is not None:
            analysis = self.put("analysis", "analysis", {"attempts": [ref.to_row() for ref in attempts]},
                                [{"run": number}], "analysis.jsonl")  # fmt: skip
            report = self.put(
                "report", "report", {"analysis": analysis.to_row(), "title": "x"}, [{"run": number}], "r"
            )
            (folder / "result.json").write_text(json.dumps({"report": report.to_row()}))
        return folder
