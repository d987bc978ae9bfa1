"""docs/smart-records.md is the specification: every cell of its tables against what the code makes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from reasoner.config.smart import Epoch1Config, Epoch2Config
from reasoner.methods.smart import analysis, epoch1, epoch2
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.selection import Selection
from reasoner.records import Problem, Strategy
from tests.unit.methods.smart.build import POT, few_shot, problem, samples, shapes

PAGE = Path(__file__).resolve().parents[4] / "docs" / "smart-records.md"
CASES = ["---", "+--", "-+-", "--+", "++-", "+-+", "-++", "+++"]
SEEDS = range(40)

EPOCH1 = {
    "defaults": {},
    "refine=false": {"refine": False},
    "direct=priority": {"direct": "priority", "priority": ("pot", "cot", "sub")},
    "direct=one_random": {"direct": "one_random"},
    "refine_pairs=one_random": {"refine_pairs": "one_random"},
    "drop_easy=true": {"drop_easy": True},
    "direct_subsample=0.5": {"direct_subsample": 0.5},
}
EPOCH2 = {
    "biasing=none": {"biasing": "none"},
    "biasing=add": {"biasing": "add"},
    "biasing=replace": {"biasing": "replace"},
    "biasing=none keep_per_strategy=2": {"biasing": "none", "keep_per_strategy": 2},
    "biasing=add disagreement_only=true": {"biasing": "add", "disagreement_only": True},
}
ACCEPT = {
    "biasing=add accept=majority": {"biasing": "add"},
    "biasing=add accept=any": {"biasing": "add", "accept": "any"},
    "biasing=none accept=any": {"biasing": "none", "accept": "any"},
}
SETS = {
    "defaults": {},
    "balance_strategies=true": {"balance_strategies": True},
    "rarity=0.5": {"rarity": 0.5},
    "rarity=1": {"rarity": 1.0},
    "drop_easy=true": {"drop_easy": True},
    "max_records=10": {"max_records": 10},
}
LATER_SETS = {
    "defaults": {},
    "balance_strategies=true": {"balance_strategies": True},
    "rarity=0.5": {"rarity": 0.5},
    "rarity=1": {"rarity": 1.0},
    "disagreement_only=true": {"disagreement_only": True},
    "max_records=10": {"max_records": 10},
}


def tables() -> list[list[list[str]]]:
    """The tables of the page, as rows of cell texts without code marks."""
    found: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(PAGE.read_text())
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            found[-1][-1].append(tokens[i + 1].content.replace("`", ""))
    return found


TABLES = tables()


def cells(number: int) -> list[tuple[str, str, str]]:
    """(row, column, cell) of a table."""
    head, *rows = TABLES[number]
    return [(row[0], column, cell) for row in rows for column, cell in zip(head[1:], row[1:], strict=True)]


def test_the_tables_are_whole() -> None:
    assert [row[0] for row in TABLES[0][1:]] == CASES == [row[0] for row in TABLES[1][1:]]
    assert TABLES[0][0][1:] == list(EPOCH1) and TABLES[1][0][1:] == list(EPOCH2)
    assert [row[0] for row in TABLES[2][1:]] == CASES and TABLES[2][0][1:] == list(ACCEPT)
    assert [row[0] for row in TABLES[3][1:]] == list(SETS)
    assert [row[0] for row in TABLES[4][1:]] == list(LATER_SETS)


def check(cell: str, make: Callable[[int], Selection]) -> None:
    """`cot` is a direct record, `sub>cot` a refine record; of those in brackets each seed draws as many as said."""
    fixed, drawn, count = Counter[tuple[str, str]](), Counter[tuple[str, str]](), 0
    for word in cell.replace("–", "").split():
        if word.startswith("["):
            count, names = int(word[1 : word.index(":")]), word[word.index(":") + 1 : -1].split("|")
            drawn = Counter(shape(name) for name in names)
        else:
            fixed[shape(word)] += 1
    seen: set[tuple[str, str]] = set()
    for seed in SEEDS:
        made = Counter(shapes(make(seed).records))
        rest = made - fixed
        assert not fixed - made and rest.total() == count and rest <= drawn, (cell, made)
        seen |= set(rest)
    assert seen == set(drawn), "every candidate is drawn by some seed"


def shape(word: str) -> tuple[str, str]:
    tried, _, target = word.rpartition(">")
    return tried or "none", target


@pytest.mark.parametrize(("case", "flags", "cell"), cells(0))
def test_epoch_1(case: str, flags: str, cell: str) -> None:
    owner = problem()
    config = Epoch1Config(**EPOCH1[flags])  # type: ignore[arg-type]
    check(cell, lambda seed: epoch1.records([owner], few_shot(owner, case), config, seed))


@pytest.mark.parametrize(("case", "flags", "cell"), cells(1))
def test_epoch_2(case: str, flags: str, cell: str) -> None:
    """Two samples a strategy; at turn 2 each strategy does as at turn 1, but the program always succeeds."""
    owner, marks = problem(), dict(zip(Strategy, case, strict=True))
    config = Epoch2Config(**EPOCH2[flags])  # type: ignore[arg-type]
    contested = analysis.contested(few_shot(owner, case)) if config.disagreement_only else None
    turns = both_turns(owner, marks, config, {"+": (2, 0), "-": (0, 2)})
    check(cell, lambda seed: epoch2.records([owner], *turns, config, seed, contested=contested))


@pytest.mark.parametrize(("case", "flags", "cell"), cells(2))
def test_accept(case: str, flags: str, cell: str) -> None:
    """As above, with one right and one wrong sample where a strategy succeeds."""
    owner, marks = problem(), dict(zip(Strategy, case, strict=True))
    config = Epoch2Config(**ACCEPT[flags])  # type: ignore[arg-type]
    turns = both_turns(owner, marks, config, {"+": (1, 1), "-": (0, 2)})
    check(cell, lambda seed: epoch2.records([owner], *turns, config, seed))


def both_turns(
    owner: Problem, marks: dict[Strategy, str], config: Epoch2Config, made: dict[str, tuple[int, int]]
) -> tuple[list[Attempt], list[Attempt]]:
    """Samples of both turns; `made` says how many are right and wrong where a strategy succeeds or fails."""

    def asked(outcomes: dict[Strategy, str], tried: tuple[Strategy, ...]) -> list[Attempt]:
        groups = [(s, *made[mark]) for s, mark in outcomes.items() if s not in tried]
        return samples(owner, *groups, tried=tried)

    turn1 = asked(marks, ())
    queue, _ = epoch2.turn2_queue([owner], turn1, config, 0)
    return turn1, [a for t in queue for a in asked(marks | {POT: "+"}, t.tried)]


def ten_questions() -> list[tuple[Problem, str]]:
    """The eight cases, one question each, and two more of `--+`."""
    return [(problem(n), case) for n, case in enumerate([*CASES, "--+", "--+"])]


def check_counts(row: list[str], make: Callable[[int], Selection]) -> None:
    """Counts of cot, sub, pot, together."""
    for seed in SEEDS:
        chosen = make(seed)
        counts = [*chosen.by_strategy.values(), len(chosen.records)]
        for count, cell in zip(counts, row[1:], strict=True):
            assert cell == "any" or count == int(cell), (row, counts)


@pytest.mark.parametrize("row", TABLES[3][1:], ids=lambda row: row[0])
def test_whole_sets(row: list[str]) -> None:
    problems = [owner for owner, _ in ten_questions()]
    attempts = [a for owner, case in ten_questions() for a in few_shot(owner, case)]
    config = Epoch1Config(**SETS[row[0]])  # type: ignore[arg-type]
    check_counts(row, lambda seed: epoch1.records(problems, attempts, config, seed))


@pytest.mark.parametrize("row", TABLES[4][1:], ids=lambda row: row[0])
def test_whole_sets_of_later_epochs(row: list[str]) -> None:
    """Samples as in `test_epoch_2`."""
    problems = [owner for owner, _ in ten_questions()]
    config = Epoch2Config(**LATER_SETS[row[0]])  # type: ignore[arg-type]
    turn1: list[Attempt] = []
    turn2: list[Attempt] = []
    for owner, case in ten_questions():
        marks = dict(zip(Strategy, case, strict=True))
        first, second = both_turns(owner, marks, config, {"+": (2, 0), "-": (0, 2)})
        turn1 += first
        turn2 += second
    shown = [a for owner, case in ten_questions() for a in few_shot(owner, case)]
    contested = analysis.contested(shown) if config.disagreement_only else None
    check_counts(row, lambda seed: epoch2.records(problems, turn1, turn2, config, seed, contested=contested))
