"""Gathers a SMART run: headline tables from its attempts, the strategies' overlap, records, losses, trajectories.

Tables are computed from the verdicts by the same functions as the run's own report, so that an unfinished run has
them, too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.errors import DataError
from reasoner.methods.smart.analysis import analyse
from reasoner.methods.smart.attempts import Attempt
from reasoner.records import Problem, Strategy
from reasoner.report.data import RecordSet
from reasoner.report.headline import Answers, few_shot_label, headline
from reasoner.report.html.charts import line_chart, whole_windows
from reasoner.report.html.prompts import Prompts
from reasoner.report.html.sections import Measured, Page
from reasoner.report.html.sources import Artifact, RunSource, ref_of, refs_in
from reasoner.report.html.trajectories import Collection, Trajectory
from reasoner.statistics import estimate
from reasoner.store.rows import read_rows

FEW_SHOT, EVALUATED = "few-shot", "eval-"
NO_STRATEGY = "none"
SHOWN = "base, few-shot"
"""Who answered, in the list: the strategy has a column of its own."""
PRACTICE = "GRPO, responses while training"
CURVES = (
    ("GRPO: reward", ("reward", "correct", "groups_used")),
    ("GRPO: strategies", (*(s.value for s in Strategy), "no_strategy")),
    ("GRPO: tokens a response", ("tokens",)),
    ("GRPO: drift of sampler and trainer in nats a token", ("sampler_trainer_difference", "kl")),
)
NAMES = {
    **{s.value: s.title for s in Strategy}, "groups_used": "groups used", "no_strategy": "no strategy",
    "sampler_trainer_difference": "drift", "kl": "KL",
}  # fmt: skip


@dataclass
class Answered:
    """The attempts of one stage with the completions that they judge."""

    artifact: Artifact
    """The completions."""
    attempts: list[Attempt]
    completions: list[dict[str, Any]]
    arm: str
    split: str
    role: str = "other"
    """`few_shot`, `turn1`, `turn2`, `each`, or `other` for training samples."""
    kind: str = "policy"
    ids: list[int] = field(default_factory=list)
    """Trajectory ids, filled in when the rows are made."""


def gather(source: RunSource, page: Page, collection: Collection, chat: bool) -> None:
    """Fill the page and the collection."""
    known = read_problems(source, collection)
    answered = sorted(_answered(source), key=_order)
    prompts = Prompts(collection, chat)
    for one in answered:
        _add_rows(one, source, collection, known, prompts)
        page.measured += _measured(one)
    confidence = float(source.config.get("evaluation", {}).get("confidence", 0.95))
    for name in dict.fromkeys(a.split for a in answered if a.role == "turn1" or a.split != "pool"):
        try:
            _evaluate(name, [a for a in answered if a.split == name], page, collection, confidence)
        except DataError as error:  # two runs' answers to one question: say so, and show the rest
            source.missing.append(f"table of {name}: {error}")
    pool = [x for a in answered if a.role == "few_shot" and a.split == "pool" for x in a.attempts]
    page.few_shot = analyse(pool, confidence=confidence) if pool else None
    page.records = list(_records(source))
    for adapter in source.of("train", "grpo"):
        _add_losses(source, adapter, page)
    for adapter in source.of("grpo"):
        _add_practice(source, adapter, page, collection)


def read_problems(source: RunSource, collection: Collection) -> dict[str, Problem]:
    """Every problem of the run by id; they are also put into the collection, evaluation sets first."""
    found: dict[str, Problem] = {}
    for artifact in source.kind("problems"):
        folder = source.open(artifact.ref)
        paths = sorted(folder.glob("*.jsonl")) if folder else []
        for path in sorted(paths, key=lambda p: (not p.stem.startswith(EVALUATED), p.stem)):
            if path.stem == "left-out":
                continue
            for row in read_rows(path):
                problem = Problem.from_row(row)
                found[problem.id] = problem
                collection.problem(problem)
    return found


def _answered(source: RunSource) -> Iterator[Answered]:
    labels = _labels(source)
    for artifact in source.kind("attempts"):
        given = ref_of(artifact.arguments.get("completions"))
        completions = source.find(given) if given else None
        folder = source.open(artifact.ref)
        made = source.open(given) if given else None
        if completions is None or folder is None or made is None:
            continue
        try:
            attempts = [Attempt.from_row(row) for row in read_rows(folder / "attempts.jsonl")]
        except DataError as error:
            source.missing.append(f"{artifact.label}: {error}")
            continue
        one = _named(completions, attempts, read_rows(made / "completions.jsonl"))
        if artifact.ref.digest in labels:
            one.arm, one.role, one.kind = labels[artifact.ref.digest]
        yield one


def _named(made: Artifact, attempts: list[Attempt], completions: list[dict[str, Any]]) -> Answered:
    """What the stage's own arguments say of who answered."""
    arguments = made.arguments
    split = str(arguments.get("split", "pool")).removeprefix(EVALUATED)
    epoch = arguments.get("epoch", "")
    named = epoch if epoch == "grpo" else f"epoch {epoch}"
    if made.stage == FEW_SHOT:
        arm, role = few_shot_label(Strategy(arguments["strategy"])), "few_shot"
    elif made.stage == "answer":
        forced = arguments.get("how", {}).get("choice") == "each"
        arm, role = f"{named}{', each strategy' if forced else ''}", "each" if forced else "turn1"
    elif made.stage == "answer-again":
        arm, role = f"{named}, second turn", "turn2"
    else:
        turn = 2 if made.stage == "retry" else 1
        arm, role = f"samples for epoch {epoch}, turn {turn}", "other"
        if made.stage not in ("sample", "retry"):
            arm = made.label
    return Answered(made, attempts, completions, arm, split, role)


