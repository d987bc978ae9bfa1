"""Finds the answers that somebody means by a word: a file of rows, an evaluation, a run, or a part of one.

    rows.jsonl  FOLDER  evaluation/DIGEST  RUN  RUN@LABEL  RUN@baseline

A label names one model of a run: `epoch 1`, a variant, `few-shot cot` (SMART), an arm such as `untrained` (planner),
`baseline`, `trained` or a control (multi-turn). Without one it is the trained model. Read-only.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reasoner.audit.runs import Lineage, find_run
from reasoner.config.data import FILE_SUFFIXES
from reasoner.errors import ArtifactError, DataError, UsageError
from reasoner.evaluation.answered import UNNAMED, Answered, Answers, answered_from_rows
from reasoner.home import Home
from reasoner.methods.multiturn.metrics import reward_at, trained_turn
from reasoner.methods.planner.evaluation import TRAINED
from reasoner.problems.files import read_file
from reasoner.records import ArtifactRef
from reasoner.store import Store
from reasoner.store.rows import read_rows

KIND = "evaluation"
ROWS, FACTS = "rows.jsonl", "evaluation.json"
SHORTEST = 6
"""Hex digits of a digest that are enough to name an evaluation."""

Row = dict[str, Any]
Group = tuple[str, Callable[[], Iterable[Row]]]
"""A data set and its rows."""


def find(word: str, home: Home) -> Answered:
    """The answers that `word` means. UsageError for none or several, DataError for unusable rows."""
    path = Path(word).expanduser()
    if path.is_file():
        if path.suffix.lower() not in FILE_SUFFIXES:
            raise UsageError(f"{word}: the name of a file of rows ends in {', '.join(FILE_SUFFIXES)}")
        return answered_from_rows(word, [row for _, row in read_file(path).rows])
    if path.is_dir() and (found := _plain_folder(path)) is not None:
        return answered_from_rows(word, read_rows(found))
    if (folder := _evaluation(word, home)) is not None:
        return answered_from_rows(_name(folder, word), read_rows(folder / ROWS))
    name, _, label = word.partition("@")
    try:
        folder = find_run(name, home)
    except UsageError as error:
        raise UsageError(f"{error}. A file of rows or an evaluation ({KIND}/DIGEST) will do, too") from None
    return _of_run(folder, label, home)


def _plain_folder(folder: Path) -> Path | None:
    """The rows in a folder that is an evaluation or holds attempts."""
    return next((folder / name for name in (ROWS, "attempts.jsonl") if (folder / name).is_file()), None)


def _evaluation(word: str, home: Home) -> Path | None:
    """The folder of an evaluation in the store, by (the beginning of) its digest."""
    digest = word.removeprefix(f"{KIND}/")
    if len(digest) < SHORTEST or set(digest) - set("0123456789abcdef"):
        return None
    store = Store(home.artifacts)
    found = [ref for ref in store.list(KIND) if ref.digest.startswith(digest)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} evaluations begin with {digest!r}; give more of the digest")
    folder = store.open(found[0]) if found else None
    return folder if folder is not None and (folder / ROWS).is_file() else None


def _name(folder: Path, word: str) -> str:
    try:
        return str(json.loads((folder / FACTS).read_text(encoding="utf-8"))["model"])
    except (OSError, ValueError, KeyError):
        return word


def _of_run(folder: Path, label: str, home: Home) -> Answered:
    """The answers of one model of a finished run."""
    result = folder / "result.json"
    if not result.is_file():
        raise DataError(f"run {folder.name} has no result yet; finish it with the same command, then compare")
    home = Home(folder.parent.parent) if folder.parent.name == "runs" else home
    store = Store(home.artifacts)
    lineage = Lineage(store, {})
    report = ArtifactRef.from_row(json.loads(result.read_text(encoding="utf-8"))["report"])
    arguments = lineage.arguments(report)
    if not arguments:
        raise ArtifactError(f"run {folder.name}: its report's manifest is gone; run the same command again")
    models = _models(arguments, lineage, store)
    chosen = label or next((name for name in reversed(models) if models[name][1]), "")
    if chosen not in models:
        raise UsageError(f"run {folder.name} has no {chosen!r}; there are: {', '.join(models)}")
    texts = _texts(arguments, store)
    rows = (_with_text(row, name, texts) for name, make in models[chosen][0] for row in make())
    return answered_from_rows(f"{folder.name}@{chosen}", rows)


Models = dict[str, tuple[list[Group], bool]]
"""By label: the rows by data set, and whether the model is a result of the run."""


def _models(arguments: Mapping[str, Any], lineage: Lineage, store: Store) -> Models:
    if "final" in arguments:
        return _multi_turn(arguments, lineage, store)
    models: Models = {}
    for encoded in arguments["evaluations"]:
        given = lineage.arguments(ArtifactRef.from_row(encoded))
        groups = _planner(given, store) if "runs" in given else _smart(given, store)
        for label, make, is_result in groups:
            models.setdefault(label, ([], is_result))[0].append((str(given.get("name", UNNAMED)), make))
    return models


def _smart(given: Mapping[str, Any], store: Store) -> Iterator[tuple[str, Callable[[], Iterable[Row]], bool]]:
    for encoded in given.get("few_shot", []):
        ref = ArtifactRef.from_row(encoded)
        first = next(iter(_read(store, ref, "attempts.jsonl")), {})
        yield f"few-shot {first.get('strategy', '')}", lambda r=ref: _read(store, r, "attempts.jsonl"), False  # type: ignore[misc]
    for answered in given.get("answered", []):
        ref, is_policy = ArtifactRef.from_row(answered["turn1"]), answered["kind"] == "policy"
        yield str(answered["label"]), lambda r=ref: _read(store, r, "attempts.jsonl"), is_policy  # type: ignore[misc]


def _planner(
    given: Mapping[str, Any], store: Store
) -> Iterator[tuple[str, Callable[[], Iterable[Row]], bool]]:
    from reasoner.stages.planner import run_names

    ref = ArtifactRef.from_row(given["runs"])
    for arm in run_names(store.open(ref)):
        yield arm, lambda a=arm: _episodes_of_arm(store.open(ref), a), arm == TRAINED  # type: ignore[misc]


def _multi_turn(arguments: Mapping[str, Any], lineage: Lineage, store: Store) -> Models:
    given = lineage.arguments(ArtifactRef.from_row(arguments["trained"]))
    turn = trained_turn(given.get("config", {}).get("method", ""))
    refs = {
        "baseline": arguments["baseline"],
        **dict(zip(arguments["names"], arguments["controls"], strict=True)),
    }
    refs["trained"] = arguments["final"]
    refs.pop("independent", None)  # two samples of another kind: no second turn to compare
    return {
        label: (
            [("test", partial(_turns, store, ArtifactRef.from_row(encoded), turn))],
            label == "trained",
        )
        for label, encoded in refs.items()
    }


def _episodes_of_arm(folder: Path, arm: str) -> Iterator[Row]:
    from reasoner.stages.planner import read_episodes

    for episode in read_episodes(folder, arm):
        row = {"question": episode.question, "gold": episode.gold, "answer": episode.verdict.extracted}
        yield {"problem_id": episode.problem_id, "outcome": episode.verdict.outcome, **row}


def _turns(store: Store, ref: ArtifactRef, turn: int) -> Iterator[Row]:
    """The outcomes of the turn that the run's method trains."""
    from reasoner.methods.multiturn.episode import Episode

    for row in _read(store, ref, "episodes.jsonl"):
        episode = Episode.from_row(row)
        reward = reward_at(episode, turn)
        correct = None if reward is None else reward == 1
        yield {"problem_id": episode.problem_id, "index": episode.index, "correct": correct}


def _read(store: Store, ref: ArtifactRef, file: str) -> list[Row]:
    return read_rows(store.open(ref) / file)


def _texts(arguments: Mapping[str, Any], store: Store) -> dict[str, Row]:
    """Question and gold by problem id; empty where the problems are no longer there."""
    try:
        folder = store.open(ArtifactRef.from_row(arguments["problems"]))
    except (ArtifactError, KeyError):
        return {}
    files = [*folder.glob("eval-*.jsonl"), *folder.glob("test.jsonl")]
    return {row["id"]: row for path in sorted(files) for row in read_rows(path)}


def _with_text(row: Row, dataset: str, texts: Mapping[str, Row]) -> Row:
    text = texts.get(str(row["problem_id"]), {})
    known = {"question": text.get("question", ""), "gold": text.get("gold", ""), "dataset": dataset}
    return {**row, **{name: row.get(name) or value for name, value in known.items()}}


__all__ = ["Answered", "Answers", "find"]
