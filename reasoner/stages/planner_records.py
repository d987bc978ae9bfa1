"""The planner's stages that need no accelerator, and its trainings: targets, warm start, GRPO, merge, gate,
evaluation."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.config.planner import (
    PlannerEvaluationConfig,
    PlannerGrpoConfig,
    RewardConfig,
    SftPlannerConfig,
    WandbConfig,
    WorkerConfig,
)
from reasoner.config.smart import Dtype, EngineConfig, TrainConfig
from reasoner.errors import CollapseError, TrainingError
from reasoner.methods.planner.evaluation import ATOMIC, TRAINED, evaluate
from reasoner.methods.planner.independence import SentenceEmbedder
from reasoner.methods.planner.prompts import PlannerPrompts, load_prompts
from reasoner.methods.planner.targets import Target, choose_targets
from reasoner.preflight.template import require_prefix
from reasoner.prompts import ChatRenderer
from reasoner.records import Problem, TrainingExample
from reasoner.stages.planner import read_episodes, run_names, runs_file
from reasoner.stages.smart import write_json
from reasoner.store.rows import read_rows, write_rows
from reasoner.tracking import Tracking
from reasoner.training.launch import run_merge, run_sft
from reasoner.training.planner.launch import run_grpo
from reasoner.training.planner.spec import PlannerGrpoSpec
from reasoner.training.specs import MergeSpec, SftSpec
from reasoner.workbench import ModelFolder, Workbench

SPLITS = ("train", "validation")
PARITY_PROMPTS = 8


def targets(out: Path, runs: Path, config: SftPlannerConfig, seed: int) -> dict[str, Any]:
    """Training targets of both splits: `train.jsonl`, `validation.jsonl`, `counts.json`."""
    counts = {}
    for split in SPLITS:
        found = choose_targets(
            read_episodes(runs, split) if runs_file(runs, split).is_file() else [],
            keep=config.keep, max_records=config.max_records, max_subproblems=config.max_subproblems,
            balance=config.balance_decisions, seed=seed,
        )  # fmt: skip
        write_rows(out / f"{split}.jsonl", [t.to_row() for t in found.targets])
        counts[split] = found.counts
    write_json(out / "counts.json", counts)
    return counts


def examples(
    rows: Sequence[dict[str, Any]], prompts: PlannerPrompts, renderer: ChatRenderer
) -> list[TrainingExample]:
    """Targets as the planner will see and write them."""
    rendered = []
    for target in map(_target, rows):
        text = renderer.render(prompts.plan(target.question)).text
        kind = "decomposed" if target.plan.should_decompose else "atomic"
        rendered.append(
            TrainingExample(target.problem_id, text, renderer.completion_text(target.plan.to_json()), kind)
        )
    return rendered


def train_sft(
    out: Path, bench: Workbench, records: Path, model: ModelFolder, config: TrainConfig, template: str, seed: int
) -> dict[str, Any]:  # fmt: skip
    """Fine-tune the planner's adapter on targets; goes on from the last complete checkpoint in `bench.work`."""
    renderer, prompts = ChatRenderer(model.path), load_prompts(template)
    require_prefix(renderer)
    counts = {}
    for split in SPLITS:
        found = examples(read_rows(records / f"{split}.jsonl"), prompts, renderer)
        counts[split] = write_rows(bench.work / f"{split}.jsonl", [e.to_row() for e in found])
    if counts["train"] < config.min_records:
        raise TrainingError(
            f"only {counts['train']} targets, fewer than sft.train.min_records={config.min_records}: the base's plans "
            "led to too few right answers; draw more (sft.samples), use more questions, or set sft.enabled=false"
        )
    spec = SftSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint,
        train_rows=bench.work / "train.jsonl",
        validation_rows=bench.work / "validation.jsonl" if counts["validation"] else None,
        output=out, work=bench.work / "sft", end_token=renderer.end_token, train=config, seed=seed,
        add_special_tokens=not renderer.has_chat_template,
        processes=bench.compute.processes, sharding=bench.compute.sharding,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_sft(spec, bench.logs / f"planner-sft-{bench.work.name}.log", bench.child_progress)
    return {"training": done.training, "metrics": done.metrics}


