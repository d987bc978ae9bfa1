"""Gathers a planner run: the arms' evaluations, GRPO's curves, every plan with the worker's answers and its reward."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reasoner.config.planner import RewardConfig
from reasoner.errors import ReasonerError
from reasoner.methods.planner.episodes import Episode, episode_of
from reasoner.methods.planner.evaluation import ARMS, TRAINED, PlannerEvaluation
from reasoner.methods.planner.prompts import load_prompts
from reasoner.methods.planner.reward import efficiency
from reasoner.report.html.charts import line_chart
from reasoner.report.html.prompts import MARK, PLAIN
from reasoner.report.html.sections import Measured, Page
from reasoner.report.html.smart import EVALUATED, read_problems
from reasoner.report.html.sources import Artifact, RunSource
from reasoner.report.html.trajectories import Collection, Prompt, Trajectory
from reasoner.stages.planner import run_names, runs_file
from reasoner.statistics import estimate
from reasoner.store.rows import read_rows

CANDIDATES = "base, drawn for the warm start"
PRACTICE = "GRPO, plans while training"
CURVES = (
    ("Reward of GRPO's plans", ("reward", "correct")),
    ("Valid and decomposed plans", ("valid", "decomposed", "independence")),
    ("Tokens a problem", ("worker_tokens", "planner_tokens")),
)


def gather(source: RunSource, page: Page, collection: Collection, chat: bool) -> None:
    """Fill the page and the collection. `chat` is not used: a plan's row keeps no hash of a prompt to check."""
    read_problems(source, collection)
    prompt = _prompt(source, collection)
    for artifact in source.of("plan-arms", "plan-candidates"):
        _add_runs(source, artifact, page, collection, prompt)
    timed = {made.ref.digest: made.facts.get("arm_seconds") for made in source.of("plan-arms")}
    for evaluation in source.of("planner-evaluation"):
        folder = source.open(evaluation.ref)
        if folder is not None:
            found = PlannerEvaluation.from_row(
                json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
            )
            page.planner.append(found)
            seconds = next((s for r in evaluation.made_from if (s := timed.get(r.digest))), None)
            if seconds:
                page.arm_seconds[found.name] = seconds
    for adapter in source.of("planner-sft", "planner-grpo"):
        folder = source.open(adapter.ref)
        if folder is not None:
            _add_training(adapter, folder, page, collection, prompt)


def _prompt(source: RunSource, collection: Collection) -> int | None:
    """The planner's own turn, in the collection."""
    try:
        texts = load_prompts(str(source.config.get("prompt", {}).get("template", "planner")))
        parts = tuple(texts.plan(MARK)[0]["content"].split(MARK))
    except ReasonerError:
        return None
    collection.prompts.append(Prompt(parts, False, PLAIN))
    return len(collection.prompts) - 1


def _reward(source: RunSource) -> RewardConfig | None:
    try:
        return RewardConfig.model_validate(source.config.get("reward", {}))
    except ValidationError:
        return None


def _add_runs(
    source: RunSource, artifact: Artifact, page: Page, collection: Collection, prompt: int | None
) -> None:
    folder = source.open(artifact.ref)
    if folder is None:
        return
    drawn = artifact.stage == "plan-candidates"
    split = str(artifact.arguments.get("split", "")).removeprefix(EVALUATED)
    stages: dict[str, dict[int, int]] = {}
    names = run_names(folder)
    for name in sorted(names, key=lambda n: (list(ARMS).index(n) if n in ARMS else len(ARMS), n)):
        rows = read_rows(runs_file(folder, name))
        episodes = [episode_of(row) for row in rows]
        arm, where = (CANDIDATES, name) if drawn else (ARMS.get(name, name), split)
        ids = [
            _add(collection, source, row, episode, arm, where, None if name == "atomic" else prompt)
            for row, episode in zip(rows, episodes, strict=True)
        ]
        stages[arm] = {collection.rows[i].problem: i for i in ids}
        scored = [e for e in episodes if e.scored]
        right = sum(e.verdict.correct for e in scored)
        page.measured.append(
            Measured(arm, where, len(rows), len(rows) - len(scored), estimate(right, len(scored)))
        )
    if not drawn and TRAINED in names and len(names) > 1:
        collection.add_flips(split, stages)


