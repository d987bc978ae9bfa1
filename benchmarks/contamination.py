"""How many planted paraphrases the contamination check finds, and what it calls contaminated that is not.

    python benchmarks/contamination.py --train gsm8k_train.jsonl --test gsm8k_test.jsonl --out contamination.json

Recall: every test question, paraphrased by rules (reasoner/problems/paraphrases.py), is put among the training
questions, the originals are searched. False alarms: the test questions are searched in the training questions as they
are; matches are listed, for a person to say which of them are the same question after all. `--halves` does both within
one file: the half whose SHA-256 is odd is searched in the other. The rule and its threshold were chosen so, on GSM8K's
training set. JSON on standard output, too.
"""

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from reasoner.config.contamination import ContaminationConfig
from reasoner.problems.files import read_file
from reasoner.problems.near_duplicates import VERSION, Pool
from reasoner.problems.paraphrases import RULES, paraphrase
from reasoner.problems.paraphrases import VERSION as RULES_VERSION
from reasoner.records import Problem
from reasoner.statistics import estimate

KINDS = {**{name: [name] for name in RULES}, "all together": list(RULES)}
SEED = 7


def read(path: Path, name: str) -> list[Problem]:
    """Questions with a running number as gold: golds do not matter here."""
    return [
        Problem.make(str(row["question"]), str(i), name) for i, (_, row) in enumerate(read_file(path).rows)
    ]


def second_half(problem: Problem) -> bool:
    """Whether the question belongs to the half that is searched; the same in every run."""
    return hashlib.sha256(problem.question.encode()).digest()[-1] % 2 == 1


def planted(test: list[Problem], rules: list[str]) -> list[Problem]:
    """One paraphrase a question; its gold is the question's number, by which it is known again."""
    return [Problem.make(paraphrase(p.question, rules, SEED), p.gold, "planted") for p in test]


def measure(train: list[Problem], test: list[Problem], config: ContaminationConfig) -> dict[str, Any]:
    """Recall a kind of paraphrase, and the matches without any."""
    started = time.monotonic()
    pool = Pool(train, config)
    built = time.monotonic() - started
    alarms = pool.search(test, "test")
    searched = time.monotonic() - started - built
    recall = {}
    for kind, rules in KINDS.items():
        copies = planted(test, rules)
        changed = [i for i, (p, q) in enumerate(zip(copies, test, strict=True)) if p.group != q.group]
        found = Pool([*train, *copies], config).search([test[i] for i in changed], "test")
        owner = {p.id: p.gold for p in copies}
        number = {p.id: p.gold for p in test}
        hits = {number[m.evaluation_id] for m in found if owner.get(m.train_id) == number[m.evaluation_id]}
        recall[kind] = {
            "kinds": dict(Counter(m.kind for m in found)),
            "found": shown(len(hits), len(changed)),
        }  # fmt: skip
    listed = [m.to_row() for m in alarms]
    return {
        "recall": recall, "false_alarms": shown(len(alarms), len(test)), "matches": listed,
        "seconds": {"build": round(built, 1), "search": round(searched, 1)},
    }  # fmt: skip


def shown(k: int, n: int) -> dict[str, Any]:
    return estimate(k, n).to_row()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given_by = parser.add_mutually_exclusive_group(required=True)
    given_by.add_argument("--test", type=Path)
    given_by.add_argument("--halves", action="store_true")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--threshold", type=float, default=ContaminationConfig().threshold)
    parser.add_argument("--numbers", type=float, default=ContaminationConfig().numbers)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    config = ContaminationConfig(threshold=given.threshold, numbers=given.numbers)
    train = read(given.train, "train")
    test = read(given.test, "test") if given.test else [p for p in train if second_half(p)]
    if given.halves:
        train = [p for p in train if not second_half(p)]
    facts = {
        "config": config.model_dump(), "check_version": VERSION, "rules_version": RULES_VERSION, "seed": SEED,
        "train": len(train), "test": len(test), **measure(train, test, config),
    }  # fmt: skip
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    json.dump({k: v for k, v in facts.items() if k != "matches"}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
