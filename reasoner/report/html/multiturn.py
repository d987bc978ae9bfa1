"""Gathers a multi-turn run: both turns' accuracy, controls, signals, curves, and every episode turn by turn."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.errors import ReasonerError
from reasoner.methods.multiturn.episode import Episode, Turn
from reasoner.methods.multiturn.metrics import trained_turn
from reasoner.prompts.turns import load_turns
from reasoner.records import ArtifactRef
from reasoner.report import independent, second_looks
from reasoner.report.html.charts import line_chart
from reasoner.report.html.prompts import MARK, PLAIN
from reasoner.report.html.sections import Measured, Page
from reasoner.report.html.smart import read_problems
from reasoner.report.html.sources import Artifact, RunSource
from reasoner.report.html.trajectories import Collection, Prompt, Trajectory
from reasoner.report.multiturn import MEANING, SIGNALS, against
from reasoner.statistics import Estimate, estimate
from reasoner.store.rows import iter_rows, read_rows

FINAL, BASELINE, INDEPENDENT = "trained", "untrained", "independent"
CURVES = (
    ("Accuracy of training episodes", ("acc_t1", "acc_t2")),
    ("Δ of the second turn while training", ("delta", "i_to_c", "c_to_i")),
    ("KL to the reference", ("attempt_kl", "feedback_kl", "refinement_kl")),
    ("Tokens a turn", ("attempt_tokens", "feedback_tokens", "refinement_tokens")),
    ("Leaks", ("leak_rate", "new_leak_rate")),
)
NAMES = {
    "acc_t1": "turn 1",
    "acc_t2": "turn 2",
    "i_to_c": "wrong to right",
    "c_to_i": "right to wrong",
    "delta": "Δ",
}


@dataclass
class Turns:
    """Rows of both turns, and sentences of what they were compared with."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """`label`, `two` (a row of `TwoTurns`), `meaning`."""
    signals: list[tuple[str, float | None, float | None]] = field(default_factory=list)
    """Name, trained, untrained."""
    sentences: list[str] = field(default_factory=list)


def gather(source: RunSource, page: Page, collection: Collection, chat: bool) -> None:
    """Fill the page and the collection. `chat` is not used: an evaluation keeps no hash of its prompts."""
    read_problems(source, collection)
    prompt = _prompt(source, collection)
    page.turns = turns = Turns()
    found: dict[str, list[Episode]] = {}
    signals: dict[str, dict[str, float]] = {}
    stages: dict[str, dict[int, int]] = {}
    for label, folder in _evaluations(source):
        facts = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
        found[label] = [Episode.from_row(row) for row in iter_rows(folder / "episodes.jsonl")]
        signals[label] = facts.get("signals", {})
        if "two_turns" in facts:
            two = {**facts["two_turns"]}
            two |= {turn: Estimate(**two[turn]) for turn in ("acc_t1", "acc_t2")}
            turns.rows.append({"label": label, "two": two, "meaning": MEANING.get(label, "")})
        stages[label] = _add_all(collection, page, found[label], label, "test", prompt)
    if FINAL in stages and BASELINE in stages:
        collection.add_flips("test", {name: stages[name] for name in (BASELINE, FINAL)})
    turns.sentences += [
        second_looks.sentence(label.capitalize(), second_looks.measure(found[label]))
        for label in (BASELINE, FINAL)
        if label in found
    ]
    turn = trained_turn(str(source.config.get("method", "")))
    _compare(turns, found, turn)
    if INDEPENDENT in found:
        equal = independent.measure(found[INDEPENDENT], found.get(FINAL, []), turn)
        if equal["n"]:
            said = independent.sentence(equal)
            turns.sentences.append(f"{said[0].upper()}{said[1:]}.")
    if FINAL in signals:
        before, after = signals.get(BASELINE, {}), signals[FINAL]
        turns.signals = [(n.replace("_", " "), after[n], before.get(n)) for n in SIGNALS if n in after]
    for policies in source.of("multiturn-train"):
        trained = source.open(policies.ref)
        if trained is not None:
            _add_training(trained, page, collection, prompt)


def _evaluations(source: RunSource) -> Iterator[tuple[str, Path]]:
    """Label and folder of every evaluation, the untrained and the trained pair first."""
    reports = source.of("multiturn-report")
    named = _reported(reports[-1]) if reports else _made(source)
    rank = {BASELINE: 0, FINAL: 1}
    for label, ref in sorted(named, key=lambda pair: (rank.get(pair[0], 2), pair[0])):
        folder = source.open(ref)
        if folder is not None:
            yield label, folder


def _reported(report: Artifact) -> list[tuple[str, ArtifactRef]]:
    """What the run's report was made from; equal evaluations are one artifact, which may be several of these."""
    given = report.arguments
    named = [(BASELINE, given["baseline"]), (FINAL, given["final"])]
    named += zip(given.get("names", []), given.get("controls", []), strict=True)
    return [(str(label), ArtifactRef.from_row(row)) for label, row in named]


