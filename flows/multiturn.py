"""Multi-turn reinforcement learning: attempt, feedback, refinement (METHODS 3).

problems ─┬─ train (validates as it goes) ─┬─ evaluation ─┬─ report
base ─────┤                                └─ controls ───┤
          └─ baseline evaluation ─────────────────────────┘

The baseline is measured after the training, so that one start of the engine serves it, the evaluation and the controls.
"""

from dataclasses import replace
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import WithJsonSchema

from flows.forms import Overrides, as_overrides, settings_schema
from reasoner.config.compose import load
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.smart import ModelConfig
from reasoner.records import ArtifactRef
from reasoner.stages.multiturn import controls_of
from reasoner.tracking import episodes as shown
from tasks import contamination as overlap
from tasks import multiturn as stages
from tasks.context import run_context
from tasks.gpu import cancel_children
from tasks.smart import prepare_model

MultiTurnSettings = Annotated[dict[str, Any] | None, WithJsonSchema(settings_schema(MultiTurnConfig))]


@flow(name="multiturn", flow_run_name="{pipeline}", on_cancellation=[cancel_children])
def multiturn(
    pipeline: str = "mlmt-math", overrides: Overrides = None, settings: MultiTurnSettings = None
) -> ArtifactRef:
    """Run the configuration `pipeline` with dotted `overrides` such as `lm_lr=1e-5`; returns the report.

    `settings` says the same as nested data, for forms.
    """
    words = [*as_overrides(settings), *(overrides or [])]
    config = load(pipeline, words, MultiTurnConfig)
    compute = config.compute
    with run_context(
        f"{pipeline}-{flow_run.id}", gpu_pool=compute.gpu_pool, idle_seconds=compute.idle_seconds
    ) as run:
        run.save_config(config)
        tracking = shown.asked_for(config, run.folder)
        verify, learned = config.verify, config.learned()
        problems = stages.prepare(config.problems, config.env_type, verify.workers, verify.timeout)
        checked = overlap.check(problems, config.contamination)
        base = prepare_model(config.model)
        correction = (
            prepare_model(ModelConfig(path=config.correction_model)) if config.correction_model else None
        )

        measured = config.measured()
        trained = stages.train(problems, base, correction, learned)
        baseline = stages.evaluate(problems, base, correction, None, measured)
        final = stages.evaluate(problems, base, correction, trained, measured)
        names = tuple(controls_of(config))
        controls = tuple(
            stages.control(problems, base, correction, trained, final, name, measured) for name in names
        )

        scored = (overlap.Scored("test", "untrained", baseline), overlap.Scored("test", "trained", final))
        clean = overlap.scores(checked, scored, config.evaluation.confidence)
        report = stages.report(pipeline, problems, base, baseline, trained, final, names, controls, clean)
        run.finish(report, trained)
        if tracking is not None:
            tracking = replace(tracking, run_id=trained.digest[:16])
            folders = run.store.open(trained), run.store.open(final)
            shown.send_finished(tracking, config, *folders, run.progress.say)
        return report
