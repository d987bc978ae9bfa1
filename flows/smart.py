"""SMART: try three strategies, learn from one's own successes, sample again, learn again (METHODS 2).

questions ─┬─ few-shot × strategy ─ verify ─┬─ analysis
base model ┘                                └─ records ─ train ─ merge ─┬─ answer ─ verify ─ evaluation ─ report
                                                  └──── verify ─ sample, retry ─┘

With `grpo.enabled` the model of the best epoch is then trained by GRPO, merged and answers as an epoch's does.

A control is another way to make the records (`make_records`); a variant is the same picture with other settings.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import WithJsonSchema

from flows.forms import Overrides, as_overrides, settings_schema
from reasoner.config.smart import AskConfig, SmartConfig
from reasoner.config.variants import load_variants
from reasoner.errors import CollapseError, DataError, TrainingError
from reasoner.records import ArtifactRef
from tasks import contamination as overlap
from tasks import smart as stages
from tasks import smart_records as making
from tasks.context import run_context
from tasks.gpu import cancel_children
from tasks.smart import Answered, Kind, Step, Trained

Refs = tuple[ArtifactRef, ...]
SmartSettings = Annotated[dict[str, Any] | None, WithJsonSchema(settings_schema(SmartConfig))]


@dataclass(frozen=True)
class Given:
    """What every training starts from."""

    problems: ArtifactRef
    base: ArtifactRef
    shown: Refs
    """Few-shot attempts at the pool."""
    analysis: ArtifactRef


@dataclass(frozen=True)
class Epoch:
    """What one epoch leaves."""

    trained: Trained
    model: ArtifactRef
    answers: dict[str, Answered]
    """By evaluation set."""


@dataclass(frozen=True)
class Learnt:
    """A training of one or more epochs, perhaps with GRPO after them, and the one whose model is its result."""

    epochs: tuple[Epoch, ...]
    best: Epoch
    why: str
    """Why it ended there."""


@flow(name="smart", flow_run_name="{pipeline}", on_cancellation=[cancel_children])
def smart(
    pipeline: str = "smart-epoch2", overrides: Overrides = None, settings: SmartSettings = None
) -> ArtifactRef:
    """Run the configuration `pipeline` with dotted `overrides` such as `train.lr=1e-5`; returns the report.

    `settings` says the same as nested data, for forms.
    """
    words = [*as_overrides(settings), *(overrides or [])]
    config, variants = load_variants(pipeline, words)
    compute = config.compute
    with run_context(
        f"{pipeline}-{flow_run.id}",
        gpu_pool=compute.gpu_pool,
        idle_seconds=compute.idle_seconds,
        tracking=config.tracking,
        compute=compute,
    ) as run:
        run.save_config(config)
        problems = stages.prepare_problems(config.data, config.seed)
        checked = overlap.check(problems, config.contamination)
        base = stages.prepare_model(config.model)
        shown = few_shot(config, problems, base, "pool")
        given = Given(problems, base, shown, stages.analyse(shown))
        sets = {
            name: few_shot(config, problems, base, f"eval-{name}") for name in config.data.evaluation_names
        }

        main = learn(config, given)
        others, failed = learn_variants(variants, given)

        epochs = [*main.epochs, *others]
        evaluations = tuple(
            stages.evaluate(name, base_answers, tuple(e.answers[name] for e in epochs), config.evaluation)
            for name, base_answers in sets.items()
        )
        facts = {"seed": str(config.seed), "control": config.control.kind, "epochs": main.why}
        trained = tuple(epoch.trained for epoch in epochs)
        scored = tuple(
            overlap.Scored(name, e.trained.label, e.answers[name].turn1) for name in sets for e in epochs
        )
        clean = overlap.scores(checked, scored, config.evaluation.confidence)
        report = stages.report(
            pipeline, facts, problems, base, given.analysis, evaluations, trained, failed, clean
        )
        run.finish(report, main.best.model)
        run.track(evaluations)
        return report


def few_shot(config: SmartConfig, problems: ArtifactRef, base: ArtifactRef, split: str) -> Refs:
    """Step 0 on one split: every strategy, every shard, verified."""
    completions = [
        stages.few_shot(problems, base, split, strategy, shard, config.few_shot, config.engine, config.seed)
        for strategy in config.few_shot.strategies
        for shard in range(config.few_shot.shards)
    ]
    return tuple(stages.verify(each, config.verify_shown) for each in completions)


def learn(config: SmartConfig, given: Given, variant: str = "") -> Learnt:
    """Epoch after epoch, until their number is reached or first attempts at validation questions gain no more."""
    kind: Kind = "policy" if not variant else "variant" if config.control.kind == "none" else "control"
    epochs: tuple[Epoch, ...] = ()
    watched: Refs = ()
    while True:
        number = len(epochs) + 1
        if epochs:
            said = tuple(answered.turn1 for answered in epochs[-1].answers.values())
            stages.require_strategies(said, config.evaluation)
        model = epochs[-1].model if epochs else given.base
        start = model if config.epoch2.init == "epoch1" else given.base
        records = make_records(config, given, model, number)
        adapter = stages.train(records, start, config.train_for(number), config.prompt, config.seed, number)
        model = stages.merge(start, adapter, records, config.prompt, config.train.merge_dtype, number)

        is_last, best, why = number == config.epochs, number, str(number)
        if config.epochs == "until-converged":
            watched += (answer(config, given, model, config.converged_on, config.answering(1), number),)
            found = stages.judge_convergence(watched, config.min_delta, config.max_epochs)
            is_last, best, why = stages.convergence_of(found)

        label = variant or f"{config.control.prefix}epoch {number}"
        answers = {
            name: evaluate(config, given, model, name, number, is_last, label, kind)
            for name in config.data.evaluation_names
        }
        epochs += (Epoch(Trained(label, records, adapter), model, answers),)
        if is_last:
            break
    result = epochs[best - 1]
    if config.grpo.enabled:
        result = reinforce(config, given, epochs[:best], variant, kind)
        epochs += (result,)
    return Learnt(epochs, result, why)


def reinforce(
    config: SmartConfig, given: Given, epochs: tuple[Epoch, ...], variant: str, kind: Kind
) -> Epoch:
    """GRPO on top of the last of these epochs: a fresh adapter, merged, and evaluated as an epoch's model is."""
    epoch = epochs[-1]
    said = tuple(answered.turn1 for answered in epoch.answers.values())
    stages.require_strategies(said, config.evaluation)
    adapter = stages.train_grpo(
        telling_questions(config, given, epochs),
        epoch.model,
        config.grpo_here,
        config.prompt,
        config.verify,
        config.engine,
        config.seed,
    )
    records = epoch.trained.records
    assert records is not None, "an epoch has records"
    model = stages.merge(epoch.model, adapter, records, config.prompt, config.train.merge_dtype, "grpo")
    label = variant or f"{config.control.prefix}grpo"
    answers = {
        name: evaluate(config, given, model, name, "grpo", True, label, kind)
        for name in config.data.evaluation_names
    }
    return Epoch(Trained(label, None, adapter), model, answers)


