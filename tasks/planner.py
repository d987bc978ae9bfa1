"""The planner's stages as cached tasks; the questions, the base model and the verified references are SMART's too."""

import json
from typing import Any

from reasoner.config.planner import (
    PlannerEvaluationConfig,
    PlannerGrpoConfig,
    PlannerPromptConfig,
    PublishConfig,
    RewardConfig,
    SftPlannerConfig,
    WandbConfig,
    WorkerConfig,
)
from reasoner.config.smart import Dtype, EngineConfig
from reasoner.hub.publish import require_token
from reasoner.methods.planner import answers
from reasoner.methods.planner.prompts import load_prompts
from reasoner.records import ArtifactRef
from reasoner.stages import planner, planner_records, planner_report, publication
from reasoner.stages import problems as questions
from reasoner.store import Draft, open_ref, verify_ref
from tasks.context import bench
from tasks.smart import folder_of, folders, prepare_model, prepare_problems
from tasks.stage import stage

__all__ = ["prepare_model", "prepare_problems", "require_token"]


def prompt_text(arguments: dict[str, Any]) -> Any:
    """The prompts belong to the key of every stage that renders them."""
    return load_prompts(arguments["prompt"].template)


def answer_reading(_: dict[str, Any]) -> Any:
    """How answers are read belongs to the key of every stage that judges."""
    return answers.VERSION


@stage("plan-candidates", kind="plan-runs", version=1, gpu=True, external=prompt_text)
def candidates(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, config: SftPlannerConfig, worker: WorkerConfig,
    prompt: PlannerPromptConfig, engine: EngineConfig, seed: int,
) -> None:  # fmt: skip
    """Draw plans from the base for every pool question and carry them out."""
    splits = {split: questions.read(open_ref(problems), split) for split in planner_records.SPLITS}
    texts = load_prompts(prompt.template)
    with planner.Desk(bench(), folder_of(model), engine, worker, texts, None) as desk:
        out.metadata |= planner.candidates(out.path, desk, splits, config.decoding, config.samples, seed)


@stage("plan-targets", kind="records", version=1, external=answer_reading)
def targets(out: Draft, runs: ArtifactRef, config: SftPlannerConfig, seed: int) -> None:
    """Valid plans that led to the right answer, the shortest first."""
    out.metadata |= planner_records.targets(out.path, open_ref(runs), config, seed)


@stage("planner-sft", kind="adapter", version=1, gpu=True, external=prompt_text)
def train_sft(
    out: Draft, records: ArtifactRef, model: ArtifactRef, config: SftPlannerConfig, prompt: PlannerPromptConfig,
    seed: int,
) -> None:  # fmt: skip
    """Fine-tune the planner's adapter on the targets, completions only."""
    out.metadata |= planner_records.train_sft(
        out.path, bench(), open_ref(records), folder_of(model), config.train, prompt.template, seed
    )


@stage("plan-arms", kind="plan-runs", version=1, gpu=True, external=prompt_text,
       label=lambda a: a["split"])  # fmt: skip
def arms(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, adapter: ArtifactRef | None, split: str,
    names: tuple[str, ...], config: PlannerEvaluationConfig, worker: WorkerConfig, prompt: PlannerPromptConfig,
    engine: EngineConfig,
) -> None:  # fmt: skip
    """Plan every question of a split in each arm's way and carry the plans out, greedily."""
    asked, texts = questions.read(open_ref(problems), split), load_prompts(prompt.template)
    with planner.Desk(bench(), folder_of(model), engine, worker, texts, adapter_folder(adapter)) as desk:
        out.metadata |= planner.arms(out.path, desk, asked, names, config.decoding)


@stage("plan-gate", kind="gate", version=1, external=answer_reading)
def require_plans(out: Draft, runs: ArtifactRef, min_parse_rate: float) -> None:
    """Stop before GRPO where the warm-started planner does not write valid plans."""
    out.metadata |= planner_records.require_plans(out.path, open_ref(runs), min_parse_rate)


