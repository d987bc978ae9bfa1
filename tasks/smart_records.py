"""The stages that make training records, SMART's own and those of its controls, as cached tasks."""

from reasoner.config.smart import (
    ControlConfig,
    EngineConfig,
    Epoch1Config,
    Epoch2Config,
    FewShotConfig,
    SamplingConfig,
)
from reasoner.records import ArtifactRef
from reasoner.stages import generation, smart, verdicts
from reasoner.stages import problems as questions
from reasoner.store import Draft, open_ref
from tasks.context import bench
from tasks.smart import exemplars, folder_of, folders
from tasks.stage import stage


@stage("records-epoch1", kind="records", version=1)
def records_epoch1(
    out: Draft, problems: ArtifactRef, attempts: tuple[ArtifactRef, ...], config: Epoch1Config, seed: int
) -> None:
    """Training records from correct few-shot solutions (METHODS 2.5)."""
    pool = questions.read_pool(open_ref(problems))
    out.metadata |= smart.records_epoch1(out.path, pool, verdicts.read(folders(attempts)), config, seed)


@stage("records-later", kind="records", version=2, label=lambda a: f"epoch {a['epoch']}")
def records_later(
    out: Draft, problems: ArtifactRef, turn1: ArtifactRef, turn2: ArtifactRef, shown: tuple[ArtifactRef, ...],
    config: Epoch2Config, seed: int, epoch: int,
) -> None:  # fmt: skip
    """Training records from the policy's own samples: strict majority inside a strategy."""
    pool = questions.read_pool(open_ref(problems))
    first, second = (verdicts.read([open_ref(ref)]) for ref in (turn1, turn2))
    out.metadata |= smart.records_later(
        out.path, pool, first, second, verdicts.read(folders(shown)), config, seed, epoch
    )


@stage(
    "few-shot-samples", kind="completions", version=1, gpu=True,
    external=exemplars, label=lambda a: a["control"].strategy,
)  # fmt: skip
def few_shot_samples(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, analysis: ArtifactRef, control: ControlConfig,
    few_shot: FewShotConfig, engine: EngineConfig, seed: int,
) -> None:  # fmt: skip
    """Several few-shot samples of every question of the pool with one strategy, for rejection sampling."""
    strategy = smart.only_strategy(control, open_ref(analysis))
    base, pool = folder_of(model), questions.read(open_ref(problems), "pool")
    asks = generation.few_shot_asks(pool, strategy, few_shot, base.path)
    greedy = generation.few_shot_decoding(few_shot, strategy)
    warm: SamplingConfig = greedy.model_copy(update={"temperature": control.temperature})
    out.metadata |= generation.generate(out.path, bench(), asks, base, engine, warm, control.samples, seed)


@stage("records-rejected", kind="records", version=1, label=lambda a: f"epoch {a['epoch']}")
def records_rejected(
    out: Draft, problems: ArtifactRef, attempts: tuple[ArtifactRef, ...], analysis: ArtifactRef, config: ControlConfig,
    seed: int, epoch: int,
) -> None:  # fmt: skip
    """Rejection sampling (METHODS 5): correct, distinct solutions of one strategy."""
    pool, strategy = questions.read_pool(open_ref(problems)), smart.only_strategy(config, open_ref(analysis))
    given = verdicts.read(folders(attempts))
    out.metadata |= smart.records_rejected(out.path, pool, given, strategy, config, seed + epoch)


@stage("records-given", kind="records", version=1)
def records_given(out: Draft, problems: ArtifactRef, max_records: int | None, seed: int) -> None:
    """The solutions that came with the questions."""
    out.metadata |= smart.records_given(out.path, questions.read_pool(open_ref(problems)), max_records, seed)


@stage("shuffle-labels", kind="records", version=1, label=lambda a: f"epoch {a['epoch']}")
def shuffle_labels(out: Draft, records: ArtifactRef, seed: int, epoch: int) -> None:
    """The same records with the strategies' names exchanged."""
    out.metadata |= smart.shuffle_labels(out.path, open_ref(records), seed + epoch)
