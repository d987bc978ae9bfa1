"""SMART: try three strategies, learn from one's own successes, sample again, learn again (METHODS 2).

questions ─┬─ few-shot × strategy ─ verify ─┬─ analysis
base model ┘                                └─ records ─ train ─ merge ─┬─ answer ─ verify ─ evaluation ─ report
                                                  └──── verify ─ sample, retry ─┘
"""

from prefect import flow
from prefect.runtime import flow_run

from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.records import ArtifactRef
from tasks import smart as stages
from tasks.context import run_context

Refs = tuple[ArtifactRef, ...]


@flow(name="smart", flow_run_name="{pipeline}")
def smart(pipeline: str = "smart-epoch2", overrides: list[str] | None = None) -> ArtifactRef:
    """Run the configuration `pipeline` with dotted `overrides` such as `train.lr=1e-5`; returns the report."""
    config = load(pipeline, overrides or [], SmartConfig)
    with run_context(f"{pipeline}-{flow_run.id}", gpu_pool=config.compute.gpu_pool) as run:
        run.save_config(config)
        problems = stages.prepare_problems(config.data, config.seed)
        base = stages.prepare_model(config.model)
        sets = config.data.evaluation_names

        shown = few_shot(config, problems, base, "pool")
        analysis = stages.analyse(shown)
        shown_sets = {name: few_shot(config, problems, base, f"eval-{name}") for name in sets}

        model, records, adapters = base, [], []
        answers: dict[str, list[ArtifactRef]] = {name: [] for name in sets}
        for epoch in range(1, config.epochs + 1):
            if epoch == 1:
                records.append(stages.records_epoch1(problems, shown, config.epoch1, config.seed))
            else:
                stages.require_strategies(tuple(answers[name][-1] for name in sets), config.evaluation)
                records.append(self_sampling(config, problems, model, epoch))
            start = model if config.epoch2.init == "epoch1" else base
            adapters.append(train(config, records[-1], start, epoch))
            model = stages.merge(
                start, adapters[-1], records[-1], config.prompt, config.train.merge_dtype, epoch
            )
            for name in sets:
                answers[name].append(answer(config, problems, model, f"eval-{name}", epoch))

        evaluations = tuple(
            stages.evaluate(name, shown_sets[name], tuple(answers[name]), config.evaluation) for name in sets
        )
        report = stages.report(
            pipeline, problems, base, analysis, evaluations, tuple(records), tuple(adapters), config.seed
        )
        run.finish(report, model)
        return report


def few_shot(config: SmartConfig, problems: ArtifactRef, base: ArtifactRef, split: str) -> Refs:
    """Step 0 on one split: every strategy, every shard, verified."""
    completions = [
        stages.few_shot(problems, base, split, strategy, shard, config.few_shot, config.engine, config.seed)
        for strategy in config.few_shot.strategies
        for shard in range(config.few_shot.shards)
    ]
    return tuple(stages.verify(each, config.verify) for each in completions)


def self_sampling(config: SmartConfig, problems: ArtifactRef, model: ArtifactRef, epoch: int) -> ArtifactRef:
    """Records from the policy's own samples: a first turn, and a second one where a strategy failed."""
    how = (config.epoch2, config.prompt, config.engine, config.seed, epoch)
    first = stages.verify(stages.sample(problems, model, *how), config.verify)
    second = stages.verify(stages.retry(problems, model, first, *how), config.verify)
    return stages.records_later(problems, first, second, config.epoch2, config.seed, epoch)


def train(config: SmartConfig, records: ArtifactRef, start: ArtifactRef, epoch: int) -> ArtifactRef:
    """One adapter, with the settings of its epoch."""
    return stages.train(records, start, config.train_for(epoch), config.prompt, config.seed, epoch)


def answer(
    config: SmartConfig, problems: ArtifactRef, model: ArtifactRef, split: str, epoch: int
) -> ArtifactRef:
    """The policy's greedy first attempts at one split, verified."""
    decoding = config.evaluation.decoding
    given = stages.answer(problems, model, split, decoding, config.prompt, config.engine, config.seed, epoch)
    return stages.verify(given, config.verify)