def telling_questions(config: SmartConfig, given: Given, epochs: tuple[Epoch, ...]) -> ArtifactRef:
    """GRPO's questions: all, or those that some of the policy's samples solve and others do not.

    They are the samples that the last epoch learnt from. A first epoch, which learnt from none, is sampled for it.
    """
    if config.grpo.pass_rate is None:
        return given.problems
    number = max(len(epochs), 2)
    how = (config.sampling(1), config.epoch2, config.seed, number)
    drawn = stages.sample(given.problems, epochs[number - 2].model, *how)
    return stages.telling_questions(
        given.problems, stages.verify(drawn, config.verify), config.grpo.pass_rate
    )


def learn_variants(
    variants: dict[str, SmartConfig], given: Given
) -> tuple[tuple[Epoch, ...], tuple[str, ...]]:
    """The result of each variant. One that cannot be trained is told in the report; it takes no other down."""
    others: tuple[Epoch, ...] = ()
    failed: tuple[str, ...] = ()
    for name, variant in variants.items():
        try:
            others += (learn(variant, given, name).best,)
        except (CollapseError, DataError, TrainingError) as error:
            failed += (f"{name}: {error}",)
    return others, failed


def make_records(config: SmartConfig, given: Given, model: ArtifactRef, epoch: int) -> ArtifactRef:
    """What one epoch learns: SMART's records, or a control's."""
    control, seed = config.control, config.seed
    if control.kind == "given_solutions":
        return making.records_given(given.problems, control.max_records, seed)
    if control.kind in ("rft", "star"):
        solved = one_strategy(config, given, model, epoch)
        return making.records_rejected(given.problems, solved, given.analysis, control, seed, epoch)
    if epoch == 1:
        records = making.records_epoch1(given.problems, given.shown, config.epoch1, seed)
    else:
        first, second = self_sampling(config, given, model, epoch)
        shown = given.shown if config.epoch2.disagreement_only else ()
        records = making.records_later(given.problems, first, second, shown, config.epoch2, seed, epoch)
    return making.shuffle_labels(records, seed, epoch) if control.kind == "shuffled_labels" else records


def self_sampling(
    config: SmartConfig, given: Given, model: ArtifactRef, epoch: int
) -> tuple[ArtifactRef, ArtifactRef]:
    """The policy's own samples: a first turn, and a second one where a strategy failed."""
    more = (config.epoch2, config.seed, epoch)
    first = stages.verify(stages.sample(given.problems, model, config.sampling(1), *more), config.verify)
    again = stages.retry(given.problems, model, first, config.sampling(2), *more)
    return first, stages.verify(again, config.verify)


def one_strategy(config: SmartConfig, given: Given, model: ArtifactRef, epoch: int) -> Refs:
    """Attempts for rejection sampling: few-shot ones in the first epoch, then the policy's own."""
    if epoch > 1:
        more = (config.epoch2, config.seed, epoch)
        samples = stages.sample(given.problems, model, config.sampling(1), *more)
    elif config.control.samples:
        samples = making.few_shot_samples(
            given.problems,
            given.base,
            given.analysis,
            config.control,
            config.few_shot,
            config.engine,
            config.seed,
        )
    else:
        return given.shown
    return (stages.verify(samples, config.verify),)


def evaluate(
    config: SmartConfig,
    given: Given,
    model: ArtifactRef,
    name: str,
    epoch: Step,
    is_last: bool,
    label: str,
    kind: Kind,
) -> Answered:
    """One evaluation set: first attempts, and where they are due second ones and one a strategy."""
    split, due = f"eval-{name}", {"none": False, "last": is_last, "every": True}
    first = answer(config, given, model, split, config.answering(1), epoch)
    second = each = None
    if due[config.evaluation.second_turn]:
        again = stages.answer_again(
            given.problems, model, split, first, config.answering(2), config.seed, epoch
        )
        second = stages.verify(again, config.verify)
    if due[config.evaluation.each_strategy]:
        each = answer(config, given, model, split, config.answering_each(), epoch)
    return Answered(label, kind, first, second, each)


def answer(
    config: SmartConfig, given: Given, model: ArtifactRef, split: str, how: AskConfig, epoch: Step
) -> ArtifactRef:
    """The policy's greedy first attempts at one split, verified."""
    return stages.verify(stages.answer(given.problems, model, split, how, config.seed, epoch), config.verify)
