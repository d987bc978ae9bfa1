"""The contamination stage: evaluation questions in the training pool, and scores without them.

`contamination.json` says how many of each set were matched, `matches.jsonl` which; after the evaluation `clean.json`
has every score twice, of all questions and of those that nothing matched.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoner.config.contamination import ContaminationConfig
from reasoner.errors import DataError
from reasoner.evaluation.answered import score_of
from reasoner.problems.near_duplicates import Match, search
from reasoner.records import Problem
from reasoner.stages.smart import write_json
from reasoner.statistics import estimate
from reasoner.store.rows import read_rows, write_rows

FACTS, MATCHES, CLEAN = "contamination.json", "matches.jsonl", "clean.json"
TRAINING = ("train", "validation")


def check(out: Path, problems: Path, config: ContaminationConfig) -> dict[str, Any]:
    """Search the prepared `problems` (train, validation; eval-NAME or test). DataError where `mode: fail` says so."""
    train = [Problem.from_row(row) for name in TRAINING for row in read_rows(problems / f"{name}.jsonl")]
    sets = evaluation_sets(problems)
    matches = search(train, sets, config)
    facts = {
        "mode": config.mode,
        "pool": len(train),
        "sets": {
            name: _counts(len(asked), [m for m in matches if m.set_name == name])
            for name, asked in sets.items()
        },
    }
    if config.mode == "fail":
        _stop(matches, facts, config)
    write_rows(out / MATCHES, [match.to_row() for match in matches])
    write_json(out / FACTS, facts)
    return facts


def evaluation_sets(problems: Path) -> dict[str, list[Problem]]:
    """The evaluation problems of a folder that a problems stage wrote, by set."""
    files = {path.stem.removeprefix("eval-"): path for path in sorted(problems.glob("eval-*.jsonl"))}
    if (problems / "test.jsonl").is_file():
        files["test"] = problems / "test.jsonl"
    return {name: [Problem.from_row(row) for row in read_rows(path)] for name, path in files.items()}


def clean_scores(
    out: Path, checked: Path, answers: Sequence[tuple[str, str, Path]], confidence: float = 0.95
) -> dict[str, Any]:
    """Every score in full and on unmatched questions only. `answers` are (set, model, folder of judged answers)."""
    matched: dict[str, set[str]] = {}
    for row in read_rows(checked / MATCHES):
        matched.setdefault(row["set_name"], set()).add(row["evaluation_id"])
    rows = []
    for name, label, folder in answers:
        for part, scores in scores_in(folder):
            known = {problem_id: score for problem_id, score in scores.items() if score is not None}
            clean = [
                score for problem_id, score in known.items() if problem_id not in matched.get(name, set())
            ]
            full = estimate(round(sum(known.values())), len(known), confidence)
            without = estimate(round(sum(clean)), len(clean), confidence)
            row = {"set": name, "label": label or part, "full": full.to_row(), "clean": without.to_row()}
            rows.append(row)
    for file in (FACTS, MATCHES):
        shutil.copyfile(checked / file, out / file)
    write_json(out / CLEAN, rows)
    return {"scores": len(rows)}


def scores_in(folder: Path) -> Iterator[tuple[str, Mapping[str, float | None]]]:
    """(part, score by problem) of a stage's judged answers: attempts, arms of plans, or episodes."""
    if (folder / "attempts.jsonl").is_file():
        yield "", {row["problem_id"]: score_of(row) for row in read_rows(folder / "attempts.jsonl")}
    elif (folder / "episodes.jsonl").is_file():
        from reasoner.methods.multiturn.episode import Episode

        episodes = [Episode.from_row(row) for row in read_rows(folder / "episodes.jsonl")]
        yield "", {e.problem_id: e.r1 if e.refinement is None else e.r2 for e in episodes}
    else:
        from reasoner.stages.planner import read_episodes, run_names

        for arm in run_names(folder):
            runs = read_episodes(folder, arm)
            yield arm, {e.problem_id: float(e.verdict.correct) if e.scored else None for e in runs}


def read(folder: Path) -> dict[str, Any]:
    """What the report shows: counts, matches and scores of a `clean_scores` folder."""
    return {
        **json.loads((folder / FACTS).read_text(encoding="utf-8")),
        "matches": read_rows(folder / MATCHES),
        "scores": json.loads((folder / CLEAN).read_text(encoding="utf-8")),
    }


def _counts(asked: int, matches: Sequence[Match]) -> dict[str, Any]:
    return {
        "questions": asked,
        "matched": len(matches),
        "kinds": dict(sorted(Counter(m.kind for m in matches).items())),
    }


def _stop(matches: Sequence[Match], facts: Mapping[str, Any], config: ContaminationConfig) -> None:
    over = {
        name: found
        for name, found in facts["sets"].items()
        if found["matched"] > config.max_share * found["questions"]
    }
    if not over:
        return
    first = next(match for match in matches if match.set_name in over)
    told = ", ".join(f"{found['matched']} of {found['questions']} in {name}" for name, found in over.items())
    raise DataError(
        f"evaluation questions stand in the training pool: {told}. The first ({first.kind}, likeness "
        f"{first.likeness:.2f}): {first.evaluation_text[:80]!r} and {first.train_text[:80]!r}. Take them out of the "
        "pool, or set contamination.mode=warn to train anyway and see the scores without them"
    )
