"""The contamination check as cached tasks: once before training, once with the scores."""

from dataclasses import dataclass

from reasoner.config.contamination import ContaminationConfig
from reasoner.problems import near_duplicates
from reasoner.records import ArtifactRef
from reasoner.stages import contamination as work
from reasoner.store import Draft, open_ref
from tasks.stage import stage


@dataclass(frozen=True, slots=True)
class Scored:
    """Judged answers to one set: attempts, arms of plans (then the label is theirs) or episodes."""

    set_name: str
    label: str
    answers: ArtifactRef


@stage("contamination", kind="contamination", version=1, external=lambda _: near_duplicates.VERSION)
def contamination(out: Draft, problems: ArtifactRef, config: ContaminationConfig) -> None:
    """Look for evaluation questions in the training pool; can stop the run."""
    out.metadata |= work.check(out.path, open_ref(problems), config)


@stage("clean-scores", kind="clean-scores", version=1)
def clean_scores(out: Draft, checked: ArtifactRef, answers: tuple[Scored, ...], confidence: float) -> None:
    """Every score with and without the questions that were found in the training pool."""
    given = [(one.set_name, one.label, open_ref(one.answers)) for one in answers]
    out.metadata |= work.clean_scores(out.path, open_ref(checked), given, confidence)


def check(problems: ArtifactRef, config: ContaminationConfig) -> ArtifactRef | None:
    """The check, unless it is off."""
    return None if config.mode == "off" else contamination(problems, config)


def scores(checked: ArtifactRef | None, answers: tuple[Scored, ...], confidence: float) -> ArtifactRef | None:
    """The clean scores, where there was a check."""
    return None if checked is None else clean_scores(checked, answers, confidence)