def _labels(source: RunSource) -> dict[str, tuple[str, str, str]]:
    """What evaluations call the attempts that they were given: (arm, role, kind) by digest."""
    found = {}
    suffixes = {"turn1": "", "turn2": ", second turn", "each": ", each strategy"}
    for evaluation in source.of("evaluation"):
        answers = evaluation.arguments.get("answered") or []
        for given in answers:
            for role, suffix in suffixes.items():
                ref = ref_of(given.get(role))
                if ref is not None:
                    found[ref.digest] = (given["label"] + suffix, role, given.get("kind", "policy"))
    return found


def _order(one: Answered) -> tuple[Any, ...]:
    """Evaluation before the pool, few-shot attempts in the order of the strategies, then as they were made."""
    strategies = [few_shot_label(s) for s in Strategy]
    first = strategies.index(one.arm) if one.arm in strategies else len(strategies)
    return one.split == "pool", one.split, first, one.artifact.created, one.arm


def _add_rows(
    one: Answered, source: RunSource, collection: Collection, known: dict[str, Problem], prompts: Prompts
) -> None:
    arguments = one.artifact.arguments
    how = arguments.get("how") or arguments
    model = ref_of(arguments.get("model"))
    folder = source.tokenizer_of(model) if model and one.role != "few_shot" else None
    for attempt, row in zip(one.attempts, one.completions, strict=True):
        number = collection.by_id(attempt.problem_id, "", row["gold"])
        body: dict[str, Any] = {"kind": "answer", "response": attempt.text}
        problem = known.get(attempt.problem_id)
        if problem is not None:
            body["prompt"] = _prompt(one, problem, row, how, folder, prompts)
        if attempt.tried:
            body["tried"] = [s.title for s in attempt.tried]
        body["prompt_tokens"] = row["prompt_tokens"]
        one.ids.append(len(collection.rows))
        collection.rows.append(
            Trajectory(
                problem=number, arm=SHOWN if one.role == "few_shot" else one.arm, split=one.split,
                strategy=attempt.strategy or NO_STRATEGY,
                outcome=str(attempt.verdict.outcome), reason=attempt.verdict.reason,
                extracted=attempt.verdict.extracted or "", tokens=row["completion_tokens"], finish=attempt.finish,
                index=attempt.index, body=body,
            )
        )  # fmt: skip


def _prompt(
    one: Answered, problem: Problem, row: dict[str, Any], how: dict[str, Any], model: Path | None,
    prompts: Prompts,
) -> int | str | None:  # fmt: skip
    if one.artifact.stage == FEW_SHOT:
        strategy = Strategy(how["strategy"])
        return prompts.few_shot(problem, strategy, how["few_shot"], model, row["prompt_hash"])
    if "prompt" not in how:
        return None
    text = how["prompt"]
    return prompts.policy(
        problem, text["template"], text["refine_context"], row["tried"], row["tried_solutions"], model,
        row["prompt_hash"],
    )  # fmt: skip


