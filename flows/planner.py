"""The planner: learn to plan for a frozen worker (METHODS 4).

questions ─┬─ candidates ─ targets ─ warm start ─ plans ─ gate ─┐
base model ┴─ (telling questions) ──────────────────────── GRPO ┴─┬─ arms ─ evaluation ─ report ─ (publish)
                                                                  └─ merge

The merged model comes last: it is large, and a run that is cut short should have its evaluation.
"""

from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import WithJsonSchema

from flows.forms import Overrides, as_overrides, settings_schema
from reasoner.config.compose import load
from reasoner.config.planner import PlannerConfig
from reasoner.records import ArtifactRef
from reasoner.stages.planner import arm_names
from tasks import contamination as overlap
from tasks import planner as stages
from tasks.context import run_context
from tasks.gpu import cancel_children

Refs = tuple[ArtifactRef, ...]
PlannerSettings = Annotated[dict[str, Any] | None, WithJsonSchema(settings_schema(PlannerConfig))]


@flow(name="planner", flow_run_name="{pipeline}", on_cancellation=[cancel_children])
def planner(
    pipeline: str = "planner-grpo", overrides: Overrides = None, settings: PlannerSettings = None
) -> ArtifactRef:
    """Run the configuration `pipeline` with dotted `overrides` such as `grpo.lr=1e-5`; returns the report.

    `settings` says the same as nested data, for forms.
    """
    words = [*as_overrides(settings), *(overrides or [])]
    config = load(pipeline, words, PlannerConfig)
    compute = config.compute
    with run_context(
        f"{pipeline}-{flow_run.id}",
        gpu_pool=compute.gpu_pool,
        idle_seconds=compute.idle_seconds,
        compute=compute,
    ) as run:
        run.save_config(config)
        if config.publish.enabled:
            stages.require_token(config.publish.repo)  # before hours of work
        problems = stages.prepare_problems(config.data, config.seed)
        checked = overlap.check(problems, config.contamination)
        base = stages.prepare_model(config.model)

        records = gate = asked = None
        adapters: list[ArtifactRef] = []
        if config.sft.enabled:
            records, adapter, gate = warm_start(config, problems, base)
            adapters.append(adapter)
        if config.grpo.enabled:
            start = adapters[-1] if adapters and config.grpo.warm_start else None
            asked = telling_questions(config, problems, base)
            adapters.append(grpo(config, asked or problems, base, start))

        trained = adapters[-1]
        runs = {
            name: evaluation_runs(config, problems, base, trained, name)
            for name in config.data.evaluation_names
        }
        evaluations = tuple(
            stages.evaluate(name, made, config.evaluation, config.reward) for name, made in runs.items()
        )
        scored = tuple(overlap.Scored(name, "", made) for name, made in runs.items())
        clean = overlap.scores(checked, scored, config.evaluation.confidence)
        model = stages.merge(base, trained, problems, config.prompt, config.merge_dtype)
        report = stages.report(
            pipeline, problems, base, records, gate, tuple(adapters), evaluations, config.seed, clean, asked
        )
        run.finish(report, model)
        if config.publish.enabled:
            command = " ".join(["reasoner run", pipeline, *words])
            stages.publish(model, base, trained, evaluations, config.publish, command)
        return report


def warm_start(config: PlannerConfig, problems: ArtifactRef, base: ArtifactRef) -> Refs:
    """Targets by rejection sampling, the adapter that learnt them, and the proof that it writes valid plans."""
    how = (config.worker, config.prompt, config.engine)
    runs = stages.candidates(problems, base, config.sft, *how, config.seed)
    records = stages.targets(runs, config.sft, config.seed)
    adapter = stages.train_sft(records, base, config.sft, config.prompt, config.seed)
    tried = stages.arms(problems, base, adapter, "validation", ("trained",), config.evaluation, *how)
    return records, adapter, stages.require_plans(tried, config.sft.min_parse_rate)


def telling_questions(config: PlannerConfig, problems: ArtifactRef, base: ArtifactRef) -> ArtifactRef | None:
    """GRPO's questions where they are not all: those that some plans of the base solve and others do not."""
    if config.grpo.pass_rate is None:
        return None
    how = (config.worker, config.prompt, config.engine)
    drawn = stages.candidates(problems, base, config.sft, *how, config.seed)
    ways = stages.arms(problems, base, None, "train", arm_names(trained=False), config.evaluation, *how)
    return stages.telling_questions(problems, (drawn, ways), config.grpo.pass_rate)


def grpo(
    config: PlannerConfig, problems: ArtifactRef, base: ArtifactRef, start: ArtifactRef | None
) -> ArtifactRef:
    """The planner's adapter, trained by reward."""
    return stages.train_grpo(
        problems, base, start, config.grpo_here, config.worker, config.reward, config.engine, config.wandb,
        config.prompt, config.seed,
    )  # fmt: skip


def evaluation_runs(
    config: PlannerConfig, problems: ArtifactRef, base: ArtifactRef, adapter: ArtifactRef, name: str
) -> ArtifactRef:
    """All arms on one set."""
    how = (config.evaluation, config.worker, config.prompt, config.engine)
    return stages.arms(problems, base, adapter, f"eval-{name}", arm_names(trained=True), *how)
