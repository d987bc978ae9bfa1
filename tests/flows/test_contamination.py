"""The contamination stage in a whole run, and what `compare` makes of such a run.

Wrong if `fail` lets the run reach a model, if `warn` hides a planted question, if clean scores count it, or if two
models of one run are not compared on its own problems.
"""

import json
from pathlib import Path

import pytest

from flows.smart import smart
from reasoner.errors import DataError, UsageError
from reasoner.evaluation.comparison import compare
from reasoner.evaluation.sources import find
from reasoner.home import Home
from reasoner.problems.paraphrases import paraphrase
from reasoner.problems.word_problems import generate
from reasoner.records import GenerationRequest
from reasoner.stages.report import read as read_report
from reasoner.store import open_ref
from tests.flows.test_smart_ways import settings, stages_run
from tests.support.solver import solve
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(1200)]


def lenient(request: GenerationRequest) -> str:
    """The solver, which has no answer to questions that it has not made itself."""
    try:
        return solve(request)
    except KeyError:
        return "Chain of Thought: The answer is 1."


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A run with an evaluation set of pool questions with other names."""
    planted = tmp_path / "planted.jsonl"
    rows = [
        {"question": paraphrase(p.question, ["names"], seed=1), "answer": p.gold}
        for p in generate(24, seed=0)
    ]
    planted.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = [
        f"data.evaluation.planted.path={planted}",
        "data.overlap=drop",  # a paraphrase may be another question of the pool, to the letter
        "engine.options.script=tests.flows.test_contamination:lenient",
    ]
    return settings(make_model(tmp_path / "model"), *more)


def test_planted_questions_stop_the_run_or_are_shown_with_clean_scores(home: Path, words: list[str]) -> None:
    with pytest.raises(DataError, match="in planted"):
        smart("smart-demo", [*words, "contamination.mode=fail"])
    assert set(stages_run(home)) == {"problems"}, "nothing was generated and nothing trained"

    ref = smart("smart-demo", words)
    report = read_report(open_ref(ref))
    found = report.contamination
    assert found is not None and found["sets"]["planted"]["matched"] >= 8
    scores = {(row["set"], row["label"]): row for row in found["scores"]}
    planted = scores["planted", "epoch 1"]
    assert planted["clean"]["n"] == planted["full"]["n"] - found["sets"]["planted"]["matched"]
    held, table = scores["held-out", "epoch 1"], next(t for t in report.tables if t.name == "held-out")
    assert held["full"]["k"] == next(row for row in table.rows if row.label == "epoch 1").accuracy.k
    assert "## Contamination" in (open_ref(ref) / "report.md").read_text()

    run = next(folder.name for folder in (home / "runs").iterdir() if (folder / "result.json").is_file())
    compared = compare(find(f"{run}@few-shot cot", Home(home)), find(run, Home(home)))
    one = next(found for found in compared.sets if found.dataset == "held-out")
    assert compared.b == f"{run}@epoch 1" and one.n == held["full"]["n"]
    assert one.accuracy_b * one.n == pytest.approx(held["full"]["k"])
    assert all(flip.text and flip.gold for flip in (*one.gained, *one.lost))
    with pytest.raises(UsageError, match="few-shot cot"):
        find(f"{run}@epoch 7", Home(home))
