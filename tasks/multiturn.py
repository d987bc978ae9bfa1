"""The multi-turn stages as cached tasks: open the references, call the work in `reasoner.stages.multiturn`."""

from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.problems import EnvType, ProblemsConfig
from reasoner.environments import code, mathematics
from reasoner.prompts.turns import load_turns
from reasoner.records import ArtifactRef
from reasoner.report import multiturn as page
from reasoner.stages import multiturn as work
from reasoner.stages.multiturn_room import Cast
from reasoner.store import Draft, open_ref
from reasoner.workbench import ModelFolder
from tasks.context import bench
from tasks.smart import folder_of
from tasks.stage import stage

VERSIONS = {"math": mathematics.MathEnvironment.version, "code": code.CodeEnvironment.version}


def prompts_and_judge(arguments: dict[str, Any]) -> Any:
    """The prompts' texts and the judge's version belong to the key of whatever rolls out."""
    config: MultiTurnConfig = arguments["config"]
    return [load_turns(config.prompts), VERSIONS[config.env_type]]


def data_files_and_judge(arguments: dict[str, Any]) -> Any:
    """The content of data files, and the judge that golds were tried with."""
    return [work.fingerprint(arguments["problems"]), VERSIONS[arguments["env_type"]]]


@stage("multiturn-problems", kind="problems", version=1, external=data_files_and_judge)
def prepare(
    out: Draft, problems: ProblemsConfig, env_type: EnvType, workers: int | None, timeout: float
) -> None:
    """Load the problems, try golds and reference programs, split by hash."""
    out.metadata |= work.prepare(out.path, problems, env_type, workers, timeout)


@stage(
    "multiturn-train",
    kind="policies",
    version=2,
    gpu=True,
    external=prompts_and_judge,
    label=lambda a: a["config"].method,
)
def train(
    out: Draft,
    problems: ArtifactRef,
    model: ArtifactRef,
    correction: ArtifactRef | None,
    config: MultiTurnConfig,
) -> None:
    """Train solver and feedback writer, with periodic validation."""
    out.metadata |= work.train(
        out.path, bench(), open_ref(problems), folder_of(model), _folder(correction), config
    )


@stage("multiturn-evaluate", kind="evaluation", version=2, gpu=True, external=prompts_and_judge,
       label=lambda a: "trained" if a["trained"] else "baseline")  # fmt: skip
def evaluate(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, correction: ArtifactRef | None, trained: ArtifactRef | None,
    config: MultiTurnConfig,
) -> None:  # fmt: skip
    """Greedy, all test problems, both turns, no oracle."""
    cast = Cast(folder_of(model), _folder(correction), open_ref(trained) if trained is not None else None)
    out.metadata |= work.evaluate(out.path, bench(), open_ref(problems), cast, config)


@stage(
    "multiturn-control",
    kind="evaluation",
    version=2,
    gpu=True,
    external=prompts_and_judge,
    label=lambda a: a["name"],
)
def control(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, correction: ArtifactRef | None, trained: ArtifactRef,
    main: ArtifactRef, name: str, config: MultiTurnConfig,
) -> None:  # fmt: skip
    """A second turn to compare with: shuffled, empty or frozen feedback, or two independent first attempts."""
    cast = Cast(folder_of(model), _folder(correction), open_ref(trained))
    out.metadata |= work.control(out.path, bench(), open_ref(problems), cast, open_ref(main), name, config)


@stage("multiturn-report", kind="report", version=5)
def report(
    out: Draft, title: str, problems: ArtifactRef, base: ArtifactRef, baseline: ArtifactRef, trained: ArtifactRef,
    final: ArtifactRef, names: tuple[str, ...], controls: tuple[ArtifactRef, ...], clean: ArtifactRef | None = None,
) -> None:  # fmt: skip
    """The run as a page: both turns before and after, controls, training."""
    folders = {name: open_ref(ref) for name, ref in zip(names, controls, strict=True)}
    page.write(
        out.path, title, f"{folder_of(base).name} ({base.digest[:16]})", open_ref(problems), open_ref(baseline),
        open_ref(trained), open_ref(final), folders, open_ref(clean) if clean else None,
    )  # fmt: skip


def _folder(model: ArtifactRef | None) -> ModelFolder | None:
    return folder_of(model) if model is not None else None
