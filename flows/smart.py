"""SMART: try three strategies, learn from one's own successes, sample again, learn again (METHODS 2).

    questions ─┬─ few-shot × strategy ─ verify ─┬─ analysis
    base model ┘                                └─ records 1 ─ train ─ merge ─┬─ answers ─ verify ─ evaluation
                                                                              └─ samples ─ verify ─ retries ─ verify ─
                                                                                 records 2 ─ train ─ merge ─ …
"""

from prefect import flow
from prefect.runtime import flow_run

from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.records import ArtifactRef
from tasks import smart as stages
from tasks.context import run_context


@flow(name="smart", flow_run_name="{pipeline}", persist_result=False)
def smart(pipeline: str = "smart-epoch2", overrides: list[str] | None = None) -> ArtifactRef:
    """Run the configuration `pipeline` with dotted `overrides` such as `train.lr=1e-5`; returns the report."""
    config = load(pipeline, overrides or [], SmartConfig)
    with run_context(f"{pipeline}-{flow_run.id}", gpu_pool=config.compute.gpu_pool) as run:
        run.save_config(config)
        problems = stages.prepare_problems(config.data, config.seed)
        base = stages.prepare_model(config.model)

        shown = few_shot(config, problems, base, "pool")
        analysis = stages.analyse(shown)
        evaluations = [
            stages.evaluate_few_shot(problems, name, few_shot(config, problems, base, f"eval-{name}"), config.evaluation)
            for name in config.data.evaluation_names
        ]
        records, adapters, model = [], [], base
        answers: tuple[ArtifactRef, ...] = ()
        for epoch in range(1, config.epochs + 1):
            if epoch == 1:
                records.append(stages.records_epoch1(problems, shown, config.epoch1, config.seed))
                start = base
            else:
                records.append(self_sampling(config, problems, model, answers, epoch))
                start = model if config.epoch2.init == "epoch1" else base
            adapters.append(stages.train(records[-1], start, config.train_for(epoch), config.prompt, config.seed, epoch))
            model = stages.merge(start, adapters[-1], records[-1], config.model.dtype)
            answers = tuple(answer(config, problems, model, f"eval-{name}", epoch) for name in config.data.evaluation_names)
            evaluations.extend(
                stages.evaluate_policy(problems, name, judged, config.evaluation, epoch)
                for name, judged in zip(config.data.evaluation_names, answers, strict=True)
            )
        report = stages.report(analysis, tuple(evaluations), tuple(records), tuple(adapters), model, pipeline)
        run.finish(report, model)
        return report


def few_shot(config: SmartConfig, problems: ArtifactRef, base: ArtifactRef, split: str) -> tuple[ArtifactRef, ...]:
    """Step 0 on one split: every strategy, every shard, verified."""
    return tuple(
        stages.verify(
            stages.few_shot(problems, base, split, strategy, shard, config.few_shot, config.engine, config.seed),
            config.verify,
        )
        for strategy in config.few_shot.strategies
        for shard in range(config.few_shot.shards)
    )


def self_sampling(
    config: SmartConfig, problems: ArtifactRef, model: ArtifactRef, answers: tuple[ArtifactRef, ...], epoch: int
) -> ArtifactRef:
    """Records from the policy's own samples: a first turn, and a second one where a strategy failed."""
    stages.require_strategies(answers, config.evaluation)
    first = stages.verify(
        stages.sample(problems, model, config.epoch2, config.prompt, config.engine, config.seed, epoch), config.verify
    )
    second = stages.verify(
        stages.retry(problems, model, first, config.epoch2, config.prompt, config.engine, config.seed, epoch),
        config.verify,
    )
    return stages.records_later(problems, first, second, config.epoch2, config.seed, epoch)


def answer(config: SmartConfig, problems: ArtifactRef, model: ArtifactRef, split: str, epoch: int) -> ArtifactRef:
    """The policy's greedy first attempts at one split, verified."""
    greedy = stages.answer(
        problems, model, split, config.evaluation.decoding, config.prompt, config.engine, config.seed, epoch
    )
    return stages.verify(greedy, config.verify)