def _made(source: RunSource) -> list[tuple[str, ArtifactRef]]:
    """What there is of a run without a report."""
    named = []
    for artifact in source.of("multiturn-evaluate", "multiturn-control"):
        arguments = artifact.arguments
        if artifact.stage == "multiturn-control":
            label = str(arguments.get("name"))
        else:
            label = FINAL if arguments.get("trained") else BASELINE
        named.append((label, artifact.ref))
    return named


def _prompt(source: RunSource, collection: Collection) -> int | None:
    """The first turn of mathematics, in the collection; a program's prompt also shows tests of its own."""
    if source.config.get("env_type") != "math":
        return None
    try:
        texts = load_turns(str(source.config.get("prompts", "")))
        text = texts.attempt_turn({"question": MARK, "function": "", "tests": []})[0]["content"]
    except ReasonerError:
        return None
    collection.prompts.append(Prompt(tuple(text.split(MARK)), False, PLAIN))
    return len(collection.prompts) - 1


def _compare(turns: Turns, found: dict[str, list[Episode]], turn: int) -> None:
    """McNemar on the turn that is trained, trained against everything else, over what both have scored."""
    for label, episodes in found.items():
        if label in (FINAL, INDEPENDENT) or not found.get(FINAL):
            continue
        row = against(found[FINAL], episodes, turn)
        turns.sentences.append(
            f"Turn {turn}, trained against {label}: {row['only_main']} right for the trained pair alone, "
            f"{row['only_control']} for {label} alone, of {row['n']}; exact McNemar p = {row['p']:.3g}."
        )


def _add_all(
    collection: Collection, page: Page, episodes: list[Episode], arm: str, split: str, prompt: int | None,
    step: int | None = None,
) -> dict[int, int]:  # fmt: skip
    ids = [_add(collection, e, arm, split, prompt, step) for e in episodes]
    outcomes = [collection.rows[i].outcome for i in ids]
    known = [o for o in outcomes if o != "unscored"]
    if step is None:
        page.measured.append(
            Measured(
                arm, split, len(ids), len(ids) - len(known), estimate(known.count("correct"), len(known))
            )
        )
    return {collection.rows[i].problem: i for i in ids}


def _add(
    collection: Collection, episode: Episode, arm: str, split: str, prompt: int | None, step: int | None
) -> int:
    last = episode.refinement or episode.attempt
    verdict = last.judged.verdict if last.judged else None
    body = {
        "kind": "turns", "prompt": prompt, "turns": [_turn(t) for t in episode.turns], "advice": episode.advice,
        "leak": episode.leak, "new_leak": episode.new_leak,
    }  # fmt: skip
    collection.rows.append(
        Trajectory(
            problem=collection.by_id(episode.problem_id), arm=arm, split=split, strategy=_change(episode),
            outcome=str(verdict.outcome) if verdict else "unscored", reason=verdict.reason if verdict else "not judged",
            extracted=(verdict.extracted or "") if verdict else "", tokens=sum(t.tokens for t in episode.turns),
            finish=last.finish, index=episode.index if step is None else step, body=body,
        )
    )  # fmt: skip
    return len(collection.rows) - 1


def _turn(turn: Turn) -> dict[str, Any]:
    row: dict[str, Any] = {
        "turn": str(turn.kind),
        "text": turn.text,
        "finish": turn.finish,
        "tokens": turn.tokens,
    }
    if turn.judged is not None:
        verdict = turn.judged.verdict
        row |= {"outcome": str(verdict.outcome), "reason": verdict.reason, "extracted": verdict.extracted}
        row |= {
            "note": turn.judged.note,
            "signs": list(turn.judged.signs or ()),
            "unshown": turn.judged.unshown,
        }
    return row


def _change(episode: Episode) -> str:
    words = {1.0: "right", 0.0: "wrong", None: "unscored"}
    if episode.refinement is None:
        return f"{words.get(episode.r1, 'unscored')}, one turn"
    return f"{words.get(episode.r1, 'unscored')} → {words.get(episode.r2, 'unscored')}"


def _add_training(folder: Path, page: Page, collection: Collection, prompt: int | None) -> None:
    path = folder / "metrics.jsonl"
    rows = read_rows(path) if path.is_file() else []
    for title, names in CURVES:
        series = {
            NAMES.get(n, n.replace("_", " ")): [(r["step"], r[n]) for r in rows if n in r] for n in names
        }
        if (chart := line_chart(title, series, "iteration")) is not None:
            page.charts.append(chart)
    facts = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    seen = facts.get("validations", [])
    series = {NAMES[n]: [(r["step"], r[n]) for r in seen if n in r] for n in ("acc_t1", "acc_t2")}
    if (chart := line_chart("Accuracy on validation problems", series, "iteration")) is not None:
        page.charts.insert(0, chart)
    for name, arm in (("validations", "validation"), ("episodes", "training")):
        for file in sorted((folder / name).glob("*.jsonl")) if (folder / name).is_dir() else []:
            episodes = [Episode.from_row(row) for row in iter_rows(file)]
            _add_all(collection, page, episodes, arm, arm, prompt, int(file.stem))