@stage("plan-questions", kind="problems", version=1, external=answer_reading)
def telling_questions(
    out: Draft, problems: ArtifactRef, tried: tuple[ArtifactRef, ...], pass_rate: tuple[float, float]
) -> None:
    """The training questions that some of the tried plans solve and others do not."""
    judged = planner_records.tried(folders(tried))
    out.metadata |= questions.choose(out.path, open_ref(problems), judged, pass_rate)


@stage("planner-grpo", kind="adapter", version=3, gpu=True, external=prompt_text)
def train_grpo(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, start: ArtifactRef | None, grpo: PlannerGrpoConfig,
    worker: WorkerConfig, reward: RewardConfig, engine: EngineConfig, wandb: WandbConfig, prompt: PlannerPromptConfig,
    seed: int,
) -> None:  # fmt: skip
    """GRPO on the training questions, from the warm start or from a fresh adapter."""
    asked = questions.read(open_ref(problems), questions.TRAIN)
    out.metadata |= planner_records.train_grpo(
        out.path, bench(), asked, folder_of(model), open_ref(start) if start else None, grpo=grpo, worker=worker,
        reward=reward, engine=engine, wandb=wandb, template=prompt.template, seed=seed,
    )  # fmt: skip


@stage("planner-merge", kind="model", version=1, gpu=True, external=prompt_text)
def merge(
    out: Draft, model: ArtifactRef, adapter: ArtifactRef, problems: ArtifactRef, prompt: PlannerPromptConfig,
    dtype: Dtype,
) -> None:  # fmt: skip
    """Merge the planner's adapter into its base and check that the two plan alike."""
    asked = questions.read(open_ref(problems), questions.POOL)
    out.metadata |= planner_records.merge(
        out.path, bench(), folder_of(model), open_ref(adapter), asked, prompt.template, dtype
    )


@stage("planner-evaluation", kind="evaluation", version=1, external=answer_reading, label=lambda a: a["name"])
def evaluate(
    out: Draft, name: str, runs: ArtifactRef, config: PlannerEvaluationConfig, reward: RewardConfig
) -> None:
    """One set: the arms with intervals and paired tests, and whether the planner earned its keep."""
    out.metadata |= planner_records.measure(out.path, name, open_ref(runs), config, reward)


@stage("planner-report", kind="report", version=4)
def report(
    out: Draft, title: str, problems: ArtifactRef, base: ArtifactRef, records: ArtifactRef | None,
    gate: ArtifactRef | None, adapters: tuple[ArtifactRef, ...], evaluations: tuple[ArtifactRef, ...], seed: int,
    clean: ArtifactRef | None = None, asked: ArtifactRef | None = None,
) -> None:  # fmt: skip
    """The run as a page. `asked` are the questions of GRPO where they are not all of them."""
    facts = {"base model": folder_of(base).name, "base digest": base.digest[:16], "seed": str(seed)}
    planner_report.write(
        out.path, title, facts, open_ref(problems), open_ref(records) if records else None,
        open_ref(gate) if gate else None, folders(adapters), folders(evaluations),
        open_ref(clean) if clean else None, open_ref(asked) if asked else None,
    )  # fmt: skip


@stage("publish", kind="publication", version=1)
def publish(
    out: Draft, model: ArtifactRef, base: ArtifactRef, adapter: ArtifactRef, evaluations: tuple[ArtifactRef, ...],
    config: PublishConfig, command: str,
) -> None:  # fmt: skip
    """Push the merged model with its card to the Hub, as one commit; what is there already is not pushed again."""
    served, merged = folder_of(base), verify_ref(model)
    out.metadata |= publication.publish_planner(
        out.path, bench(), open_ref(model), served.name, open_ref(adapter), folders(evaluations), config,
        digests={"digest of the model": model.digest, "digest of the adapter": adapter.digest,
                 "digest of the base": base.digest},
        parity=dict(merged.metadata.get("parity") or {}), command=command,
    )  # fmt: skip


def adapter_folder(adapter: ArtifactRef | None) -> planner.AdapterFolder | None:
    """The adapter behind a reference."""
    if adapter is None:
        return None
    verify_ref(adapter)
    folder = open_ref(adapter)
    rank = int(json.loads((folder / "adapter_config.json").read_text())["r"])
    return planner.AdapterFolder(folder, adapter.digest, rank)