def _add(
    collection: Collection, source: RunSource, row: dict[str, Any], episode: Episode, arm: str, split: str,
    prompt: int | None,
) -> int:  # fmt: skip
    plan = episode.plan
    body = {
        "kind": "plan", "prompt": prompt, "plan": plan.to_row() if plan else None, "plan_reason": episode.reason,
        "extra_text": episode.extra_text, "calls": row["calls"], "components": _components(source, episode),
        "planner_tokens": episode.planner_tokens, "worker_tokens": episode.worker_tokens,
        "sequential_tokens": episode.sequential_tokens,
    }  # fmt: skip
    number = collection.by_id(episode.problem_id, episode.question, episode.gold)
    collection.rows.append(
        Trajectory(
            problem=number, arm=arm, split=split, strategy=_shape(plan is not None, episode.decomposed),
            outcome=str(episode.verdict.outcome), reason=episode.verdict.reason if plan else f"plan: {episode.reason}",
            extracted=episode.verdict.extracted or "", tokens=episode.tokens,
            finish="length" if episode.truncated_calls else "stop", index=0, body=body,
        )
    )  # fmt: skip
    return len(collection.rows) - 1


def _components(source: RunSource, episode: Episode) -> list[list[str]]:
    """The reward's parts of an evaluated plan; independence needs the embedder, which is not loaded for a page."""
    correct = "unscored" if not episode.scored else f"{float(episode.verdict.correct):.0f}"
    found = [["correctness", correct]]
    config = _reward(source)
    if config is not None and episode.plan is not None:
        economy = efficiency(config, episode.worker_tokens, episode.planner_tokens)
        found.append(["token economy", f"{economy:.3f}"])
    return found


def _shape(valid: bool, decomposed: bool) -> str:
    return "no plan" if not valid else "decomposed" if decomposed else "atomic"


def _add_training(
    adapter: Artifact, folder: Path, page: Page, collection: Collection, prompt: int | None
) -> None:
    facts = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    curves = facts.get("curves", [])
    for title, names in CURVES:
        series = {
            name.replace("_", " "): [(p["step"], p[name]) for p in curves if name in p] for name in names
        }
        if (chart := line_chart(title, series)) is not None:
            page.charts.append(chart)
    losses = {
        name: [(row["step"], row["loss"]) for row in facts.get(key) or []]
        for name, key in (("training", "losses"), ("validation", "validation_losses"))
    }
    label = "GRPO" if adapter.stage == "planner-grpo" else "Warm start"
    if (chart := line_chart(f"{label}: loss", losses)) is not None:
        page.charts.append(chart)
    path = folder / "examples.jsonl"
    for row in read_rows(path) if path.is_file() else []:
        _add_example(collection, row, prompt)


def _add_example(collection: Collection, row: dict[str, Any], prompt: int | None) -> None:
    """A plan that GRPO paid: its text, the worker's last answer, and the reward with its parts."""
    correct = row["correct"]
    outcome = "unscored" if correct is None else "correct" if correct >= 1 else "incorrect"
    parts = (
        ("correctness", correct), ("token economy", row["efficiency"]), ("independence", row["independence"]),
        ("reward", row["reward"]), ("reward after filters", row["used_reward"]),
    )  # fmt: skip
    body = {
        "kind": "plan", "prompt": prompt, "response": row["planner"], "plan_reason": row["reason"],
        "plan": _read_plan(row["planner"]), "extra_text": row["extra_text"], "answer": row["answer_text"], "calls": [],
        "components": [[name, "—" if v is None else f"{v:.3f}"] for name, v in parts],
        "planner_tokens": row["planner_tokens"], "worker_tokens": row["worker_tokens"], "step": row["step"],
    }  # fmt: skip
    collection.rows.append(
        Trajectory(
            problem=collection.by_id(row["problem_id"], row["question"], row["gold"]), arm=PRACTICE, split="train",
            strategy=_shape(row["valid"], row["decomposed"]), outcome=outcome,
            reason="ok" if row["valid"] else f"plan: {row['reason']}", extracted="",
            tokens=int(row["planner_tokens"] + row["worker_tokens"]),
            finish="length" if row["truncated_calls"] else "stop", index=row["step"], body=body,
        )
    )  # fmt: skip


def _read_plan(text: str) -> dict[str, Any] | None:
    from reasoner.methods.planner.plan import parse_plan

    plan = parse_plan(text).plan
    return plan.to_row() if plan else None