def _measured(one: Answered) -> list[Measured]:
    scored = [a for a in one.attempts if a.scored]
    return [
        Measured(
            one.arm, one.split, len(one.attempts), len(one.attempts) - len(scored),
            estimate(sum(a.right for a in scored), len(scored)),
        )
    ]  # fmt: skip


def _evaluate(
    name: str, answered: list[Answered], page: Page, collection: Collection, confidence: float
) -> None:
    """The headline table of one set and how its problems flip from model to model."""
    first = [a for a in answered if a.role == "turn1"]
    base = [x for a in answered if a.role == "few_shot" for x in a.attempts]
    if name == "pool" or not (first or base):
        return

    def other(one: Answered, role: str) -> list[Attempt]:
        wanted = {"turn2": f"{one.arm}, second turn", "each": f"{one.arm}, each strategy"}[role]
        return next((a.attempts for a in answered if a.role == role and a.arm == wanted), [])

    given = [
        Answers(a.arm, a.attempts, a.kind, other(a, "turn2"), other(a, "each"))  # type: ignore[arg-type]
        for a in first
    ]
    table = headline(name, base, given, confidence=confidence)
    page.tables.append(table)
    best = [a for a in answered if a.role == "few_shot" and a.arm == table.best_single]
    policies = [a for a in first if a.kind == "policy"] or first
    stages: dict[str, dict[int, int]] = {}
    for one in (*best, *policies):  # several shards have one name
        stages.setdefault(one.arm, {}).update({collection.rows[i].problem: i for i in one.ids})
    collection.add_flips(name, stages)


def _records(source: RunSource) -> Iterator[RecordSet]:
    names = _trained(source)
    for artifact in source.kind("records"):
        folder = source.open(artifact.ref)
        path = folder / "counts.json" if folder else None
        if path and path.is_file():
            counts = json.loads(path.read_text(encoding="utf-8")).get("train", {})
            label = names.get(artifact.ref.digest, artifact.label)
            yield RecordSet(
                label=label, counts=counts.get("counts", {}), by_strategy=counts.get("strategies", {})
            )


def _add_practice(source: RunSource, adapter: Artifact, page: Page, collection: Collection) -> None:
    """GRPO's curves, and the responses that it paid."""
    folder = source.open(adapter.ref)
    if folder is None:
        return
    curves = json.loads((folder / "training.json").read_text(encoding="utf-8")).get("curves", [])
    for title, names in CURVES:
        series = {NAMES.get(n, n): [(p["step"], p[n]) for p in curves if p.get(n) is not None] for n in names}
        if (chart := line_chart(title, series)) is not None:
            page.charts.append(chart)
    for row in read_rows(folder / "examples.jsonl"):
        collection.rows.append(
            Trajectory(
                problem=collection.by_id(row["problem_id"], row["question"], row["gold"]), arm=PRACTICE, split="train",
                strategy=row["strategy"] or NO_STRATEGY, outcome=row["outcome"], reason=row["reason"],
                extracted=row["extracted"] or "", tokens=row["tokens"], finish=row["finish"], index=row["step"],
                body={"kind": "answer", "response": row["response"], "step": row["step"]},
            )
        )  # fmt: skip


def _trained(source: RunSource) -> dict[str, str]:
    """What trainings are called: the label of their records and of their adapter, by digest."""
    found = {}
    for adapter in source.of("train"):
        name = f"epoch {adapter.arguments.get('epoch', '')}".strip()
        for ref in (adapter.ref, ref_of(adapter.arguments.get("records"))):
            if ref is not None:
                found[ref.digest] = name
    for report in source.of("report"):
        for given in report.arguments.get("trained") or []:
            found |= {ref.digest: given["label"] for ref in refs_in([given["records"], given["adapter"]])}
    return found


def _add_losses(source: RunSource, adapter: Artifact, page: Page) -> None:
    folder = source.open(adapter.ref)
    path = folder / "training.json" if folder else None
    if path is None or not path.is_file():
        return
    facts = json.loads(path.read_text(encoding="utf-8"))
    read = {
        name: [(row["step"], row["loss"]) for row in facts.get(key, [])]
        for name, key in (("training", "losses"), ("validation", "validation_losses"))
    }
    series = {"training": whole_windows(read["training"]), "validation": read["validation"]}
    label = _trained(source).get(adapter.ref.digest, adapter.label)
    chart = line_chart(f"{label}: loss in nats a token", series)
    if chart is not None:
        page.charts.append(chart)
