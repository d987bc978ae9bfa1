"""Can a question tell whether splitting it helps? An upper bound, roughly, for a planner that decides nothing else.

    python benchmarks/split_gain.py TRAIN TEST [--out build/split_gain.json]

TRAIN and TEST are folders of the stages `plan-arms train` and `plan-arms eval-NAME` of a planner's run, with
runs-atomic.jsonl and runs-decomposed.jsonl (or .jsonl.gz, as benchmarks/card/collect.py leaves them). The plans of the
first are the base's, those of the second the trained planner's; questions whose split plan is invalid are counted and
left out. What splitting gains on a question is 1 where the split run alone is right, −1 where the whole one alone is,
else 0. Ridge regression and boosted trees learn it from TRAIN's questions (their sentence embedding, their length,
their numbers); the threshold from which on they split is the best one in ten-fold cross-validation. Said are, for TEST:
how many are split, what is gained by it, the correlation of forecast and gain, and what the best threshold, chosen on
TEST itself, would gain.
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import write  # noqa: E402

Embed = Callable[[Sequence[str]], list[list[float]]]
FOLDS = 10


def read(folder: Path, name: str) -> dict[str, tuple[str, int | None]]:
    """Question and whether it was answered rightly, None without a valid plan; unscored runs are left out."""
    from reasoner.methods.planner.episodes import episode_of

    path = folder / f"runs-{name}.jsonl"
    packed = Path(f"{path}.gz")
    text = path.read_text() if path.is_file() else gzip.decompress(packed.read_bytes()).decode()
    rows = [json.loads(line) for line in text.splitlines()]
    judged = [(row["question"], episode_of(row)) for row in rows]
    return {
        e.problem_id: (question, int(e.verdict.correct) if e.plan is not None else None)
        for question, e in judged
        if e.scored
    }


def gains(folder: Path) -> tuple[list[str], list[int], list[int], int]:
    """Questions, whether each was solved whole and split, and how many had no valid split plan."""
    whole, split = read(folder, "atomic"), read(folder, "decomposed")
    both = [(question, one, split[n][1]) for n, (question, one) in whole.items() if n in split]
    valid = [(question, one, two) for question, one, two in both if one is not None and two is not None]
    return (
        [q for q, *_ in valid],
        [one for _, one, _ in valid],
        [two for *_, two in valid],
        len(both) - len(valid),
    )


def shape(question: str) -> list[float]:
    """Words, numbers, sentences and letters."""
    return [len(question.split()), len(re.findall(r"\d+", question)), question.count("."), len(question)]


def thresholds(forecasts: Any) -> list[float]:
    """Every place to cut the forecasts, from splitting all to splitting none."""
    found = sorted(set(forecasts.tolist()))
    return [found[0] - 1.0, *found]


def measure(
    train: tuple[Sequence[str], Sequence[int]], test: tuple[Sequence[str], Sequence[int]], embed: Embed
) -> dict[str, dict[str, float]]:
    """Forecasts of the gain by model, learnt from `train` (questions, gains in −1, 0, 1), on `test`."""
    import numpy as np
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import cross_val_predict

    (questions, y), (asked, truth) = (
        (np.hstack([np.array([shape(q) for q in texts]), np.array(embed(texts))]), np.array(found, float))
        for texts, found in (train, test)
    )
    middle, spread = questions.mean(0), questions.std(0) + 1e-9
    questions, asked = (questions - middle) / spread, (asked - middle) / spread
    models = {
        "ridge": RidgeCV(np.logspace(0, 5, 12)),
        "boosted trees": GradientBoostingRegressor(
            n_estimators=60, max_depth=2, subsample=0.7, random_state=0
        ),
    }
    result = {}
    for name, model in models.items():
        held_out = cross_val_predict(model, questions, y, cv=FOLDS)
        threshold = max(thresholds(held_out), key=lambda t: (y[held_out > t].sum(), t))
        forecast = model.fit(questions, y).predict(asked)
        best = max(truth[forecast > t].sum() for t in [threshold, *thresholds(forecast)])
        result[name] = {
            "split": int((forecast > threshold).sum()), "gained": int(truth[forecast > threshold].sum()),
            "correlation": round(float(np.corrcoef(forecast, truth)[0, 1]), 3), "gained_at_best": int(best),
        }  # fmt: skip
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "split_gain.json")
    given = parser.parse_args()
    from reasoner.methods.planner.independence import SentenceEmbedder

    found: dict[str, Any] = {}
    learnt = []
    for name, folder in (("train", given.train), ("test", given.test)):
        questions, whole, split, invalid = gains(folder)
        n, gained = len(questions), [s - w for w, s in zip(whole, split, strict=True)]
        learnt.append((questions, gained))
        found[name] = {
            "n": n, "invalid_plans": invalid, "whole": sum(whole) / n, "split": sum(split) / n,
            "split_alone": gained.count(1) / n, "whole_alone": gained.count(-1) / n,
        }  # fmt: skip
    found["forecasts"] = measure(*learnt, SentenceEmbedder())
    write(found, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