def tried(folders: Sequence[Path]) -> list[tuple[str, bool]]:
    """Question and whether it was solved, of every scored plan that was carried out; an invalid one is wrong."""
    episodes = (
        episode for folder in folders for name in run_names(folder) for episode in read_episodes(folder, name)
    )
    return [(episode.problem_id, episode.verdict.correct) for episode in episodes if episode.scored]


def train_grpo(
    out: Path, bench: Workbench, problems: Sequence[Problem], model: ModelFolder, start: Path | None, *,
    grpo: PlannerGrpoConfig, worker: WorkerConfig, reward: RewardConfig, engine: EngineConfig, wandb: WandbConfig,
    template: str, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Train the planner with GRPO; goes on from the last complete checkpoint in `bench.work`."""
    rows = bench.work / "questions.jsonl"
    write_rows(rows, [p.to_row() for p in problems])
    shown = Tracking.of(wandb.enabled, wandb.project, "", bench.work / "grpo")
    spec = PlannerGrpoSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint, rows=rows, output=out,
        work=bench.work / "grpo", engine=engine, grpo=grpo, worker=worker, reward=reward, prompts=template,
        start=start, seed=seed, tracking=shown, processes=bench.compute.processes,
        engines=bench.compute.engines,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_grpo(spec, bench.logs / f"planner-grpo-{bench.work.name}.log", bench.child_progress)
    return done.summary


def merge(
    out: Path, bench: Workbench, model: ModelFolder, adapter: Path, problems: Sequence[Problem], template: str,
    dtype: Dtype,
) -> dict[str, Any]:  # fmt: skip
    """Merge the adapter into its base; fails where the merged model answers otherwise."""
    renderer, prompts = ChatRenderer(model.path), load_prompts(template)
    asked = tuple(renderer.render(prompts.plan(p.question)).text for p in problems[:PARITY_PROMPTS])
    spec = MergeSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint, adapter=adapter, output=out,
        work=bench.work / "merge", prompts=asked, dtype=dtype, add_special_tokens=not renderer.has_chat_template,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_merge(spec, bench.logs / f"merge-{bench.work.name}.log", bench.child_progress)
    return {"model": model.name, "parity": done.metrics}


def require_plans(out: Path, runs: Path, min_parse_rate: float) -> dict[str, Any]:
    """CollapseError where too few of the warm-started planner's outputs are valid plans."""
    episodes = read_episodes(runs, TRAINED)
    valid = sum(e.plan is not None for e in episodes)
    facts = {
        "outputs": len(episodes),
        "valid": valid,
        "correct": sum(e.verdict.correct for e in episodes),
        "decomposed": sum(e.decomposed for e in episodes),
    }
    if episodes and valid / len(episodes) < min_parse_rate:
        reasons = sorted({e.reason for e in episodes if e.plan is None})
        raise CollapseError(
            f"{valid} of {len(episodes)} planner outputs on the validation questions are valid plans (wrong: "
            f"{', '.join(reasons)}), fewer than sft.min_parse_rate={min_parse_rate}; train longer (sft.train.epochs) "
            "or draw more targets (sft.samples)"
        )
    write_json(out / "gate.json", facts)
    return facts


def measure(
    out: Path, name: str, runs: Path, config: PlannerEvaluationConfig, reward: RewardConfig
) -> dict[str, Any]:
    """One set: `evaluation.json` is a `PlannerEvaluation`."""
    names = run_names(runs)
    order = [n for n in (TRAINED, "untrained", ATOMIC, "decomposed") if n in names]
    found = evaluate(
        name, {n: read_episodes(runs, n) for n in order}, confidence=config.confidence, resamples=config.bootstrap,
        embed=SentenceEmbedder(reward.embedder) if reward.independence_weight else None,
    )  # fmt: skip
    write_json(out / "evaluation.json", found.to_row())
    return {
        "set": name,
        "n": found.n,
        "accuracy": {arm.name: arm.accuracy.to_row() for arm in found.arms},
        "verdict": found.verdict,
    }


def _target(row: dict[str, Any]) -> Target:
    from pydantic import TypeAdapter

    return TypeAdapter(Target).validate_python(row)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
